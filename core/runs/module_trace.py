"""What the modules of a live model compute on a batch, and how far the model made of it is from that."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from core.config.sections import TransformerConfig
from core.interpret.any_module.calling import ModelOutputError
from core.interpret.any_module.kept_states import computing_in, examined
from core.models.hooks import hooks
from core.models.transformer import Transformer
from core.runs.imported_model import ImportedModel
from core.runs.model_files import ModelImportError
from core.runs.torch_transformer import ModelMapping, rows_of
from core.teaching.doctor.any_model import AnyModel
from core.teaching.doctor.black_box import NotCheckableError, is_masked
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

LAYERS = nn.TransformerEncoderLayer, nn.TransformerDecoderLayer
TOLERANCE = 1e-4  # of states and log-probabilities, relative to their standard deviation if that is larger


@dataclass
class ModuleTrace:
    """What a live model computed in float32 and evaluation mode, batch first and on the CPU.

    Attributes:
        ids: of each embedding, the ids that it read in each call, as they came; one of both sides reads twice.
        inputs, outputs: of each layer, (B, T, D) float32.
        linear: the width of each linear map's output, in the order of the calls.
        logits: (B, T, V) float32.
    """

    ids: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    outputs: dict[str, torch.Tensor] = field(default_factory=dict)
    linear: dict[str, int] = field(default_factory=dict)
    logits: torch.Tensor = field(default_factory=lambda: torch.empty(0))

    @classmethod
    def of(cls, subject: AnyModel, model: nn.Module) -> "ModuleTrace":
        """Run the batch through a model; ModelImportError if it does not return logits."""
        trace = cls()
        recorders: tuple[tuple[type[nn.Module], Callable[..., None]], ...] = (
            (nn.Embedding, trace._embedding),
            (nn.Linear, trace._linear),
            *((each, trace._layer) for each in LAYERS),
        )
        with ExitStack() as stack:
            stack.enter_context(examined(model))
            stack.enter_context(computing_in(torch.float32, model))
            places: dict[nn.Module, list[str]] = {}
            for name, module in model.named_modules(remove_duplicate=False):
                places.setdefault(module, []).append(name)
            for module, names in places.items():
                for kind, record in recorders:
                    if isinstance(module, kind):
                        handle = module.register_forward_hook(partial(record, names), with_kwargs=True)
                        stack.callback(handle.remove)
            try:
                trace.logits = subject.logits(subject.src, subject.tgt).float().cpu()
            except (NotCheckableError, ModelOutputError) as error:
                raise ModelImportError(str(error)) from error
        return trace

    def _embedding(self, names: list[str], module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        self.ids.setdefault(names[0], []).append(args[0].detach().cpu())

    def _linear(self, names: list[str], module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        self.linear.pop(names[0], None)
        self.linear[names[0]] = output.shape[-1]

    def _layer(self, names: list[str], module: Any, args: tuple, kwargs: dict[str, Any], output: torch.Tensor) -> None:
        name = names.pop(0)
        names.append(name)  # a layer in several places of a stack is called once for each, in their order
        given = args[0] if args else kwargs["src" if "src" in kwargs else "tgt"]
        for kept, states in ((self.inputs, given), (self.outputs, output)):
            kept[name] = (states if module.self_attn.batch_first else states.transpose(0, 1)).detach().float().cpu()


@dataclass(frozen=True)
class _Stage:
    """States of the same tokens in both models, (B, T, D) float, and which are not PAD, (B, T) bool."""

    name: str
    ours: torch.Tensor
    theirs: torch.Tensor
    is_real: torch.Tensor

    @property
    def differences(self) -> torch.Tensor:
        """The largest difference of each token that is not PAD, (B, T) float; PAD's are 0."""
        change = torch.where(self.ours == self.theirs, 0.0, (self.ours - self.theirs).abs())  # also of infinities
        return change.nan_to_num(torch.inf).amax(dim=-1).masked_fill(~self.is_real, 0.0)

    @property
    def is_equal(self) -> bool:
        """Whether rounding explains the differences."""
        theirs = self.theirs[self.is_real]
        scale = theirs[theirs.isfinite()].std().item()
        return self.differences.max().item() <= TOLERANCE * max(1.0, scale)


