"""Read BART and its relatives from folders in Hugging Face's format: Marian, mBART, M2M-100, NLLB and Pegasus."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from core.config.sections import Norm, Positions, TransformerConfig
from core.models.transformer import Transformer
from core.runs.imported_model import ACTIVATIONS, ImportedModel, parsed, validated
from core.runs.imported_tokens import Languages, SpecialIds, Tokens
from core.runs.model_files import ModelImportError, is_sinusoidal, read_weights
from core.runs.spm_vocabularies import spm_vocabulary
from core.runs.tokenizer_files import NamedVocabulary, bart_tokenizer, marian_tokenizers
from core.storage.error_messages import short_repr

PARAMETER_NAMES = {  # parts of parameter names: ours → Hugging Face's
    "src_embedding.tokens": "model.encoder.embed_tokens",
    "tgt_embedding.tokens": "model.decoder.embed_tokens",
    "src_embedding.positions": "model.encoder.embed_positions.weight",
    "tgt_embedding.positions": "model.decoder.embed_positions.weight",
    "src_embedding.norm": "model.encoder.layernorm_embedding",
    "tgt_embedding.norm": "model.decoder.layernorm_embedding",
    "encoder_layers": "model.encoder.layers",
    "decoder_layers": "model.decoder.layers",
    "norm_attention": "self_attn_layer_norm",
    "norm_self": "self_attn_layer_norm",
    "norm_cross": "encoder_attn_layer_norm",
    "norm_feed_forward": "final_layer_norm",
    "encoder_norm": "model.encoder.layer_norm",
    "decoder_norm": "model.decoder.layer_norm",
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    "w_q": "q_proj",
    "w_k": "k_proj",
    "w_v": "v_proj",
    "w_o": "out_proj",
    "feed_forward.widen": "fc1",
    "feed_forward.narrow": "fc2",
    "output.weight": "lm_head.weight",
}
_ENCODER, _DECODER, _SHARED = (
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "model.shared.weight",
)
_OUTPUT, _BIAS = "lm_head.weight", "final_logits_bias"
_POSITIONS = "model.{}.embed_positions.weight"
_OFFSET = 2  # rows of BART's tables of positions before that of position 0
_Id = Annotated[int, Field(ge=0)]
_Size = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class _Family:
    """What distinguishes a family, in options of ours.

    Attributes:
        positions: of its embeddings; learned tables begin with two rows that are not used.
        reads_bos: whether its sources begin with BOS.
        has_languages: whether its sources and answers begin with a language.
    """

    name: str
    positions: Positions = "sinusoidal-halves"
    norm: Norm = "post"
    embedding_norm: bool = False
    reads_bos: bool = False
    has_languages: bool = False


FAMILIES = {
    "marian": _Family("Marian"),
    "bart": _Family("BART", "learned", embedding_norm=True, reads_bos=True),
    "mbart": _Family("mBART", "learned", "pre", embedding_norm=True, has_languages=True),
    "m2m_100": _Family("M2M-100", "sinusoidal-fairseq", "pre", has_languages=True),
    "pegasus": _Family("Pegasus", norm="pre"),
}


class _HuggingFaceConfig(BaseModel):
    """The fields of ``config.json`` that the computation depends on; those of training are not among them."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model_type: Literal["marian", "bart", "mbart", "m2m_100", "pegasus"]
    vocab_size: _Size
    decoder_vocab_size: _Size | None = None
    d_model: _Size
    encoder_layers: _Size
    decoder_layers: _Size
    encoder_attention_heads: _Size
    decoder_attention_heads: _Size
    encoder_ffn_dim: _Size
    decoder_ffn_dim: _Size
    max_position_embeddings: _Size
    activation_function: Literal["relu", "gelu", "gelu_new", "silu", "swish"]
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    dropout: Annotated[float, Field(ge=0, le=1)] = 0.0
    activation_dropout: Annotated[float, Field(ge=0, le=1)] = 0.0
    pad_token_id: _Id
    bos_token_id: _Id | None = None
    eos_token_id: _Id
    decoder_start_token_id: _Id
    forced_bos_token_id: _Id | None = None

    @property
    def family(self) -> _Family:
        """What distinguishes its family."""
        return FAMILIES[self.model_type]

    @property
    def source_start(self) -> int:
        """The token that sources begin with; if there is none, its place has the one that starts the decoder."""
        is_read = self.family.reads_bos and self.bos_token_id is not None
        return self.bos_token_id if is_read else self.decoder_start_token_id  # type: ignore[return-value] # is_read

    @property
    def target_size(self) -> int:
        """Tokens of the target's vocabulary."""
        is_separate = self.model_type == "marian" and not self.share_encoder_decoder_embeddings
        return self.decoder_vocab_size or self.vocab_size if is_separate else self.vocab_size


