"""Memory: an estimate for training by part, and the memory of this machine."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import nn

from core.config import Preset
from core.config.sections import BlocksConfig
from core.config.training import TrainingConfig
from core.evaluation.accuracy import sequence_loss
from core.evaluation.passes import DECODED, MAX_SCORED_FLOATS, evaluation_mode, sequences_per_pass
from core.models import Seq2Seq, outline_model
from core.models.additive_attention import SingleHeadAttention
from core.models.attention import MultiHeadAttention
from core.models.embeddings import Embedding
from core.models.gru import Decoder, Encoder
from core.models.layers import FeedForward
from core.models.recomputation import RecomputedModule, recompute_layers
from core.tasks import build_task
from core.text.vocab import BOS_ID
from core.training.loss import loss_of_logits
from core.training.optimizers import layer_matrices
from core.training.peak_memory import AsOnCPU, PeakMemory
from core.training.precision import computes_in_bfloat16

BYTES = 4  # of a float32
ADAM_COPIES, MUON_COPIES = 2, 1  # moments per parameter in the optimizers
LONG_SEQUENCE = 1_024  # tokens; attention to more is warned of
OTHER = "residuals, norms, output and loss"
# Growth of a process beyond PyTorch's allocations, as measured by `python -m core bench memory`.
KERNELS = 60_000_000  # bytes of library code and of kernels compiled for the shapes of batches
KEPT_BLOCKS = 0.5  # fraction of the allocated bytes: freed blocks between used ones, which the C library keeps
_PARTS: dict[type[nn.Module], str] = {
    MultiHeadAttention: "attention",
    SingleHeadAttention: "attention",
    FeedForward: "feed-forward",
    Embedding: "embeddings",
    Encoder: "recurrent layers",
    Decoder: "recurrent layers",
}
TAKE_NO_MEMORY = (  # settings of a training; presets that differ in these only are estimated once
    *("steps", "learning_rate", "muon_learning_rate", "embedding_learning_rate", "adam_beta2", "weight_decay"),
    *("schedule", "decay_power", "warmup_steps", "evaluate_every", "patience", "seed"),
)
_ROUGH_MARGIN = 10
_TOKENS_PER_STEP = 8  # of an estimated decode: one at a time takes longer to count
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True)
class MemoryEstimate:
    """Maximum growth of a process in bytes while it trains with batches of one size.

    Attributes:
        weights, gradients, optimizer: depend on the model and the optimizer only.
        activations: saved for the backward pass; linear in the batch size, partly quadratic in the length.
        temporary: short-lived tensors in addition to these: in the loss, such as copies of the logits, and in the
            backward pass. If an evaluation takes more than an update, the difference is included.
        activations_by_part: the activations by part of the model.
        weights_by_part: the weights by part.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    temporary: int
    activations_by_part: dict[str, int]
    weights_by_part: dict[str, int]

    @property
    def total(self) -> int:
        """Growth of the process in bytes: PyTorch's allocations and the overhead."""
        return self.allocated + self.overhead

    @property
    def allocated(self) -> int:
        """What PyTorch allocates: all but the overhead, in bytes."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.temporary

    @property
    def overhead(self) -> int:
        """Growth of the process in bytes beyond these tensors: libraries, kernels, and freed blocks.

        It is not counted but measured.
        """
        return KERNELS + int(KEPT_BLOCKS * self.allocated)


def estimate_memory(preset: Preset, *, batch_size: int, length: int, pairs: Path | None = None) -> MemoryEstimate:
    """Estimate the memory to train with batches of ``batch_size`` sequences of ``length`` tokens, BOS and EOS included.

    Runs an update and an evaluation on meta tensors, which have shapes but no data, and counts what they allocate.

    Args:
        length: of source and target; at most the model's ``max_seq_len``.
        pairs: the file of the task's own pairs, if it has any.
    """
    defaults = {name: TrainingConfig.model_fields[name].default for name in TAKE_NO_MEMORY}
    training = preset.training.model_copy(update=defaults)
    same = preset.model_copy(update={"name": "", "description": "", "bug": None, "training": training})
    return _estimate(same, batch_size, length, pairs)


@lru_cache(256)  # the page repeatedly estimates the presets that it lists, and a form whenever it is edited
def _estimate(preset: Preset, batch_size: int, length: int, pairs: Path | None) -> MemoryEstimate:
    model = outline_model(preset.model, build_task(preset.task, pairs=pairs)).train()
    if preset.training.gradient_checkpointing:
        recompute_layers(model)
    most = preset.training.micro_batch_tokens
    part_size = min(batch_size, math.ceil(most / length)) if most else batch_size
    ids = torch.full((part_size, length), BOS_ID, device="meta")
    by_part = activations_by_part(model, ids, preset.training)
    parts = _parts_of(model)
    weights: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = parts[name.rpartition(".")[0]]
        weights[part] = weights.get(part, 0) + parameter.numel() * BYTES
    total = sum(weights.values())
    activations = sum(by_part.values())
    # The gradients of an update's first part exist during its further ones; otherwise they replace the activations.
    kept = total if preset.training.gradient_accumulation_steps > 1 or part_size < batch_size else 0
    update, evaluation = kept + _update_peak(model, ids, preset.training), total + _evaluation_peak(preset, pairs)
    temporary = max(0, max(update, evaluation) - total - activations)
    optimizer = _optimizer_bytes(preset, model)
    return MemoryEstimate(total, total, optimizer, activations, temporary, by_part, weights)


def training_memory(preset: Preset, pairs: Path | None = None) -> MemoryEstimate:
    """Estimate the memory to train a preset, with its batches and its longest sequences."""
    length, tokens = preset.longest_sequence, preset.training.tokens_per_batch
    # Shorter sequences may fill a token budget better than the longest ones; rounding up gives an upper bound.
    batch_size = math.ceil(tokens / length) or preset.training.batch_size
    return estimate_memory(preset, batch_size=batch_size, length=length, pairs=pairs)


def machine_memory() -> int:
    """Return the memory available to this process in bytes: of the machine, or of its container if that has less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CGROUP_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def device_memory(device: str) -> int:
    """Return the memory of a device in bytes: of the GPU for "cuda", else ``machine_memory``."""
    return torch.cuda.get_device_properties(device).total_memory if device == "cuda" else machine_memory()


