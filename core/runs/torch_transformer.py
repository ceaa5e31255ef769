"""Read models built on ``torch.nn.Transformer`` from a state dict, with a mapping file that says what is what.

A state dict has names and shapes, but neither the number of heads nor the kind of norm. ``propose`` guesses a mapping
from names and shapes, and from the values that most models have; the user corrects it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import torch
from pydantic import Field, ValidationError, model_validator

from core.config.sections import Activation, Norm, Section, TransformerConfig
from core.models.transformer import Transformer
from core.runs.imported_model import ImportedModel, validated
from core.runs.model_files import ModelImportError, check_weight, is_sinusoidal
from core.runs.special_ids import proposed_ids, rare_end
from core.runs.tokenizer_files import id_tokenizer, named_tokenizer, read_lines
from core.storage import bounded_yaml
from core.storage.error_messages import shortened
from core.storage.validation_errors import first_problem
from core.text.subwords import MAX_PIECES, SubwordTokenizer, SubwordTokenizers

Side = Literal["source", "target"]
_Name = Annotated[str, Field(max_length=200)]
_Id = Annotated[int, Field(ge=0)]
_FIRST = "layers.0.self_attn.in_proj_weight"
_CROSS = "layers.0.multihead_attn.in_proj_weight"
_LAYER_NAMES = {  # of ours → of theirs, in a layer of the encoder and of the decoder
    "encoder": {
        "self_attention.w_o": "self_attn.out_proj",
        "feed_forward.widen": "linear1",
        "feed_forward.narrow": "linear2",
        "norm_attention": "norm1",
        "norm_feed_forward": "norm2",
    },
    "decoder": {
        "self_attention.w_o": "self_attn.out_proj",
        "cross_attention.w_o": "multihead_attn.out_proj",
        "feed_forward.widen": "linear1",
        "feed_forward.narrow": "linear2",
        "norm_self": "norm1",
        "norm_cross": "norm2",
        "norm_feed_forward": "norm3",
    },
}
_PARTS = ("weight", "bias")
_MAX_LISTED = 30  # tensors
_USUAL_EPS = 1e-5
_NUM_SPECIAL = 4  # PAD, BOS, EOS and UNK
_ATTENTION = {"self_attention": "self_attn", "cross_attention": "multihead_attn"}
_UNSAID = ("num_heads", "norm", "activation", "scale_embeddings", "pad_id", "bos_id", "eos_id", "unk_id")
ANY_MODEL = (
    "Attention modules of another kind have other tensors, which no mapping covers; lab.attention(model, src, tgt_in) "
    "shows the heads of any model, and lab.diagnose(model, src, tgt, …) examines it"
)
_DRAFT = "--propose FILE writes a draft to correct, and --mapping FILE imports with it"
_IS_POSITION = re.compile(r"pos|(^|[._])pe($|[._])")
_IS_EMBEDDING = re.compile(r"emb|lut|tok|wte|(src|source|tgt|trg|target)\.weight$")
_IS_SOURCE = re.compile(r"src|source|enc|input")
_IS_TARGET = re.compile(r"tgt|trg|target|dec|output")


class ModelMapping(Section):
    """Which tensors are which, and what no tensor says. Names of tensors are written in full, "" for none."""

    encoder: Annotated[_Name, Field(description="what stands before layers.0 in the names of the encoder's tensors")]
    decoder: Annotated[_Name, Field(description="what stands before layers.0 in the names of the decoder's tensors")]
    source_embedding: Annotated[_Name, Field(description="embedding of source tokens")]
    target_embedding: Annotated[_Name, Field(description="embedding of target tokens; may be the source's")]
    output: Annotated[_Name, Field(description="matrix of the output layer; may be an embedding")]
    output_bias: Annotated[_Name, Field(description="bias of the output layer")] = ""
    source_positions: Annotated[_Name, Field(description="table of positions; empty for sines or none")] = ""
    target_positions: Annotated[_Name, Field(description="table of positions; may be the source's")] = ""
    sines: Annotated[bool, Field(description="sines are added to the embeddings, as in the paper")] = True
    num_heads: Annotated[int, Field(ge=1, le=32, description="attention heads; the weights do not say")] = 8
    norm: Annotated[Norm, Field(description="pre if norm_first=True; the weights do not say")] = "post"
    activation: Annotated[Activation, Field(description="of the feed-forward network; the weights do not say")] = "relu"
    scale_embeddings: Annotated[bool, Field(description="embeddings × √d_model; the weights do not say")] = True
    max_seq_len: Annotated[int, Field(ge=4, le=2_048, description="maximum sequence length")] = 512
    pad_id: Annotated[_Id, Field(description="id of the token that fills up batches")]
    bos_id: Annotated[_Id, Field(description="id of the token that begins a target")]
    eos_id: Annotated[_Id, Field(description="id of the token that ends a target")]
    unk_id: Annotated[int, Field(ge=-1, description="id of the token for unknown ones; -1 for none")] = -1
    source_bos: Annotated[bool, Field(description="sources begin with bos_id")] = True
    source_eos: Annotated[bool, Field(description="sources end with eos_id")] = True
    source_ids: Annotated[
        list[int],
        Field(description="ids of PAD, BOS, EOS and UNK in sources, -1 for none, if they differ; empty if they do not"),
    ] = []  # noqa: RUF012 - pydantic copies it
    norm_eps: Annotated[float, Field(ge=0, le=0.1, description="eps of the layer norms; the weights do not say")] = 1e-5
    dropout: Annotated[float, Field(ge=0, le=0.9, description="of a training that begins with this model")] = 0.0
    source_tokens: Annotated[
        _Name, Field(description="file of source tokens, one a line, by id; empty for numbers")
    ] = ""
    target_tokens: Annotated[_Name, Field(description="file of target tokens")] = ""

    @model_validator(mode="after")
    def _check_source_ids(self) -> "ModelMapping":
        ids = self.source_ids
        if ids and (len(ids) != _NUM_SPECIAL or min(ids) < -1 or ids[0] < 0):
            raise ValueError(f"source_ids={ids} must be four ids, those of PAD, BOS, EOS and UNK, or none")
        return self

    def ids(self, side: Side) -> tuple[int, int, int, int]:
        """Return the ids of PAD, BOS, EOS and UNK on a side; -1 for none."""
        target = self.pad_id, self.bos_id, self.eos_id, self.unk_id
        if side == "target" or not self.source_ids:
            return target
        pad, bos, eos, unk = self.source_ids
        return pad, bos, eos, unk


def propose(state: Mapping[str, torch.Tensor]) -> ModelMapping:
    """Return the mapping that names and shapes suggest, with the values that most such models have for the rest.

    Raises:
        ModelImportError: there are no layers of ``nn.TransformerEncoder`` and ``nn.TransformerDecoder``, or no
            embeddings or output layer beside them.
    """
    encoders, decoders = _stacks(state)
    if len(encoders) + len(decoders) > 2:
        raise ModelImportError(
            f"the weights have {len(encoders)} encoders and {len(decoders)} decoders of nn.Transformer; name one of "
            f"each in the mapping. {_DRAFT}"
        )
    encoder, decoder = encoders[0], decoders[0]
    width = _width(state, decoder)
    others = _outside(state, encoder, decoder)
    positions = [name for name in others if _IS_POSITION.search(name) and _table(state[name], width) is not None]
    matrices = [name for name in others if name not in positions and tuple(state[name].shape[1:]) == (width,)]
    outputs = [name for name in matrices if name.removesuffix("weight") + "bias" in state]
    embeddings = [name for name in matrices if name not in outputs]
    if not embeddings or len(outputs) > 1:
        raise ModelImportError(
            f"the weights have {len(embeddings)} embeddings and {len(outputs)} output layers with a bias, matrices of "
            f"{width} columns outside the layers; name them in the mapping. {_DRAFT}"
        )
    without_bias = [name for name in embeddings if not _IS_EMBEDDING.search(name.lower())]
    if not outputs and len(embeddings) > 1 and without_bias:  # an output layer without bias comes last
        outputs.append(without_bias[-1])
        embeddings.remove(without_bias[-1])
    source = _named(embeddings, _IS_SOURCE, embeddings[0])
    target = _named([each for each in embeddings if each != source], _IS_TARGET, source)
    learned = [name for name in positions if not _is_sines(state[name], width)]
    source_positions = _named(learned, _IS_SOURCE, learned[0]) if learned else ""
    target_positions = _named([name for name in learned if name != source_positions], _IS_TARGET, source_positions)
    lengths = [len(table) for name in positions if (table := _table(state[name], width)) is not None]
    bias = outputs[0].removesuffix("weight") + "bias" if outputs else ""
    pad, bos, eos, unk = proposed_ids(state[target], state.get(bias))
    return ModelMapping(
        encoder=encoder,
        decoder=decoder,
        source_embedding=source,
        target_embedding=target,
        output=outputs[0] if outputs else target,
        output_bias=bias if bias in state else "",
        source_positions=source_positions,
        target_positions=target_positions,
        sines=not learned,
        num_heads=next(heads for heads in (8, 4, 2, 1) if width % heads == 0),
        scale_embeddings=not learned,
        max_seq_len=min([2048, *lengths]) if lengths else 512,
        pad_id=pad,
        bos_id=bos,
        eos_id=eos,
        unk_id=unk,
    )


def _stacks(state: Mapping[str, torch.Tensor]) -> tuple[list[str], list[str]]:
    """Return what stands before ``layers.0`` in the names of tensors: of all encoders, and of all decoders.

    Raises:
        ModelImportError: there is no encoder or no decoder, so that no mapping could name one.
    """
    starts = [name.removesuffix(_FIRST) for name in state if name.endswith(_FIRST)]
    decoders = [each for each in starts if each + _CROSS in state]
    encoders = [each for each in starts if each not in decoders]
    if not decoders or not encoders:
        raise ModelImportError(
            f"the weights have {len(encoders)} encoders and {len(decoders)} decoders of nn.Transformer, by tensors "
            f"that end with {_FIRST!r}; there must be one of each. {ANY_MODEL}"
        )
    return encoders, decoders


def _width(state: Mapping[str, torch.Tensor], decoder: str) -> int:
    """Return the d_model of a decoder; ModelImportError if its first layer has none."""
    name = decoder + _FIRST
    if name not in state:
        raise ModelImportError(f"tensor {name!r} is missing")
    shape = tuple(state[name].shape)
    if len(shape) != 2 or not 0 < 3 * shape[1] == shape[0]:
        raise ModelImportError(f"tensor {name!r} has shape {shape}, not (3 × d_model, d_model)")
    return shape[1]


def _outside(state: Mapping[str, torch.Tensor], *stacks: str) -> list[str]:
    return [name for name in state if not name.startswith(stacks)]


def _named(names: list[str], pattern: re.Pattern[str], default: str) -> str:
    return next((name for name in names if pattern.search(name.lower())), names[0] if names else default)


def _table(tensor: torch.Tensor, width: int) -> torch.Tensor | None:
    """Return a table of positions as (P, D), however it is stored; None if it is none."""
    squeezed = tensor.squeeze()
    return squeezed if squeezed.dim() == 2 and squeezed.shape[1] == width else None


def _is_sines(tensor: torch.Tensor, width: int) -> bool:
    table = _table(tensor, width)
    return table is not None and width % 2 == 0 and is_sinusoidal(table)


def mapping_to_yaml(mapping: ModelMapping) -> str:
    """Format a mapping with a comment for each field."""
    values = mapping.model_dump()
    lines = [
        f"{name}: {json.dumps(values[name], ensure_ascii=False)}  # {info.description}"
        for name, info in ModelMapping.model_fields.items()
    ]
    return "\n".join(lines) + "\n"


def draft_mapping(state: Mapping[str, torch.Tensor]) -> tuple[str, str]:
    """Return a mapping to correct, as YAML that ends with the tensors outside the layers, and what is uncertain in it.

    Where ``propose`` fails, fields that nothing suggests are empty.

    Raises:
        ModelImportError: there are no layers of ``nn.TransformerEncoder`` and ``nn.TransformerDecoder``.
    """
    encoders, decoders = _stacks(state)
    try:
        mapping = propose(state)
        uncertain = unsaid(mapping)
    except ModelImportError as error:
        mapping = ModelMapping(
            encoder=encoders[0],
            decoder=decoders[0],
            source_embedding="",
            target_embedding="",
            output="",
            pad_id=0,
            bos_id=1,
            eos_id=2,
        )
        uncertain = f"{str(error).removesuffix(f' {_DRAFT}').rstrip('.')}; {unsaid(mapping)}"
    outside = [
        f"#   {shortened(name, 100)} {tuple(state[name].shape)}" for name in _outside(state, *encoders, *decoders)
    ]
    listed = outside[:_MAX_LISTED] + ["#   and others"] * (len(outside) > _MAX_LISTED)
    stacks = [f"# Stacks of layers: {', '.join(map(json.dumps, [*encoders, *decoders]))}"]
    lines = [*(stacks if len(encoders) + len(decoders) > 2 else []), "# Tensors outside the layers:", *listed]
    return mapping_to_yaml(mapping) + "\n".join(lines) + "\n", uncertain


def unsaid(mapping: ModelMapping) -> str:
    """Return the values of a proposal that the weights do not say, as a note for the user."""
    guessed = ("output",) if mapping.output and not mapping.output_bias else ()
    values = ", ".join(f"{name}={getattr(mapping, name)}" for name in (*guessed, *_UNSAID))
    return f"the weights do not say {values}: check them, and compare outputs with the model's"


def read_mapping(file: Path) -> ModelMapping:
    """Read a mapping; ModelImportError naming the first field that is not valid."""
    try:
        return parse_mapping(file.read_bytes(), label=file.name)
    except OSError as error:
        raise ModelImportError(f"{file.name} cannot be read: {error.strerror or error}") from error


def parse_mapping(text: str | bytes, *, label: str = "the mapping") -> ModelMapping:
    """Read a mapping from its YAML; ModelImportError naming the first field that is not valid."""
    try:
        return ModelMapping.model_validate(bounded_yaml.load(text))
    except bounded_yaml.BoundedYamlError as error:
        raise ModelImportError(f"{label}: {error}") from error
    except ValidationError as error:
        known = f"; known keys are {', '.join(ModelMapping.model_fields)}"
        is_unknown = error.errors()[0]["type"] == "extra_forbidden"
        raise ModelImportError(f"{label}: {first_problem(error)}{known * is_unknown}") from error


def read_torch_model(
    mapping: ModelMapping, state: Mapping[str, torch.Tensor], names: tuple[Sequence[str], Sequence[str]] = ((), ())
) -> ImportedModel:
    """Convert a state dict.

    Args:
        names: of the tokens of source and target, by id; empty if they are their numbers.

    Raises:
        ModelImportError: a tensor is missing or of another shape, or an id is not in the vocabulary.
        SubwordError: a file of tokens cannot be used.
    """
    conversion = _Conversion(mapping, state)
    src_table, tgt_table, output = map(conversion.matrix, ("source_embedding", "target_embedding", "output"))
    if len(output) != len(tgt_table):
        raise ModelImportError(
            f"output={mapping.output!r} scores {len(output)} tokens; target_embedding={mapping.target_embedding!r} has "
            f"{len(tgt_table)}"
        )
    rows = rows_of(mapping.ids("source"), len(src_table)), rows_of(mapping.ids("target"), len(tgt_table))
    sides = [
        _tokenizer(mapping.ids(side), each, tokens, getattr(mapping, f"{side}_tokens") or f"{side}_tokens")
        for side, each, tokens in zip(get_args(Side), rows, names, strict=True)
    ]
    config = conversion.config()
    is_shared = sides[0] == sides[1]
    is_one = is_shared and src_table.shape == tgt_table.shape and bool(torch.equal(src_table, tgt_table))
    is_one = is_one and torch.equal(*rows) and mapping.source_positions == mapping.target_positions
    if torch.equal(output, tgt_table):
        config = config.model_copy(update={"tie_embeddings": "all" if is_one else "output"})
    bias = conversion.tensor(mapping.output_bias, (len(output),)) if mapping.output_bias else torch.zeros(len(output))
    with torch.device("meta"):
        expected = Transformer(config, len(src_table), len(tgt_table)).state_dict()
    weights = conversion.layers(config, expected) | {
        "src_embedding.tokens.weight": src_table[rows[0]],
        "tgt_embedding.tokens.weight": tgt_table[rows[1]],
        "output.weight": output[rows[1]],
        "output.bias": bias[rows[1]],
    }
    weights = {name: weights[name].float().clone() for name in expected}
    tokenizers = SubwordTokenizers(joint=is_shared, source=sides[0], target=None if is_shared else sides[1])
    notes = [note] if (note := rare_end(bias, mapping.eos_id)) else []
    if unused := conversion.unused():
        notes.append(f"the mapping does not use {', '.join(unused[:6])}" + " and others" * (len(unused) > 6))
    return ImportedModel("nn.Transformer", config, weights, tokenizers, is_shared, tuple(notes))


class _Conversion:
    """Finds the tensors that a mapping names and brings them into our form."""

    def __init__(self, mapping: ModelMapping, state: Mapping[str, torch.Tensor]) -> None:
        self.mapping, self.state = mapping, state
        self.used: set[str] = set()
        self.width = _width(state, mapping.decoder)
        self.hidden = self.tensor(f"{mapping.decoder}layers.0.linear1.weight").numel() // self.width
        stacks = mapping.encoder, mapping.decoder
        self.without_bias = tuple(stack for stack in stacks if f"{stack}layers.0.linear1.bias" not in state)
        self.final_norms = [f"{prefix}norm.weight" in state for prefix in stacks]

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        """Return a tensor; ModelImportError if it is missing, of another shape or no weight."""
        if name not in self.state:
            raise ModelImportError(f"tensor {name!r} is missing")
        tensor = self.state[name]
        self.used.add(name)
        if shape is not None and tuple(tensor.shape) != shape:
            raise ModelImportError(f"tensor {name!r} has shape {tuple(tensor.shape)}, not {shape}")
        check_weight(name, tensor)
        return tensor

    def part(self, name: str, part: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Return a tensor of a layer or final norm; a bias that is missing, since its stack has bias=False, is zero.

        Raises:
            ModelImportError: its shape is not that of the first decoder layer's d_model and dim_feedforward.
        """
        full = f"{name}{part}"
        if part == "bias" and full not in self.state and name.startswith(self.without_bias):
            return torch.zeros(shape)
        tensor = self.tensor(full)
        if tuple(tensor.shape) != shape:
            raise ModelImportError(
                f"tensor {full!r} has shape {tuple(tensor.shape)}, not {shape}: all layers must have the "
                f"d_model and dim_feedforward of the decoder's first, {self.width} and {self.hidden}"
            )
        return tensor

    def unused(self) -> list[str]:
        """Return the names of tensors that nothing has used, but for masks and tables of sines."""
        state = self.state.items()
        masks = {name for name, tensor in state if tensor.dtype == torch.bool or not tensor.float().isfinite().all()}
        sines = {name for name, tensor in state if self.mapping.sines and _is_sines(tensor, self.width)}
        return sorted(self.state.keys() - self.used - masks - sines)

    def matrix(self, field: str) -> torch.Tensor:
        """Return the matrix that a field of the mapping names, with as many columns as the model is wide."""
        name = getattr(self.mapping, field)
        if name not in self.state:
            raise ModelImportError(f"{field}={name!r}: the weights have no tensor of this name")
        tensor = self.tensor(name)
        if tensor.dim() != 2 or tensor.shape[1] != self.width:
            raise ModelImportError(f"tensor {name!r} has shape {tuple(tensor.shape)}, not (tokens, {self.width})")
        if len(tensor) > MAX_PIECES:
            raise ModelImportError(f"{field}={name!r} has {len(tensor):,} tokens; the limit is {MAX_PIECES:,}")
        return tensor

    def config(self) -> TransformerConfig:
        """Return the options of our model."""
        mapping = self.mapping
        if self.final_norms[0] != self.final_norms[1] or (mapping.norm == "pre" and not self.final_norms[0]):
            raise ModelImportError(
                f"norm={mapping.norm!r}: the encoder {_has(self.final_norms[0])} and the decoder "
                f"{_has(self.final_norms[1])} a final norm; both need one, or neither of a post-norm model"
            )
        options: dict[str, Any] = {
            "d_model": self.width,
            "num_heads": mapping.num_heads,
            "d_ff": self.hidden,
            "num_encoder_layers": self._num_layers(mapping.encoder),
            "num_decoder_layers": self._num_layers(mapping.decoder),
            "max_seq_len": mapping.max_seq_len,
            "norm": mapping.norm,
            "final_norm": "always" if self.final_norms[0] and mapping.norm == "post" else "pre-norm",
            "positions": "learned" if mapping.source_positions else "sinusoidal" if mapping.sines else "none",
            "activation": mapping.activation,
            "scale_embeddings": mapping.scale_embeddings,
            "source_bos": mapping.source_bos,
            "source_eos": mapping.source_eos,
            "norm_eps": 0.0 if mapping.norm_eps == _USUAL_EPS else mapping.norm_eps,
            "dropout": mapping.dropout,
            "activation_dropout": mapping.dropout,
        }
        return validated(options, TransformerConfig)

    def layers(self, config: TransformerConfig, expected: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the tensors of both stacks under our names, in the shapes of ``expected``, and learned positions."""
        weights: dict[str, torch.Tensor] = {}
        for side, prefix in (("encoder", self.mapping.encoder), ("decoder", self.mapping.decoder)):
            for number in range(self._num_layers(prefix)):
                weights |= self._layer(side, f"{side}_layers.{number}", f"{prefix}layers.{number}", expected)
            if self.final_norms[0]:
                weights |= {f"{side}_norm.{part}": self.part(f"{prefix}norm.", part, (self.width,)) for part in _PARTS}
        if config.positions == "learned":
            for side, name in (("src", self.mapping.source_positions), ("tgt", self.mapping.target_positions)):
                weights[f"{side}_embedding.positions"] = self._positions(name, config.max_seq_len)
        return weights

    def _layer(
        self, side: str, ours: str, theirs: str, expected: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Return the tensors of a layer; one matrix of theirs makes queries, keys and values."""
        weights = {
            (key := f"{ours}.{name}.{part}"): self.part(f"{theirs}.{other}.", part, tuple(expected[key].shape))
            for name, other in _LAYER_NAMES[side].items()
            for part in _PARTS
        }
        for name in ("self_attention", "cross_attention")[: 1 + (side == "decoder")]:
            for part, shape in zip(_PARTS, ((3 * self.width, self.width), (3 * self.width,)), strict=True):
                joined = self.part(f"{theirs}.{_ATTENTION[name]}.in_proj_", part, shape)
                for matrix, chunk in zip("qkv", joined.chunk(3), strict=True):
                    weights[f"{ours}.{name}.w_{matrix}.{part}"] = chunk
        return weights

    def _positions(self, name: str, rows: int) -> torch.Tensor:
        tensor = self.tensor(name)
        table = _table(tensor, self.width)
        if table is None or len(table) < rows:
            raise ModelImportError(
                f"tensor {name!r} has shape {tuple(tensor.shape)}, not at least max_seq_len={rows} rows of {self.width}"
            )
        return table[:rows]

    def _num_layers(self, prefix: str) -> int:
        numbers = {
            int(match[1]) for name in self.state if (match := re.match(rf"{re.escape(prefix)}layers\.(\d+)\.", name))
        }
        if numbers != set(range(len(numbers))) or not numbers:
            raise ModelImportError(f"the layers after {prefix!r} are not numbered from 0 on")
        return len(numbers)


def _has(is_present: bool) -> str:
    return "has" if is_present else "lacks"


def rows_of(ids: Sequence[int], size: int) -> torch.Tensor:
    """Return which row of theirs each of ours is, (V,) int64, with the ids of PAD, BOS, EOS and UNK first.

    A BOS or EOS that they lack (-1), which nothing reads here, gets a copy of PAD's row.
    """
    known = [index for index in ids if index >= 0]
    for name, index in zip(("pad_id", "bos_id", "eos_id", "unk_id"), ids, strict=True):
        if index >= size or (index >= 0 and known.count(index) > 1):
            raise ModelImportError(
                f"{name}={index} must be below {size}, the number of tokens, and differ from the others"
            )
    pad, bos, eos, unk = ids
    special = [pad, *(pad if index < 0 else index for index in (bos, eos)), *([unk] if unk >= 0 else [])]
    return torch.tensor([*special, *(index for index in range(size) if index not in known)])


def names_of(mapping: ModelMapping, folder: Path) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of source and target tokens by id, from the mapping's files in a folder; () without one.

    Raises:
        SubwordError: a file cannot be read.
    """
    files = mapping.source_tokens, mapping.target_tokens
    source, target = (read_lines(folder / file) if file else () for file in files)
    return source, target


def _tokenizer(ids: Sequence[int], rows: torch.Tensor, names: Sequence[str], label: str) -> SubwordTokenizer:
    has_unk, size = ids[3] >= 0, int(rows.max()) + 1
    symbols = rows[3 + has_unk :].tolist()
    return (
        named_tokenizer(names, size, symbols, has_unk=has_unk, label=label)
        if names
        else id_tokenizer(symbols, has_unk=has_unk)
    )
