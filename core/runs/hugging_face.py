"""Read Marian and BART models from folders in Hugging Face's format, without the package ``transformers``.

A folder has ``config.json``, weights as ``model.safetensors`` (or its parts, or ``pytorch_model.bin``, which is loaded
with ``weights_only``) and, for text, the tokenizer's files. Folders are the local user's own: nobody else's are read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.config.sections import TransformerConfig
from core.models.transformer import Transformer
from core.runs.model_files import ModelImportError, is_sinusoidal, read_json, read_weights
from core.runs.tokenizer_files import NamedVocabulary, bart_tokenizer, id_tokenizer, marian_tokenizers
from core.text.subwords import SubwordTokenizers
from core.text.vocab import BOS_ID

NEVER = -1e9  # bias of a token that is never written
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
_BART_OFFSET = 2  # rows of BART's tables of positions before that of position 0
_NUM_SPECIAL = 3  # PAD, BOS and EOS, before UNK if there is one
_DECODING = ("num_beams", "length_penalty", "no_repeat_ngram_size", "min_length", "forced_bos_token_id")
_NEUTRAL = {"num_beams": 1, "length_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0}

_Id = Annotated[int, Field(ge=0)]
_Size = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class ImportedModel:
    """A model of another program, as this one has it.

    Attributes:
        kind: what it was, such as "Marian".
        config: the ``model`` section of its preset.
        weights: the state dict of ``Transformer(config, …)``, float32.
        tokenizers: of both sides, with their vocabularies.
        shared: whether source and target have one vocabulary.
        notes: what the user should know, one sentence each.
    """

    kind: str
    config: TransformerConfig
    weights: dict[str, torch.Tensor]
    tokenizers: SubwordTokenizers
    shared: bool
    notes: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """What it is in one phrase: "Marian: 6 encoder and 6 decoder layers, 8 heads, …"."""
        config = self.config
        names = (f"{side}_embedding.tokens.weight" for side in ("src", "tgt"))
        sizes = [f"{len(self.weights[name]):,}" for name in names if name in self.weights]
        return (
            f"{self.kind}: {config.num_encoder_layers} encoder and {config.num_decoder_layers} decoder layers, "
            f"{config.num_heads} heads, d_model {config.d_model}, "
            f"{sum(each.numel() for each in self.weights.values()):,} parameters, "
            + (f"vocabulary {sizes[-1]}" if self.shared else f"vocabularies {' and '.join(sizes)}")
        )


class _HuggingFaceConfig(BaseModel):
    """The fields of ``config.json`` that the computation depends on; those of training are not among them."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model_type: Literal["marian", "bart"]
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
    activation_function: Literal["relu", "gelu", "silu", "swish"]
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    dropout: Annotated[float, Field(ge=0, le=1)] = 0.0
    activation_dropout: Annotated[float, Field(ge=0, le=1)] = 0.0
    pad_token_id: _Id
    bos_token_id: _Id | None = None
    eos_token_id: _Id
    decoder_start_token_id: _Id

    @property
    def source_start(self) -> int:
        """The token that sources begin with; Marian's have none, so its place has the one that starts the decoder."""
        is_read = self.model_type == "bart" and self.bos_token_id is not None
        return self.bos_token_id if is_read else self.decoder_start_token_id  # type: ignore[return-value] # is_read

    @property
    def target_size(self) -> int:
        """Tokens of the target's vocabulary."""
        is_separate = self.model_type == "marian" and not self.share_encoder_decoder_embeddings
        return self.decoder_vocab_size or self.vocab_size if is_separate else self.vocab_size


def read_folder(folder: Path) -> ImportedModel:
    """Read a model.

    Raises:
        ModelImportError: a file is missing or damaged, or the model has something that no option of ours stands for.
        SubwordError: the tokenizer's files cannot be used.
    """
    generation = read_json(folder / "generation_config.json") if (folder / "generation_config.json").is_file() else {}
    theirs = _config_of(generation | {k: v for k, v in read_json(folder / "config.json").items() if v is not None})
    state = read_weights(folder)
    tokens = _Tokens.of(theirs, folder)
    config = _our_config(theirs, state, tokens)
    weights = _Conversion(theirs, state, tokens).weights(config)
    notes = [tokens.note] if tokens.note else []
    forbidden = _forbid(weights["output.bias"], tokens, generation)
    if forbidden:
        notes.append(f"{forbidden} tokens that generation_config.json forbids are never written")
    settings = {key: generation.get(key) for key in _DECODING}
    ignored = [f"{key}={value}" for key, value in settings.items() if value not in (None, _NEUTRAL.get(key))]
    if ignored:
        notes.append(f"not imported, choose them when decoding: {', '.join(ignored)}")
    kind = {"marian": "Marian", "bart": "BART"}[theirs.model_type]
    return ImportedModel(kind, config, weights, tokens.tokenizers, tokens.is_shared, tuple(notes))