def memory_warning(preset: Preset, device: str, pairs: Path | None = None) -> str:
    """Return a sentence if training a preset takes more memory than a device has, or may later; "" if it does not.

    The estimate takes a second, so it is made only if a rough one comes near the memory that there is.
    """
    available = device_memory(device)
    if _ROUGH_MARGIN * _rough_bytes(preset) < available:
        return long_sequence_warning(preset)
    needed = training_memory(preset, pairs).total
    if needed <= available:
        return long_sequence_warning(preset)
    budget = "tokens_per_batch" if preset.training.tokens_per_batch else "batch_size"
    return (
        f"training takes about {needed / 1e9:,.1f} GB, and this machine has {available / 1e9:,.1f} GB: lower "
        f"training.{budget}={getattr(preset.training, budget):,}, or set training.micro_batch_tokens"
    )


def long_sequence_warning(preset: Preset) -> str:
    """Return a sentence if a model with attention can read sequences longer than ``LONG_SEQUENCE``; else ""."""
    length = preset.model.max_seq_len
    if length <= LONG_SEQUENCE or not isinstance(preset.model, BlocksConfig):
        return ""
    return (
        f"model.max_seq_len={length:,} is above {LONG_SEQUENCE:,}: memory and time of attention grow with the square "
        "of the length of a sequence; describe prints the memory by length"
    )


def _rough_bytes(preset: Preset) -> int:
    """Return the bytes of the activations of a batch, up to a factor of about ``_ROUGH_MARGIN``."""
    config, training = preset.model, preset.training
    layers = sum(getattr(config, name, 0) for name in ("num_encoder_layers", "num_decoder_layers", "num_layers"))
    tokens = training.tokens_per_batch or training.batch_size * preset.longest_sequence
    tokens = min(tokens, training.micro_batch_tokens or tokens)
    heads = getattr(config, "num_heads", 0)
    width = getattr(config, "d_model", 0) or getattr(config, "d_hidden", 0)
    return BYTES * tokens * max(1, layers) * (16 * width + 2 * heads * preset.longest_sequence)


