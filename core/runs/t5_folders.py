"""Read T5 (Raffel et al. 2020), T5 1.1 and mT5 from folders in Hugging Face's format."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from core.config.sections import TransformerConfig
from core.models.relative_bias import MAX_DISTANCE, NUM_BUCKETS
from core.models.transformer import Transformer
from core.runs.imported_model import ImportedModel, parsed, validated
from core.runs.imported_tokens import Languages, SpecialIds, Tokens
from core.runs.model_files import ModelImportError, read_weights
from core.runs.spm_vocabularies import spm_vocabulary
from core.storage.error_messages import short_repr

_Size = Annotated[int, Field(ge=1)]
_MAX_SEQ_LEN = 512  # tokens in training; relative positions have no limit of their own
_SHARED, _OUTPUT = "shared.weight", "lm_head.weight"
_COPIES = {_SHARED, _OUTPUT, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
_PROJECTIONS = ("relu", "gelu", "silu", "gelu_new", "gated-relu", "gated-gelu", "gated-silu", "gated-gelu_new")
_BUCKETS = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
_NAMES = {  # ours → theirs, in a layer whose parts are numbered: self-attention 0, cross-attention 1, feed-forward last
    "self_attention.w_": "layer.0.SelfAttention.",
    "cross_attention.w_": "layer.1.EncDecAttention.",
    "norm_attention": "layer.0.layer_norm",
    "norm_self": "layer.0.layer_norm",
    "norm_cross": "layer.1.layer_norm",
}


class _T5Config(BaseModel):
    """The fields of ``config.json`` that the computation depends on."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model_type: Literal["t5", "mt5"]
    vocab_size: _Size
    d_model: _Size
    d_kv: _Size
    d_ff: _Size
    num_layers: _Size
    num_decoder_layers: _Size | None = None
    num_heads: _Size
    feed_forward_proj: Literal[_PROJECTIONS] = "relu"  # type: ignore[valid-type] # a tuple of strings
    relative_attention_num_buckets: Annotated[int, Field(ge=NUM_BUCKETS, le=NUM_BUCKETS)] = NUM_BUCKETS
    relative_attention_max_distance: Annotated[int, Field(ge=MAX_DISTANCE, le=MAX_DISTANCE)] = MAX_DISTANCE
    layer_norm_epsilon: float = 1e-6
    dropout_rate: Annotated[float, Field(ge=0, le=0.9)] = 0.0
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    pad_token_id: Annotated[int, Field(ge=0)] = 0
    eos_token_id: Annotated[int, Field(ge=0)] = 1
    decoder_start_token_id: Annotated[int, Field(ge=0)] = 0

    @property
    def scales_output(self) -> bool:
        """Whether the decoder's states are divided by √d_model before the output layer, as in T5 1.0."""
        if self.model_type == "mt5":
            return False
        return self.tie_word_embeddings if self.scale_decoder_outputs is None else self.scale_decoder_outputs


def read(folder: Path, document: dict[str, Any], generation: dict[str, Any], languages: Languages) -> ImportedModel:
    """Read a model; see ``core.runs.hugging_face.read_folder``."""
    theirs = parsed(document, _T5Config)
    if theirs.d_kv * theirs.num_heads != theirs.d_model:
        raise ModelImportError(
            f"config.json: d_kv={theirs.d_kv} times num_heads={theirs.num_heads} must be d_model={theirs.d_model}"
        )
    state = read_weights(folder)
    if _SHARED not in state:
        raise ModelImportError(f"tensor {_SHARED!r} is missing")
    table, output = state[_SHARED], state.get(_OUTPUT, state[_SHARED])
    for name, tensor in ((_SHARED, table), (_OUTPUT, output)):
        if tuple(tensor.shape) != (theirs.vocab_size, theirs.d_model):
            wanted = (theirs.vocab_size, theirs.d_model)
            raise ModelImportError(f"tensor {name!r} has shape {tuple(tensor.shape)}; by config.json it is {wanted}")
    one = spm_vocabulary(folder, theirs.vocab_size, "t5")
    start = theirs.decoder_start_token_id
    ids = SpecialIds(theirs.pad_token_id, theirs.eos_token_id, start, start)
    tokens = Tokens.of(ids, (theirs.vocab_size,) * 2, None if one is None else (one, one))
    is_tied = bool(torch.equal(table, output))
    config = _our_config(theirs, is_tied=is_tied)
    rows = torch.tensor(tokens.rows[0])
    weights = _weights(theirs, config, state) | {
        "tgt_embedding.tokens.weight": table[rows],
        "output.bias": torch.zeros(len(rows)),
    }
    if not is_tied:
        weights |= {"src_embedding.tokens.weight": table[rows], "output.weight": output[rows]}
    tokens.forbid_copies(weights["output.bias"])
    tokens.forbid(weights["output.bias"], generation)
    return ImportedModel("T5", config, weights, tokens.tokenizers, tokens.is_shared, tokens.notes)