def compare(
    imported: ImportedModel, mapping: ModelMapping, sizes: tuple[int, int], trace: ModuleTrace, subject: AnyModel
) -> float:
    """Return the largest difference of log-probabilities between two models.

    Args:
        sizes: tokens of source and target in the live model.

    Raises:
        ModelImportError: it is larger than rounding; the message says how large, and where the difference begins.
    """
    stages = list(_stages(imported, mapping, sizes, trace, subject))
    largest = stages[-1].differences.max().item()
    if stages[-1].is_equal:
        return largest
    first = next(each for each in stages if not each.is_equal)
    has_pad = (~first.is_real).any(dim=1)
    is_wrong = first.differences.amax(dim=1) > 0
    cause = ""
    if bool(has_pad.any()) and not bool(first.differences[~has_pad].gt(TOLERANCE).any()) and bool(is_wrong.any()):
        cause = ", only in rows with PAD, to which the lab's models never attend"
    raise ModelImportError(
        f"the imported model is not the module: log-probabilities differ by up to {largest:.2g}. The difference begins "
        f"in {first.name}{cause}. If training passes masks to the module, pass a function that adds them, and the "
        "module as model="
    )


def _stages(
    imported: ImportedModel, mapping: ModelMapping, sizes: tuple[int, int], trace: ModuleTrace, subject: AnyModel
) -> Iterator[_Stage]:
    """Yield the states of both models from the embeddings to the log-probabilities."""
    rows = rows_of(mapping.ids("source"), sizes[0]), rows_of(mapping.ids("target"), sizes[1])
    config = imported.config
    assert isinstance(config, TransformerConfig)  # noqa: S101 - nn.Transformer is one
    model = Transformer(config, len(rows[0]), len(rows[1])).eval()
    model.load_state_dict(imported.weights)
    src, index = _our_source(subject.src.cpu(), mapping, rows[0])
    tgt_in = _our_ids(rows[1])[subject.tgt.cpu()]
    states: dict[str, torch.Tensor] = {}
    counts = {"encoder": config.num_encoder_layers, "decoder": config.num_decoder_layers}
    names = [f"{side}_layers.{number}.hook_resid_" for side, count in counts.items() for number in range(count)]
    points = [f"{name}{end}" for name in names for end in ("pre", "post")]
    with torch.no_grad(), hooks({point: partial(states.__setitem__, point) for point in points}):
        logits = model(src, tgt_in)
    real = {
        "encoder": subject.src.cpu() != subject.special.src_pad,
        "decoder": subject.tgt.cpu() != subject.special.tgt_pad,
    }
    for side, prefix in (("encoder", mapping.encoder), ("decoder", mapping.decoder)):
        for number in range(counts[side]):
            pre, post = (states[f"{side}_layers.{number}.hook_resid_{end}"] for end in ("pre", "post"))
            if side == "encoder":
                pre, post = (each.gather(1, index[..., None].expand(-1, -1, each.shape[-1])) for each in (pre, post))
            theirs = f"{prefix}layers.{number}"
            of = "source" if side == "encoder" else "target"
            name = f"the input of {side} layer {number + 1}" if number else f"the embeddings of the {of}"
            yield _Stage(name, pre, trace.inputs[theirs], real[side])
            yield _Stage(f"{side} layer {number + 1}", post, trace.outputs[theirs], real[side])
    theirs_of_tokens = _log_probs(trace.logits[..., rows[1]])
    yield _Stage("the output layer", _log_probs(logits), theirs_of_tokens, real["decoder"])


def _log_probs(scores: torch.Tensor) -> torch.Tensor:
    """Return log-probabilities of logits, log-probabilities or probabilities (B, T, V); -inf where they are masked."""
    is_probability = bool((scores >= 0).all()) and torch.allclose(scores.sum(dim=-1), torch.ones(()), atol=1e-3)
    found = scores.log() if is_probability else scores.log_softmax(dim=-1)
    return found.masked_fill(is_masked(found), -torch.inf)


def _our_ids(rows: torch.Tensor) -> torch.Tensor:
    """Return our id of each of theirs, the first if a row was copied."""
    ids = torch.zeros(int(rows.max()) + 1, dtype=torch.int64)
    for ours, theirs in reversed(list(enumerate(rows.tolist()))):
        ids[theirs] = ours
    return ids


def _our_source(src: torch.Tensor, mapping: ModelMapping, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sources as we write them, with BOS and EOS, and the position there of each of their tokens, (B, S)."""
    ids = _our_ids(rows)[src]
    index = torch.arange(ids.shape[1]).expand_as(ids)
    if not mapping.source_bos:
        ids, index = nn.functional.pad(ids, (1, 0), value=BOS_ID), index + 1
    if not mapping.source_eos:
        ids = nn.functional.pad(ids, (0, 1), value=PAD_ID)
        end = torch.where(ids != PAD_ID, torch.arange(ids.shape[1]), -1).amax(dim=1) + 1
        ids = ids.scatter(1, end[:, None], EOS_ID)
    return ids, index