def _config_of(document: dict[str, Any]) -> _HuggingFaceConfig:
    if isinstance(document.get("eos_token_id"), list) and len(document["eos_token_id"]) == 1:
        document = document | {"eos_token_id": document["eos_token_id"][0]}
    try:
        config = _HuggingFaceConfig.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        value = "is missing" if first["type"] == "missing" else f"= {str(first['input'])[:60]!r}: {first['msg']}"
        raise ModelImportError(f"config.json: {field} {value}") from error
    for one, other in (("encoder_attention_heads", "decoder_attention_heads"), ("encoder_ffn_dim", "decoder_ffn_dim")):
        if getattr(config, one) != getattr(config, other):
            raise ModelImportError(
                f"config.json: {one}={getattr(config, one)} must equal {other}={getattr(config, other)}"
            )
    for field in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        smaller = min(config.vocab_size, config.target_size)
        if (getattr(config, field) or 0) >= smaller and (field != "bos_token_id" or config.model_type == "bart"):
            raise ModelImportError(f"config.json: {field}={getattr(config, field)} must be below vocab_size={smaller}")
    if config.pad_token_id == config.eos_token_id:
        raise ModelImportError(f"config.json: pad_token_id={config.pad_token_id} must differ from eos_token_id")
    if config.model_type == "bart" and config.bos_token_id is None:
        raise ModelImportError("config.json: bos_token_id is missing; BART's sources begin with it")
    return config


# --- tokens -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tokens:
    """The vocabularies, and which of Hugging Face's rows each of our rows is: (V,) ids of source and of target.

    Ours begin with PAD, BOS, EOS and, if there is one, UNK. Our BOS is the source's first token on one side and the
    decoder's first on the other; where that is PAD or EOS, as in Marian and BART, BOS has a row of its own, a copy.
    """

    tokenizers: SubwordTokenizers
    rows: tuple[list[int], list[int]]
    is_bos_copied: bool
    is_shared: bool
    note: str

    @classmethod
    def of(cls, config: _HuggingFaceConfig, folder: Path) -> "_Tokens":
        sizes = config.vocab_size, config.target_size
        first, start = config.source_start, config.decoder_start_token_id
        pad, eos = config.pad_token_id, config.eos_token_id
        is_copied = first != start or start in (pad, eos)
        named = _named_vocabularies(config, folder)
        special = [pad, eos] if is_copied else [pad, start, eos]
        rows = []
        for side, (size, bos) in enumerate(zip(sizes, (first, start), strict=True)):
            unk = named[side].unk if named else None
            unknown = [] if unk is None else [unk]
            rest = [index for index in range(size) if index not in {*special, *unknown}]
            rows.append([pad, bos, eos, *unknown, *rest])
        note, answer_start = "", ""
        if named is None:
            is_shared, sides = sizes[0] == sizes[1], [id_tokenizer(row[_NUM_SPECIAL:]) for row in rows]
            note = "the folder has no tokenizer that can be read, so its tokens are their numbers, separated by spaces"
        else:
            is_shared = named[0].names == named[1].names
            starts = [_NUM_SPECIAL + (each.unk is not None) for each in named]
            sides = [each.tokenizer(row[at:]) for each, row, at in zip(named, rows, starts, strict=True)]
        if first not in (start, pad, eos):  # it is an ordinary token to the decoder, whose answers begin with it
            answer_start = sides[1].tokens[rows[1].index(first) - len(rows[1])]
        is_joint = sides[0] == sides[1]
        tokenizers = SubwordTokenizers(
            joint=is_joint, source=sides[0], target=None if is_joint else sides[1], answer_start=answer_start
        )
        return cls(tokenizers, (rows[0], rows[1]), is_copied, is_shared, note)


def _named_vocabularies(config: _HuggingFaceConfig, folder: Path) -> tuple[NamedVocabulary, NamedVocabulary] | None:
    """Return the vocabularies of both sides; None if the folder has no tokenizer."""
    if config.model_type == "marian":
        return marian_tokenizers(folder, (config.vocab_size, config.target_size))
    one = bart_tokenizer(folder, config.vocab_size)
    return None if one is None else (one, one)