def _our_config(theirs: _T5Config, *, is_tied: bool) -> TransformerConfig:
    gate, _, activation = theirs.feed_forward_proj.rpartition("-")
    if theirs.feed_forward_proj == "gated-gelu":  # as they read it
        activation = "gelu_new"
    options: dict[str, Any] = {
        "d_model": theirs.d_model,
        "num_heads": theirs.num_heads,
        "d_ff": theirs.d_ff,
        "num_encoder_layers": theirs.num_layers,
        "num_decoder_layers": theirs.num_decoder_layers or theirs.num_layers,
        "max_seq_len": _MAX_SEQ_LEN,
        "dropout": theirs.dropout_rate,
        "activation_dropout": theirs.dropout_rate,
        "norm": "pre",
        "norm_block": "rms-norm",
        "norm_eps": 0.0 if theirs.layer_norm_epsilon == 1e-6 else theirs.layer_norm_epsilon,
        "positions": "relative-bias",
        "activation": "gelu-tanh" if activation == "gelu_new" else activation,
        "feed_forward_block": "gated" if gate else "mlp",
        "scale_embeddings": False,
        "source_bos": False,
        "tie_embeddings": "all" if is_tied else "none",
    }
    return validated(options, TransformerConfig)


def _weights(
    theirs: _T5Config, config: TransformerConfig, state: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return our tensors but those of embeddings and output; biases, which T5 lacks, are zero.

    Its scores are not divided by √d_k, so queries are multiplied by it. Where the decoder's states are divided by
    √d_model at the end, the weight of the last norm is.
    """
    with torch.device("meta"):
        expected = Transformer(config, 4, 4).state_dict()
    weights, used = {}, set(_COPIES)
    for name, outline in expected.items():
        if name.startswith(("src_embedding", "tgt_embedding", "output")):
            continue
        if name.endswith(".bias"):
            weights[name] = torch.zeros(outline.shape)
            continue
        other = _their_name(name, config)
        if other not in state:
            raise ModelImportError(f"tensor {other!r} is missing")
        tensor = state[other].clone()
        if tensor.shape != outline.shape:
            raise ModelImportError(
                f"tensor {other!r} has shape {tuple(tensor.shape)}; by config.json it is {tuple(outline.shape)}"
            )
        used.add(other)
        weights[name] = tensor * config.d_k**0.5 if ".w_q." in name else tensor
    if theirs.scales_output:
        weights["decoder_norm.weight"] = weights["decoder_norm.weight"] * config.d_model**-0.5
    if unused := sorted(state.keys() - used):
        raise ModelImportError(f"tensor {short_repr(unused[0], 100)} belongs to no part of a T5 model")
    return weights


def _their_name(name: str, config: TransformerConfig) -> str:
    """Return Hugging Face's name of one of our parameters."""
    if name.endswith("relative.weight"):
        return f"{'decoder' if name.startswith('decoder') else 'encoder'}.{_BUCKETS}"
    side, _, rest = name.partition("_")  # encoder_layers.0.…, encoder_norm.weight
    if rest.startswith("norm"):
        return f"{side}.final_layer_norm.weight"
    _, number, part = rest.split(".", 2)
    last = 1 if side == "encoder" else 2
    widen = "wi_1" if config.feed_forward_block == "gated" else "wi"
    feed_forward = {
        "norm_feed_forward.weight": "layer_norm.weight",
        "feed_forward.narrow.weight": "DenseReluDense.wo.weight",
        "feed_forward.gate.weight": "DenseReluDense.wi_0.weight",
        "feed_forward.widen.weight": f"DenseReluDense.{widen}.weight",
    }
    if part in feed_forward:
        return f"{side}.block.{number}.layer.{last}.{feed_forward[part]}"
    for ours, theirs in _NAMES.items():
        part = part.replace(ours, theirs)
    return f"{side}.block.{number}.{part}"