def read(folder: Path, document: dict[str, Any], generation: dict[str, Any], languages: Languages) -> ImportedModel:
    """Read a model; see ``core.runs.hugging_face.read_folder``."""
    theirs = _config_of(document)
    state = read_weights(folder)
    tokens = Tokens.of(
        SpecialIds(theirs.pad_token_id, theirs.eos_token_id, theirs.source_start, theirs.decoder_start_token_id),
        (theirs.vocab_size, theirs.target_size),
        _named_vocabularies(theirs, folder),
        forced=theirs.forced_bos_token_id,
        languages=languages if theirs.family.has_languages else None,
    )
    config = _our_config(theirs, state, tokens)
    weights = _Conversion(theirs, state, tokens).weights(config)
    notes = list(tokens.notes)
    if forbidden := tokens.forbid(weights["output.bias"], generation):
        notes.append(f"{forbidden} tokens that generation_config.json forbids are never written")
    return ImportedModel(theirs.family.name, config, weights, tokens.tokenizers, tokens.is_shared, tuple(notes))


def _config_of(document: dict[str, Any]) -> _HuggingFaceConfig:
    if isinstance(document.get("eos_token_id"), list) and len(document["eos_token_id"]) == 1:
        document = document | {"eos_token_id": document["eos_token_id"][0]}
    config = parsed(document, _HuggingFaceConfig)
    for one, other in (("encoder_attention_heads", "decoder_attention_heads"), ("encoder_ffn_dim", "decoder_ffn_dim")):
        if getattr(config, one) != getattr(config, other):
            raise ModelImportError(
                f"config.json: {one}={getattr(config, one)} must equal {other}={getattr(config, other)}"
            )
    for field in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        smaller = min(config.vocab_size, config.target_size)
        if (getattr(config, field) or 0) >= smaller and (field != "bos_token_id" or config.family.reads_bos):
            raise ModelImportError(f"config.json: {field}={getattr(config, field)} must be below vocab_size={smaller}")
    if config.pad_token_id == config.eos_token_id:
        raise ModelImportError(f"config.json: pad_token_id={config.pad_token_id} must differ from eos_token_id")
    if config.family.reads_bos and config.bos_token_id is None:
        raise ModelImportError("config.json: bos_token_id is missing; BART's sources begin with it")
    return config


def _named_vocabularies(config: _HuggingFaceConfig, folder: Path) -> tuple[NamedVocabulary, NamedVocabulary] | None:
    """Return the vocabularies of both sides; None if the folder has no tokenizer."""
    if config.model_type == "marian":
        return marian_tokenizers(folder, (config.vocab_size, config.target_size))
    read_one = bart_tokenizer if config.model_type == "bart" else partial(spm_vocabulary, kind=config.model_type)
    one = read_one(folder, config.vocab_size)
    return None if one is None else (one, one)


# --- weights ------------------------------------------------------------------------------------------------------


def _our_config(theirs: _HuggingFaceConfig, state: Mapping[str, torch.Tensor], tokens: Tokens) -> TransformerConfig:
    """Return the options of our model that stand for theirs; ValidationError if one is out of bounds."""
    family = theirs.family
    positions = family.positions if _has_sines(theirs, state) else "learned"
    options: dict[str, Any] = {
        "d_model": theirs.d_model,
        "num_heads": theirs.encoder_attention_heads,
        "d_ff": theirs.encoder_ffn_dim,
        "num_encoder_layers": theirs.encoder_layers,
        "num_decoder_layers": theirs.decoder_layers,
        "max_seq_len": theirs.max_position_embeddings,
        "dropout": theirs.dropout,
        "activation_dropout": theirs.activation_dropout,
        "norm": family.norm,
        "positions": positions,
        "activation": ACTIVATIONS.get(theirs.activation_function, theirs.activation_function),
        "scale_embeddings": theirs.scale_embedding,
        "embedding_norm": family.embedding_norm,
        "source_bos": family.reads_bos,
        "tie_embeddings": _tying(theirs, state, tokens, has_own_positions=positions == "learned"),
    }
    return validated(options, TransformerConfig)


def _has_sines(theirs: _HuggingFaceConfig, state: Mapping[str, torch.Tensor]) -> bool:
    """Whether the stored positions, if any, are the family's sines."""
    if theirs.family.positions != "sinusoidal-halves":
        return theirs.family.positions != "learned"  # fairseq's are not stored
    shape = theirs.max_position_embeddings, theirs.d_model
    tables = [state[name] for side in ("encoder", "decoder") if (name := _POSITIONS.format(side)) in state]
    return all(tuple(each.shape) == shape and is_sinusoidal(each, in_halves=True) for each in tables)