def activations_by_part(model: Seq2Seq, ids: torch.Tensor, config: TrainingConfig) -> dict[str, int]:
    """Count the bytes of tensors that autograd saves for the backward pass, by the part of the model that saves them.

    Each tensor counts once, for the part that saves it first; parameters do not count.

    Args:
        ids: (B, T) int64, used as source and as target.
    """
    parameter_ids = {id(parameter) for parameter in model.parameters()}
    parts = _parts_of(model)
    stack = [OTHER]  # the parts of the modules that run now
    sizes: dict[int, tuple[str, int]] = {}
    alive = []  # keeps every saved tensor, because Python reuses the id of a freed object

    def save(tensor: torch.Tensor) -> torch.Tensor:
        base = tensor if tensor._base is None else tensor._base
        if id(base) not in parameter_ids and id(tensor) not in parameter_ids and id(base) not in sizes:
            alive.append(base)
            sizes[id(base)] = stack[-1], base.numel() * base.element_size()
        return tensor

    def save_input(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        save(inputs[0])

    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, RecomputedModule) and module.is_recomputed:  # keeps its input, outside of autograd
            hooks.append(module.register_forward_pre_hook(save_input))
        hooks.append(module.register_forward_pre_hook(lambda *_, part=parts[name]: stack.append(part)))
        hooks.append(module.register_forward_hook(lambda *_: stack.pop() and None, always_call=True))
    try:
        with PeakMemory(), torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            _loss(model, ids, config)
    finally:
        for hook in hooks:
            hook.remove()
    by_part: dict[str, int] = {}
    for part, size in sizes.values():
        by_part[part] = by_part.get(part, 0) + size
    return by_part


def _loss(model: Seq2Seq, ids: torch.Tensor, config: TrainingConfig) -> torch.Tensor:
    """Compute the loss as ``core.training.loss.training_loss`` does, also on meta tensors."""
    with AsOnCPU(bfloat16=computes_in_bfloat16(config, "cpu")):
        logits = model(ids, ids)
    return loss_of_logits(logits, ids, config)


def _update_peak(model: Seq2Seq, ids: torch.Tensor, config: TrainingConfig) -> int:
    """Return the peak bytes allocated by the loss and the backward pass, gradients included."""
    with PeakMemory() as peak, _layers_as_on_cpu(model, config):
        _loss(model, ids, config).backward()
        for parameter in model.parameters():
            parameter.grad = None
    return peak.highest


@contextmanager
def _layers_as_on_cpu(model: Seq2Seq, config: TrainingConfig) -> Iterator[None]:
    """Compute layers as on a CPU when they are computed again; a backward pass leaves its caller's modes."""
    mode = AsOnCPU(bfloat16=computes_in_bfloat16(config, "cpu"))
    hooks = []
    for module in model.modules():
        if isinstance(module, RecomputedModule) and module.is_recomputed:
            hooks.append(module.register_forward_pre_hook(lambda *_: mode.__enter__() and None))
            hooks.append(module.register_forward_hook(lambda *_: mode.__exit__(None, None, None), always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@lru_cache(256)  # it does not depend on the batch, of which ``describe`` estimates many
def _evaluation_peak(preset: Preset, pairs: Path | None) -> int:
    """Return the peak bytes allocated by an evaluation of the longest sequences: a scored pass, or a decode."""
    model = outline_model(preset.model, build_task(preset.task, pairs=pairs))
    length, sequences = preset.longest_sequence, preset.training.validation_sequences
    scored = torch.full(
        (min(sequences, sequences_per_pass(model, length, most=MAX_SCORED_FLOATS)), length), BOS_ID, device="meta"
    )
    together = min(sequences, DECODED, sequences_per_pass(model, length))
    decoded = torch.full((together, length), BOS_ID, device="meta")
    with torch.no_grad(), evaluation_mode(model), AsOnCPU(), PeakMemory() as peak:
        sequence_loss(model(scored, scored), scored, reduction="sum")
        memory, cache = model.encode(decoded), None
        for tokens in decoded.split(_TOKENS_PER_STEP, dim=1):
            cache = model.decode(tokens, memory, cache).cache
    return peak.highest


def _parts_of(model: nn.Module) -> dict[str, str]:
    """Return the part that each module belongs to: its own, or that of the module around it."""
    parts: dict[str, str] = {}
    for name, module in model.named_modules():
        own = next((part for kind, part in _PARTS.items() if isinstance(module, kind)), None)
        parts[name] = own or (parts[name.rpartition(".")[0]] if name else OTHER)
    return parts


def _optimizer_bytes(preset: Preset, model: nn.Module) -> int:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if preset.training.optimizer != "muon":
        return ADAM_COPIES * parameters * BYTES
    matrices = sum(parameter.numel() for parameter in layer_matrices(model)[0])
    return (MUON_COPIES * matrices + ADAM_COPIES * (parameters - matrices)) * BYTES