def _forbid(bias: torch.Tensor, tokens: _Tokens, generation: Mapping[str, Any]) -> int:
    """Make single tokens that are never to be written improbable, in place; return how many there are."""
    single = [each[0] for each in generation.get("bad_words_ids") or [] if len(each) == 1]
    ids = {*single, *(generation.get("suppress_tokens") or [])}
    rows = [row for row, index in enumerate(tokens.rows[1]) if index in ids and row != BOS_ID]
    bias[rows] = NEVER
    return len(rows)


# --- weights ------------------------------------------------------------------------------------------------------


def _our_config(theirs: _HuggingFaceConfig, state: Mapping[str, torch.Tensor], tokens: _Tokens) -> TransformerConfig:
    """Return the options of our model that stand for theirs; ValidationError if one is out of bounds."""
    is_bart = theirs.model_type == "bart"
    positions = "learned" if is_bart or not _has_sines(theirs, state) else "sinusoidal-halves"
    options: dict[str, Any] = {
        "d_model": theirs.d_model,
        "num_heads": theirs.encoder_attention_heads,
        "d_ff": theirs.encoder_ffn_dim,
        "num_encoder_layers": theirs.encoder_layers,
        "num_decoder_layers": theirs.decoder_layers,
        "max_seq_len": theirs.max_position_embeddings,
        "dropout": theirs.dropout,
        "activation_dropout": theirs.activation_dropout,
        "norm": "post",
        "positions": positions,
        "activation": {"swish": "silu"}.get(theirs.activation_function, theirs.activation_function),
        "scale_embeddings": theirs.scale_embedding,
        "embedding_norm": is_bart,
        "source_bos": is_bart,
        "tie_embeddings": _tying(theirs, state, tokens, has_own_positions=positions == "learned"),
    }
    return validated(options)


def validated(options: dict[str, Any]) -> TransformerConfig:
    """Return the ``model`` section with these options; ModelImportError if one is out of bounds."""
    try:
        return TransformerConfig.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        value = f"model.{field}={options.get(field)!r}: " if field else ""
        rule = first["ctx"]["error"] if first["type"] == "value_error" else first["msg"]
        raise ModelImportError(f"{value}{rule}") from error


def _has_sines(theirs: _HuggingFaceConfig, state: Mapping[str, torch.Tensor]) -> bool:
    """Whether the stored positions, if any, are Marian's sines."""
    shape = theirs.max_position_embeddings, theirs.d_model
    tables = [state[name] for side in ("encoder", "decoder") if (name := _POSITIONS.format(side)) in state]
    return all(tuple(each.shape) == shape and is_sinusoidal(each, in_halves=True) for each in tables)


def _tying(
    theirs: _HuggingFaceConfig, state: Mapping[str, torch.Tensor], tokens: _Tokens, *, has_own_positions: bool
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
    is_shared = theirs.model_type == "bart" or theirs.share_encoder_decoder_embeddings
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

    def __init__(self, theirs: _HuggingFaceConfig, state: Mapping[str, torch.Tensor], tokens: _Tokens) -> None:
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
        used = {_ENCODER, _DECODER, _SHARED, _OUTPUT, _BIAS, _POSITIONS.format("encoder"), _POSITIONS.format("decoder")}
        with torch.device("meta"):
            expected = Transformer(config, len(src_rows), len(tgt_rows)).state_dict()
        weights = {}
        for name, outline in expected.items():
            if name in special:
                weights[name] = special[name]()
                continue
            other = their_name(name)
            tensor = _first(self.state, [other])
            if name.endswith(".positions") and self.theirs.model_type == "bart":
                tensor = tensor[_BART_OFFSET:]
            if tensor.shape != outline.shape:
                raise ModelImportError(
                    f"tensor {other!r} has shape {tuple(tensor.shape)}; by config.json it is {tuple(outline.shape)}"
                )
            used.add(other)
            weights[name] = tensor.clone()
        if unused := sorted(self.state.keys() - used):
            raise ModelImportError(f"tensor {unused[0][:100]!r} belongs to no part of a {self.theirs.model_type} model")
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
        if self.tokens.is_bos_copied:
            bias[BOS_ID] = NEVER
        return bias


def their_name(name: str) -> str:
    """Return Hugging Face's name of one of our parameters."""
    for ours, theirs in PARAMETER_NAMES.items():
        name = name.replace(ours, theirs)
    return name