def _tying(
    theirs: _HuggingFaceConfig, state: Mapping[str, torch.Tensor], tokens: Tokens, *, has_own_positions: bool
) -> str:
    """Return which tables can be one: all, if they and their rows are; not where each side has learned positions."""
    encoder, decoder, output = _tables(theirs, state)
    if output is not decoder and not torch.equal(output, decoder):
        return "none"
    is_one = tokens.is_shared and tokens.rows[0] == tokens.rows[1] and not has_own_positions
    return "all" if is_one and (encoder is decoder or torch.equal(encoder, decoder)) else "output"


def _tables(
    theirs: _HuggingFaceConfig, state: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the embeddings of both sides and the output's matrix, which may be stored once for all."""
    is_shared = theirs.model_type != "marian" or theirs.share_encoder_decoder_embeddings
    anywhere = [_SHARED, _ENCODER, _DECODER, *([_OUTPUT] if theirs.tie_word_embeddings else [])]
    encoder = _first(state, [_ENCODER, *(anywhere if is_shared else [])])
    decoder = _first(state, [_DECODER, *(anywhere if is_shared else [_OUTPUT] if theirs.tie_word_embeddings else [])])
    return encoder, decoder, decoder if theirs.tie_word_embeddings else _first(state, [_OUTPUT])


def _first(state: Mapping[str, torch.Tensor], names: Sequence[str]) -> torch.Tensor:
    for name in names:
        if name in state:
            return state[name]
    raise ModelImportError(f"tensor {names[0]!r} is missing")


class _Conversion:
    """Collects our tensors from theirs, and knows which of theirs nothing has used."""

    def __init__(self, theirs: _HuggingFaceConfig, state: Mapping[str, torch.Tensor], tokens: Tokens) -> None:
        self.theirs, self.state, self.tokens = theirs, state, tokens

    def weights(self, config: TransformerConfig) -> dict[str, torch.Tensor]:
        """Return the state dict of our model of ``config``."""
        src_rows, tgt_rows = self.tokens.rows
        encoder, decoder, output = _tables(self.theirs, self.state)
        special = {
            "src_embedding.tokens.weight": lambda: self._rows(encoder, src_rows, self.theirs.vocab_size, _ENCODER),
            "tgt_embedding.tokens.weight": lambda: self._rows(decoder, tgt_rows, self.theirs.target_size, _DECODER),
            "output.weight": lambda: self._rows(output, tgt_rows, self.theirs.target_size, _OUTPUT),
            "output.bias": self._bias,
        }
        stored = {f"{_POSITIONS.format(side)}{end}" for side in ("encoder", "decoder") for end in ("", "s")}
        used = {_ENCODER, _DECODER, _SHARED, _OUTPUT, _BIAS, *stored}
        with torch.device("meta"):
            expected = Transformer(config, len(src_rows), len(tgt_rows)).state_dict()
        weights = {}
        for name, outline in expected.items():
            if name in special:
                weights[name] = special[name]()
                continue
            other = their_name(name)
            tensor = _first(self.state, [other])
            if name.endswith(".positions") and self.theirs.family.positions == "learned":
                tensor = tensor[_OFFSET:]
            if tensor.shape != outline.shape:
                raise ModelImportError(
                    f"tensor {other!r} has shape {tuple(tensor.shape)}; by config.json it is {tuple(outline.shape)}"
                )
            used.add(other)
            weights[name] = tensor.clone()
        if unused := sorted(self.state.keys() - used):
            raise ModelImportError(
                f"tensor {short_repr(unused[0], 100)} belongs to no part of a {self.theirs.model_type} model"
            )
        return weights

    def _rows(self, table: torch.Tensor, rows: list[int], size: int, name: str) -> torch.Tensor:
        if tuple(table.shape) != (size, self.theirs.d_model):
            wanted = (size, self.theirs.d_model)
            raise ModelImportError(f"tensor {name!r} has shape {tuple(table.shape)}; by config.json it is {wanted}")
        return table[torch.tensor(rows)]

    def _bias(self) -> torch.Tensor:
        rows, size = self.tokens.rows[1], self.theirs.target_size
        stored = self.state.get(_BIAS, torch.zeros(1, size))
        if tuple(stored.shape) != (1, size):
            raise ModelImportError(
                f"tensor {_BIAS!r} has shape {tuple(stored.shape)}; by config.json it is (1, {size})"
            )
        bias = stored[0, torch.tensor(rows)]
        self.tokens.forbid_copies(bias)
        return bias


def their_name(name: str) -> str:
    """Return Hugging Face's name of one of our parameters."""
    for ours, theirs in PARAMETER_NAMES.items():
        name = name.replace(ours, theirs)
    return name
