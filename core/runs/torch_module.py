"""Read a live model that is built on ``nn.Transformer``, and compare its logits with those of the model made of it.

A module says what its state dict does not: heads, norm, activation, epsilon, dropout. What is not an attribute is
measured on the user's batch: which embedding reads which side, its scale, and what is added for each position.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from core.config.counting import counted
from core.interpret.any_module.calling import check_callable, checked_number
from core.models.positions import sinusoidal_positions
from core.runs.imported_model import ImportedModel
from core.runs.model_files import ModelImportError
from core.runs.module_trace import LAYERS, TOLERANCE, ModuleTrace, compare
from core.runs.special_ids import SPECIAL, SpecialTokens, rare_end, rare_ids, special_tokens
from core.runs.torch_transformer import ANY_MODEL, ModelMapping, propose, read_torch_model
from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.teaching.doctor.any_model import AnyModel
from core.teaching.doctor.black_box import SpecialIds

_ACTIVATIONS = {"relu": (F.relu, nn.ReLU), "gelu": (F.gelu, nn.GELU), "silu": (F.silu, nn.SiLU)}


@dataclass(frozen=True)
class ModuleBatch:
    """A live model and the batch that it is compared on.

    Attributes:
        forward: ``forward(src, tgt_in)`` returns the logits; a module, or a function that adds masks.
        src, tgt_in: (B, S) and (B, T) int64; (S, B) and (T, B) with ``batch_first=False``.
        model: the module with the parameters, if ``forward`` is a function.
        batch_first: None finds out by where BOS is.
        special: ids by name, see ``core.runs.special_ids.special_tokens``.
        names: of source and target tokens, by id; empty if they are their numbers.
    """

    forward: Callable[..., Any]
    src: torch.Tensor
    tgt_in: torch.Tensor
    model: nn.Module | None = None
    batch_first: bool | None = None
    special: Mapping[str, int | None] = field(default_factory=dict)
    names: tuple[Sequence[str], Sequence[str]] = ((), ())


def read_module(batch: ModuleBatch) -> tuple[ImportedModel, tuple[str, ...]]:
    """Convert a live model.

    Returns:
        The model, and what is doubtful about it, one sentence each, which its notes have too.

    Raises:
        ModelImportError: it is not built on ``nn.Transformer``, has something that our models lack, or its logits
            differ from ours; the message says by how much and where the difference begins.
        InputError: the batch is not two matrices of ids, or does not show a special token, or one passed is no id.
    """
    model = batch.model if batch.model is not None else batch.forward
    check_callable("module", batch.forward)
    if not isinstance(model, nn.Module):
        raise InputError("module is a function: pass the nn.Module with the parameters as model=")
    if hasattr(model, "save_pretrained"):
        raise ModelImportError("this is a model of Hugging Face: model.save_pretrained(folder), then import the folder")
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    stacks = _stack(model, nn.TransformerEncoderLayer), _stack(model, nn.TransformerDecoderLayer)
    special, subject = _subject(batch, model)
    trace = ModuleTrace.of(subject, model)
    mapping, beside = _mapping(model, state, stacks, special, trace, subject)
    sizes = len(state[mapping.source_embedding]), len(state[mapping.target_embedding])
    for name, index in batch.special.items():
        _passed(name, index, most=sizes[not name.startswith("src_")] - 1)
    imported = read_torch_model(mapping, state, batch.names)
    difference = compare(imported, mapping, sizes, trace, subject)
    doubts = [*special.doubts, *beside]
    compared = f"logits equal the original's on {counted(len(subject.src), 'pair')}, by {difference:.1g} at most"
    return replace(imported, notes=(compared, f"ids of special tokens: {special}", *doubts, *imported.notes)), tuple(
        doubts
    )


def tokens_by_id(argument: str, tokens: Iterable[str] | Mapping[str, int]) -> list[str]:
    """Return the names of tokens by id; InputError if ids are missing or a name is no string."""
    if isinstance(tokens, Mapping):
        by_id = {index: name for name, index in tokens.items()}
        if by_id.keys() != set(range(len(tokens))):
            raise InputError(
                f"{argument}: the {len(tokens):,} ids of the tokens must be 0 to {len(tokens) - 1:,}, each once"
            )
        names = [by_id[index] for index in range(len(by_id))]
    elif isinstance(tokens, Iterable):
        names = list(tokens)
    else:
        raise InputError(f"{argument}={short_repr(tokens)} must be a list of strings, or a dictionary of their ids")
    for index, name in enumerate(names):
        if not isinstance(name, str):
            raise InputError(f"{argument}: the name of token {index:,} is {short_repr(name)}; it must be a string")
    return names


def _stack(model: nn.Module, kind: type[nn.Module]) -> str:
    """Return what stands before ``layers.0`` in the name of the only stack of such layers."""
    starts = [
        name.removesuffix("layers.0")
        for name, module in model.named_modules()
        if isinstance(module, kind) and name.endswith("layers.0")
    ]
    if len(starts) != 1:
        raise ModelImportError(
            f"the module has {len(starts)} stacks of nn.{kind.__name__}; there must be one. {ANY_MODEL}"
        )
    return starts[0]


def _subject(batch: ModuleBatch, model: nn.Module) -> tuple[SpecialTokens, AnyModel]:
    """Return the special tokens of the batch and the model as it is called."""
    for name, ids in (("src", batch.src), ("tgt_in", batch.tgt_in)):
        if not isinstance(ids, torch.Tensor) or ids.ndim != 2 or ids.is_floating_point() or not ids.numel():
            raise InputError(f"{name} must be a tensor of ids (B, T) int64 with at least one row")
    batch_first = batch.batch_first
    if batch_first is None:
        batch_first = bool((batch.tgt_in[:, 0] == batch.tgt_in[0, 0]).all()) or not bool(
            (batch.tgt_in[0] == batch.tgt_in[0, 0]).all()
        )
    sides = (batch.src, batch.tgt_in) if batch_first else (batch.src.t(), batch.tgt_in.t())
    given = {name: _passed(name, batch.special.get(name)) for name in SPECIAL}
    src, tgt_in = (each.cpu().long() for each in sides)
    special = special_tokens(src, tgt_in, given, _padding_idx(model))
    known = SpecialIds(special.source[0], special.target[0], special.target[1], special.target[2])
    return special, AnyModel(batch.forward, (batch.src, batch.tgt_in), known, model=model, batch_first=batch_first)


def _passed(name: str, index: int | None, *, most: int = sys.maxsize) -> int | None:
    """Return the id of a special token that was passed, None without one; -1 is for none."""
    least = -1 if name in ("unk", "src_bos", "src_eos") else 0
    return None if index is None else checked_number(name, index, least, most)


def _padding_idx(model: nn.Module) -> int | None:
    """Return the ``padding_idx`` of the embeddings; None if they have none, or several."""
    found = {each.padding_idx for each in model.modules() if isinstance(each, nn.Embedding)} - {None}
    return found.pop() if len(found) == 1 else None


# --- the mapping --------------------------------------------------------------------------------------------------


def _mapping(
    model: nn.Module,
    state: Mapping[str, torch.Tensor],
    stacks: tuple[str, str],
    special: SpecialTokens,
    trace: ModuleTrace,
    subject: AnyModel,
) -> tuple[ModelMapping, list[str]]:
    """Return the mapping of a live model, and what is doubtful about it."""
    encoder, decoder = stacks
    tables = [_embedding(trace, ids) for ids in (subject.src, subject.tgt)]
    output = _output(trace)
    if not all(tables):
        try:
            proposed = propose(state)
        except ModelImportError as error:
            raise ModelImportError(f"no nn.Embedding reads src and tgt_in; {error}") from error
        tables = [tables[0] or proposed.source_embedding, tables[1] or proposed.target_embedding]
        output = output or proposed.output.removesuffix(".weight")
    names = [f"{each}.weight" if f"{each}.weight" in state else each for each in tables]
    bias = f"{output}.bias" if f"{output}.bias" in state else ""
    positions = [
        _Positions.of(state, names, name, ids, trace.inputs[f"{stack}layers.0"], pad)
        for name, ids, stack, pad in (
            (names[0], subject.src, encoder, special.source[0]),
            (names[1], subject.tgt, decoder, special.target[0]),
        )
    ]
    learned = [each.table for each in positions if each and each.table]
    lengths = [_length(state[name]) for name in learned]
    chosen = next((each for each in positions if each), None)
    mapping = ModelMapping(
        encoder=encoder,
        decoder=decoder,
        source_embedding=names[0],
        target_embedding=names[1],
        output=f"{output}.weight" if output else names[1],
        output_bias=bias,
        source_positions=learned[0] if learned else "",
        target_positions=learned[-1] if learned else "",
        sines=bool(chosen and chosen.are_sines),
        scale_embeddings=bool(chosen and chosen.is_scaled),
        max_seq_len=min([2048, *lengths]) if lengths else 512,
        pad_id=special.target[0],
        bos_id=special.target[1],
        eos_id=special.target[2],
        unk_id=special.target[3],
        source_bos=special.source[1] >= 0,
        source_eos=special.source[2] >= 0,
        source_ids=_source_ids(special, is_one=names[0] == names[1]),
        **_settings(model, (encoder, decoder)),
    )
    scores = state.get(bias)
    note = rare_end(scores, mapping.eos_id) if scores is not None else ""
    unknown = [index for index in rare_ids(scores) if index not in special.target and not (subject.tgt == index).any()]
    beside = [note] if note else []
    if unknown and special.target[3] < 0:
        beside.append(f"token {unknown[0]} is never written: if it stands for unknown tokens, pass unk={unknown[0]}")
    return mapping, beside


def _source_ids(special: SpecialTokens, *, is_one: bool) -> list[int]:
    """Return the ids of sources, if they differ; what sources lack keeps its row in an embedding of both sides."""
    ids = [own if own >= 0 or not is_one else other for own, other in zip(special.source, special.target, strict=True)]
    return [] if ids == list(special.target) else ids


def _embedding(trace: ModuleTrace, ids: torch.Tensor) -> str:
    """Return the name of the embedding that read these ids, in either layout; "" if none did."""
    ids = ids.cpu()
    for name, calls in trace.ids.items():
        if any(torch.equal(each, ids) or torch.equal(each, ids.t()) for each in calls):
            return name
    return ""


def _output(trace: ModuleTrace) -> str:
    """Return the name of the linear map that made the logits, or what a softmax makes log-probabilities of."""
    wide = [name for name, width in trace.linear.items() if width == trace.logits.shape[-1]]
    return wide[-1] if wide else ""


@dataclass(frozen=True)
class _Positions:
    """What a model adds to its embeddings: sines, a table of this name, or nothing; are they scaled first?"""

    is_scaled: bool
    are_sines: bool = False
    table: str = ""

    @classmethod
    def of(
        cls,
        state: Mapping[str, torch.Tensor],
        tokens: Sequence[str],
        name: str,
        ids: torch.Tensor,
        states: torch.Tensor,
        pad: int,
    ) -> "_Positions | None":
        """Find out from the first layer's input, (B, T, D); None if it is none of these.

        Args:
            tokens: names of the embeddings of tokens.
            name: of the embedding that read ``ids``.
        """
        embedded, is_real = F.embedding(ids.cpu(), state[name].float()), ids.cpu() != pad
        width, length = embedded.shape[-1], ids.shape[1]
        for is_scaled in (True, False):
            added = states.float().cpu() - embedded * (width**0.5 if is_scaled else 1)

            def fits(rows: torch.Tensor, added: torch.Tensor = added) -> bool:
                return bool((added - rows)[is_real].abs().max() < TOLERANCE)

            if width % 2 == 0 and fits(sinusoidal_positions(length, width)):
                return cls(is_scaled, are_sines=True)
            for table, tensor in state.items():
                squeezed = tensor.squeeze()
                is_table = squeezed.ndim == 2 and squeezed.shape[1] == width and len(squeezed) >= length
                if is_table and table not in tokens and fits(squeezed[:length].float()):
                    return cls(is_scaled, table=table)
            if fits(torch.zeros(length, width)):
                return cls(is_scaled)
        return None


def _length(table: torch.Tensor) -> int:
    return len(table.squeeze())


def _settings(model: nn.Module, stacks: Iterable[str]) -> dict[str, Any]:
    """Return what all layers have in common; ModelImportError if one differs, or has what our layers lack."""
    layers: dict[str, Any] = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, LAYERS) and name.startswith(tuple(stacks))
    }
    found: dict[str, Any] = {}
    for name, layer in layers.items():
        attentions = [module for module in layer.children() if isinstance(module, nn.MultiheadAttention)]
        activation = [key for key, (function, kind) in _ACTIVATIONS.items() if _is(layer.activation, function, kind)]
        if not activation:
            kind = getattr(layer.activation, "__name__", type(layer.activation).__name__)
            raise ModelImportError(f"{name}: its activation is {kind}, not one of {', '.join(_ACTIVATIONS)}")
        for attention in attentions:
            own = {
                "num_heads": attention.num_heads,
                "norm": "pre" if layer.norm_first else "post",
                "activation": activation[0],
                "norm_eps": layer.norm1.eps,
                "dropout": min(layer.dropout1.p, 0.9),
            }
            for key, value in own.items():
                if found.setdefault(key, value) != value:
                    raise ModelImportError(
                        f"{name}: its {key} is {value}, and {found[key]} in the first layer; ours share one"
                    )
    return found


def _is(activation: Any, function: Any, kind: type[nn.Module]) -> bool:
    exact = getattr(activation, "approximate", "none") == "none"
    return (
        activation is function
        or activation is getattr(torch, function.__name__, None)
        or (isinstance(activation, kind) and exact)
    )
