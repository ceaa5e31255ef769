"""Read GPT-2 (Radford et al. 2019) from folders in Hugging Face's format."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from core.config.sections import DecoderOnlyConfig
from core.models.decoder_only import DecoderOnly
from core.runs.imported_model import ACTIVATIONS, ImportedModel, parsed, validated
from core.runs.imported_tokens import Languages, SpecialIds, Tokens
from core.runs.model_files import ModelImportError, read_weights
from core.runs.tokenizer_files import bart_tokenizer
from core.storage.error_messages import short_repr

_Size = Annotated[int, Field(ge=1)]
_Dropout = Annotated[float, Field(ge=0, le=0.9)]
_TABLE, _POSITIONS, _OUTPUT = "wte.weight", "wpe.weight", "lm_head.weight"
_MASK = r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias"  # buffers of older files
_NAMES = {  # ours → theirs, in a layer; their matrices are transposed
    "self_attention.w_o": "attn.c_proj",
    "feed_forward.widen": "mlp.c_fc",
    "feed_forward.narrow": "mlp.c_proj",
    "norm_self": "ln_1",
    "norm_feed_forward": "ln_2",
}


class _GPT2Config(BaseModel):
    """The fields of ``config.json`` that the computation depends on."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    vocab_size: _Size
    n_positions: _Size
    n_embd: _Size
    n_layer: _Size
    n_head: _Size
    n_inner: _Size | None = None
    activation_function: Literal["relu", "gelu", "gelu_new", "silu", "swish"] = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    resid_pdrop: _Dropout = 0.0
    scale_attn_weights: Literal[True] = True
    scale_attn_by_inverse_layer_idx: Literal[False] = False
    eos_token_id: Annotated[int, Field(ge=0)]


def read(folder: Path, document: dict[str, Any], generation: dict[str, Any], languages: Languages) -> ImportedModel:
    """Read a model; see ``core.runs.hugging_face.read_folder``."""
    theirs = parsed(document, _GPT2Config)
    state = {name.removeprefix("transformer."): tensor for name, tensor in read_weights(folder, _MASK).items()}
    size, eos = theirs.vocab_size, theirs.eos_token_id
    if eos >= size:
        raise ModelImportError(f"config.json: eos_token_id={eos} must be below vocab_size={size}")
    one = bart_tokenizer(folder, size)
    tokens = Tokens.of(SpecialIds(eos, eos, eos, eos), (size, size), None if one is None else (one, one))
    table = _tensor(state, _TABLE, (size, theirs.n_embd))
    output = _tensor(state, _OUTPUT, (size, theirs.n_embd)) if _OUTPUT in state else table
    is_tied = bool(torch.equal(table, output))
    config = _our_config(theirs, is_tied=is_tied)
    rows = torch.tensor(tokens.rows[0])
    weights = _weights(theirs, config, state)
    sides = ("tgt",) if is_tied else ("tgt", "src")
    for side in sides:
        weights[f"{side}_embedding.tokens.weight"] = table[rows]
        weights[f"{side}_embedding.positions"] = _tensor(state, _POSITIONS, (theirs.n_positions, theirs.n_embd))[
            : 2 * config.max_seq_len
        ].clone()
    if not is_tied:
        weights["output.weight"] = output[rows]
    weights["output.bias"] = torch.zeros(len(rows))
    tokens.forbid_copies(weights["output.bias"])
    tokens.forbid(weights["output.bias"], generation)
    notes = (*tokens.notes, "the answer continues the input; each may have half of the positions")
    return ImportedModel("GPT-2", config, weights, tokens.tokenizers, tokens.is_shared, notes)


def _our_config(theirs: _GPT2Config, *, is_tied: bool) -> DecoderOnlyConfig:
    options: dict[str, Any] = {
        "d_model": theirs.n_embd,
        "num_heads": theirs.n_head,
        "d_ff": theirs.n_inner or 4 * theirs.n_embd,
        "num_layers": theirs.n_layer,
        "max_seq_len": theirs.n_positions // 2,
        "dropout": theirs.resid_pdrop,
        "norm": "pre",
        "norm_eps": 0.0 if theirs.layer_norm_epsilon == 1e-5 else theirs.layer_norm_epsilon,
        "positions": "learned",
        "activation": ACTIVATIONS.get(theirs.activation_function, theirs.activation_function),
        "scale_embeddings": False,
        "source_bos": False,
        "source_eos": False,
        "target_bos": False,
        "tie_embeddings": "all" if is_tied else "none",
    }
    return validated(options, DecoderOnlyConfig)


def _weights(
    theirs: _GPT2Config, config: DecoderOnlyConfig, state: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return our tensors of the layers and of the last norm; one matrix of theirs makes queries, keys and values."""
    width, hidden = config.d_model, config.d_ff
    sizes = {"self_attention.w_o": (width, width), "feed_forward.widen": (width, hidden)}
    sizes["feed_forward.narrow"] = (hidden, width)
    weights = {f"norm.{part}": _tensor(state, f"ln_f.{part}", (width,)) for part in ("weight", "bias")}
    used = {_TABLE, _POSITIONS, _OUTPUT, "ln_f.weight", "ln_f.bias"}
    for number in range(config.num_layers):
        for ours, other in _NAMES.items():
            shape = sizes.get(ours, (width,))
            weight = _tensor(state, f"h.{number}.{other}.weight", shape)
            weights[f"layers.{number}.{ours}.weight"] = weight.t().clone() if len(shape) == 2 else weight
            weights[f"layers.{number}.{ours}.bias"] = _tensor(state, f"h.{number}.{other}.bias", shape[-1:])
            used |= {f"h.{number}.{other}.weight", f"h.{number}.{other}.bias"}
        joined = f"h.{number}.attn.c_attn"
        matrices = _tensor(state, f"{joined}.weight", (width, 3 * width)).t().chunk(3)
        biases = _tensor(state, f"{joined}.bias", (3 * width,)).chunk(3)
        used |= {f"{joined}.weight", f"{joined}.bias"}
        for name, matrix, bias in zip("qkv", matrices, biases, strict=True):
            weights[f"layers.{number}.self_attention.w_{name}.weight"] = matrix.clone()
            weights[f"layers.{number}.self_attention.w_{name}.bias"] = bias.clone()
    if unused := sorted(state.keys() - used):
        raise ModelImportError(f"tensor {short_repr(unused[0], 100)} belongs to no part of a GPT-2 model")
    with torch.device("meta"):
        expected = DecoderOnly(config, 4, 4).state_dict()
    return {name: weights[name] for name in expected if name in weights}


def _tensor(state: Mapping[str, torch.Tensor], name: str, shape: tuple[int, ...]) -> torch.Tensor:
    if name not in state:
        raise ModelImportError(f"tensor {name!r} is missing")
    if tuple(state[name].shape) != shape:
        raise ModelImportError(f"tensor {name!r} has shape {tuple(state[name].shape)}; by config.json it is {shape}")
    return state[name]
