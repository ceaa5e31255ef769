"""Checks of how a model learns: residual connections, gradients, the initial loss, the size of an update."""

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median

import torch
from torch import nn

from core.config.counting import counted, percent
from core.models import Seq2Seq
from core.models.hooks import hooks
from core.models.layers import Layer
from core.teaching.bugs import new_state
from core.teaching.doctor.finding import Finding, not_checked
from core.teaching.doctor.subject import Subject
from core.training.loop import StepEvent, train
from core.training.schedules import learning_rate_at
from core.training.state import TrainingState

TRIAL_BATCH = 16  # sequences
MAX_GRADIENT_RATIO = 1e5  # between the gradient norms of two parts
MAX_INITIAL_EXCESS = 2.0  # nats above ln(vocabulary size)
LARGE_UPDATE, TOO_LARGE_UPDATE = 0.3, 0.6  # fractions of the norm of the weights
STEP = 1e-7  # by which parameters are moved to measure a derivative
SMALL_DERIVATIVE, MAX_DERIVATIVE_ERROR = 1e-6, 0.02  # the first is taken for 0; a step over a kink of ReLU is an error
LISTED = 8  # parts in a sentence
TINY_UPDATE = 3e-7  # the first of a usual warm-up changes ten times as much


@torch.no_grad()
def check_residuals(model: Seq2Seq, src: torch.Tensor, tgt_in: torch.Tensor) -> Finding:
    """With every sublayer's output set to zero, the input of a stack still reaches its output.

    Args:
        model: in evaluation mode.
        src, tgt_in: (B, S) and (B, T) int64.
    """
    name = "residual connections"
    layers = [module for module in model.modules() if isinstance(module, Layer)]
    if not layers:
        return not_checked(name, "the model has no sublayers.")
    outputs = [
        point.name
        for layer in layers
        for sublayer in layer.children()
        if (point := getattr(sublayer, "hook_out", None)) is not None
    ]
    with hooks(dict.fromkeys(outputs, torch.zeros_like)):
        stacks = {"encoder": model.encode(src).states, "decoder": model(src, tgt_in)}
    blocked = [stack for stack, states in stacks.items() if _spread(states) < 1e-6]
    if not blocked:
        return Finding(name, "green", "With all sublayer outputs set to zero, the input still reaches the output.", 0.0)
    sentence = (
        f"With all sublayer outputs set to zero, the input does not reach the output of the "
        f"{' and the '.join(blocked)}: residual connections are missing."
    )
    return Finding(name, "red", sentence, len(blocked), "no-residual")


def check_gradients(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Finding:
    """Every trained parameter gets a finite gradient, and the parts' gradients have comparable norms.

    Args:
        model: the gradients of its parameters are unchanged.
        loss: computes the loss of some pairs from the parameters as they are.
    """
    name = "gradients"
    trained = {each: it for each, it in model.named_parameters() if it.requires_grad}
    if not trained:
        return Finding(name, "red", "No parameter requires a gradient: training changes nothing.", 0.0)
    gradients = _gradients(loss, trained)
    if all(each is None for each in gradients):  # the model may turn them off in evaluation mode
        model.train()
        gradients = _gradients(loss, trained)
        model.eval()
    if all(each is None for each in gradients):
        sentence = f"No gradient reaches any of {counted(len(trained), 'parameter')}: training changes nothing."
        return Finding(name, "red", sentence, float(len(trained)))
    norms = {each: 0.0 if it is None else it.norm().item() for each, it in zip(trained, gradients, strict=True)}
    broken = [each for each, norm in norms.items() if not math.isfinite(norm)]
    if broken:
        sentence = f"The gradient of {len(broken)} of {len(norms)} parameters is not finite, the first is {broken[0]}."
        return Finding(name, "red", sentence, float(len(broken)))
    missing = [each for each, gradient in zip(norms, gradients, strict=True) if gradient is None]
    at_zero, waiting = _at_zero({each: it for each, it in trained.items() if each not in missing}, norms, loss)
    frozen = [each for each, it in model.named_parameters() if not it.requires_grad and not _is_table(it)]
    by_part = _norms_by_part(
        {each: norm for each, norm in norms.items() if trained[each].ndim > 1 and each not in waiting}
    )
    ratio = max(by_part.values(), default=1.0) / max(min(by_part.values(), default=1.0), 1e-30)
    listed = ", ".join(f"{part} {norm:.2g}" for part, norm in _shown(by_part).items())
    lacking = []
    if missing:
        lacking.append(f"No gradient reaches {len(missing)} of {len(norms)} parameters, the first is {missing[0]}.")
    if at_zero:
        lacking.append(
            f"The gradient of {len(at_zero)} of {len(norms)} parameters is 0 now, the first is {at_zero[0]}."
        )
    if lacking:
        return Finding(name, "amber", " ".join(lacking), float(len(missing) + len(at_zero)))
    if frozen:
        sentence = f"{counted(len(frozen), 'parameter')} with requires_grad=False, the first is {frozen[0]}."
        return Finding(name, "amber", f"Training does not change {sentence}", float(len(frozen)))
    late = f", {len(waiting)} of them once matrices that are 0 now have changed" if waiting else ""
    sentence = f"Every parameter gets a gradient{late}; norms of the matrices by part: {listed}."
    if ratio > MAX_GRADIENT_RATIO:
        return Finding(name, "amber", sentence + " They are very uneven: gradients vanish or explode.", ratio)
    return Finding(name, "green", sentence, ratio)


def _gradients(loss: Callable[[], torch.Tensor], trained: dict[str, nn.Parameter]) -> Sequence[torch.Tensor | None]:
    """Return the gradient of each parameter, None where none reaches it."""
    value = loss()
    if not value.requires_grad:
        return [None] * len(trained)
    return torch.autograd.grad(value, list(trained.values()), allow_unused=True)


def _at_zero(
    trained: dict[str, nn.Parameter], norms: dict[str, float], loss: Callable[[], torch.Tensor]
) -> tuple[list[str], list[str]]:
    """Return the matrices whose gradient is 0, and those of them that get one with the first update.

    The latter are held by matrices that are 0 now and have a gradient, as half of a new adapter; they are moved to
    measure that, and moved back. Biases do not count: one of keys, added to all of them, changes no softmax.
    """
    found = [each for each, it in trained.items() if norms[each] == 0 and it.ndim > 1]
    holding = [it for each, it in trained.items() if it.ndim > 1 and norms[each] and not it.any()]
    if not found or not holding:
        return found, []
    with torch.no_grad():
        for each in holding:
            each.copy_(torch.linspace(0.5e-2, 1.5e-2, each.numel()).view_as(each))
    try:
        gradients = torch.autograd.grad(loss(), [trained[each] for each in found], allow_unused=True)
    finally:
        with torch.no_grad():
            for each in holding:
                each.zero_()
    waiting = [each for each, it in zip(found, gradients, strict=True) if it is not None and bool(it.any())]
    return [each for each in found if each not in waiting], waiting


def check_derivatives(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Finding:
    """Gradients are derivatives of the loss: nothing between is detached, as by ``detach``, ``.data`` or ``no_grad``.

    The rows of embeddings that ``padding_idx`` keeps from being trained stay where they are.

    Args:
        model: in float64; its parameters are moved and moved back.
        loss: computes the loss from the parameters as they are.
    """
    name = "derivatives"
    trained = {each: it for each, it in model.named_parameters() if it.requires_grad}
    gradients = torch.autograd.grad(loss(), list(trained.values()), allow_unused=True)
    parts: dict[str, list[tuple[torch.Tensor, torch.Tensor | None]]] = {}  # no gradient is one of 0
    for parameter, gradient, part in zip(trained.values(), gradients, _parts(list(trained)), strict=True):
        parts.setdefault(part, []).append((parameter, gradient))
    generator = torch.Generator().manual_seed(0)
    fixed = {
        id(module.weight): module.padding_idx
        for module in model.modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.padding_idx is not None
    }
    errors: dict[str, float] = {}
    for part, pairs in parts.items():
        directions = [torch.randn(it.shape, generator=generator, dtype=it.dtype).to(it.device) for it, _ in pairs]
        for (it, _), direction in zip(pairs, directions, strict=True):
            if id(it) in fixed:
                direction[fixed[id(it)]] = 0
        moved = zip(pairs, directions, strict=True)
        expected = sum((of * by).sum().item() for (_, of), by in moved if of is not None)
        measured = _derivative(loss, [tensor for tensor, _ in pairs], directions)
        errors[part] = abs(measured - expected) / max(abs(measured), abs(expected), SMALL_DERIVATIVE)
    worst = max(errors.values(), default=0.0)
    wrong = [part for part, error in errors.items() if not error < MAX_DERIVATIVE_ERROR]
    if not wrong:
        return Finding(name, "green", "Gradients are the derivatives of the loss.", worst)
    listed = ", ".join([*wrong[:LISTED], *["…"] * (len(wrong) > LISTED)])
    sentence = (
        f"The gradients of {listed} are not the derivatives of the loss: they differ by up to {percent(worst, 0)}. "
        "Part of the computation is detached, as by detach(), .data or no_grad()."
    )
    return Finding(name, "amber", sentence, worst)


@torch.no_grad()
def _derivative(loss: Callable[[], torch.Tensor], at: list[torch.Tensor], directions: list[torch.Tensor]) -> float:
    """Return the derivative of a loss along a direction of tensors, by steps to both sides."""
    before, values = [each.clone() for each in at], []
    for step in (STEP, -STEP):
        for tensor, value, direction in zip(at, before, directions, strict=True):
            tensor.copy_(value + step * direction)
        values.append(loss().item())
    for tensor, value in zip(at, before, strict=True):
        tensor.copy_(value)
    return (values[0] - values[1]) / (2 * STEP)


@torch.no_grad()
def check_initial_loss(subject: Subject) -> Finding:
    """Before training all tokens are about equally likely, so the loss is about ln(vocabulary size)."""
    state = subject.state
    if subject.is_imported:
        return not_checked("initial loss", "the model was trained by another program.")
    untrained = new_state(state.preset, pairs=state.task.pairs_file) if subject.is_trained else state
    size = len(state.task.tgt_vocab)
    return judge_initial_loss(training_loss(untrained, subject).item(), math.log(size), size=size, tokens=0)


def judge_initial_loss(loss: float, uniform: float, *, size: int, tokens: int) -> Finding:
    """Judge the loss of an untrained model.

    Args:
        loss: of a batch.
        uniform: this loss if all tokens are equally likely.
        size: of the vocabulary.
        tokens: number of positions that count.
    """
    name, expected = "initial loss", math.log(size)
    if uniform <= 0:
        return not_checked(name, f"equally likely tokens have a loss of {uniform:.2f}, which is not above 0.")
    sentence = f"Before training the loss is {loss:.2f}; ln(vocabulary size) is {expected:.2f}."
    if abs(uniform / expected - 1) > 0.01:
        sentence = f"Before training the loss is {loss:.2f}; equally likely tokens have {uniform:.2f}."
    if tokens > 1 and abs(uniform / expected / tokens - 1) < 0.01:
        sentence += f" It is a sum over {tokens} tokens: gradients grow with the batch."
        return Finding(name, "amber", sentence, loss)
    is_near = 0.75 * uniform <= loss <= uniform * (1 + MAX_INITIAL_EXCESS / expected)
    return Finding(name, "green" if is_near else "amber", sentence, loss)


def check_update_size(subject: Subject) -> Finding:
    """An update changes weight matrices by a small fraction of their norm, even at the highest learning rate."""
    trial = subject.state.preset.with_changes(
        {
            "training.batch_size": min(TRIAL_BATCH, subject.state.preset.sequences_per_batch),
            "training.tokens_per_batch": 0,
            "training.gradient_accumulation_steps": 1,
            "training.training_sequences": 0,
            "training.validation_sequences": 1,
            "training.evaluate_every": 100_000,
        }
    )
    state = new_state(trial, pairs=subject.state.task.pairs_file)
    before = [each.detach().clone() for each in state.model.parameters()]
    for event in train(state):
        if isinstance(event, StepEvent):
            break
    settings = state.preset.training
    steps = {1, max(1, settings.warmup_steps), max(1, round(0.3 * settings.steps))}
    highest = max(learning_rate_at(step, settings) for step in steps)
    fraction = update_fraction(before, state.model.parameters())
    at_highest = None if fraction is None else fraction * highest / learning_rate_at(1, settings)
    return judge_update(at_highest, f"At the highest learning rate, {highest:.2g},")


@torch.no_grad()
def update_fraction(before: Sequence[torch.Tensor], after: Iterable[torch.Tensor]) -> float | None:
    """Return the norm of a weight matrix's change relative to the matrix: the median of the matrices that change.

    A single norm over all matrices would be dominated by a large embedding, of which a batch changes few rows. Matrices
    that were zero, as half of a new adapter is, have no norm to compare with; None if no other changes.
    """
    pairs = [
        (old.norm().item(), (new - old).norm().item()) for old, new in zip(before, after, strict=True) if old.ndim > 1
    ]
    if not all(math.isfinite(change) for _, change in pairs):
        return math.nan
    changed = [(size, change) for size, change in pairs if change]
    fractions = [change / size for size, change in changed if size]
    return median(fractions or [0.0]) if fractions or not changed else None


def judge_update(fraction: float | None, rate: str) -> Finding:
    """Judge the size of an update, with the learning rate as the beginning of a sentence."""
    name = "update size"
    if fraction is None:
        return not_checked(name, "every weight matrix that the update changes was zero before.")
    if not math.isfinite(fraction):
        return Finding(name, "red", f"{rate} an update makes weights infinite or NaN.")
    if fraction == 0:
        return Finding(name, "amber", f"{rate} an update changes no weight matrix.", fraction)
    sentence = f"{rate} an update changes a weight matrix by {fraction:.2g} of its norm (median)."
    if fraction < TINY_UPDATE:
        return Finding(name, "amber", sentence + " That is too little to learn anything.", fraction)
    if fraction > TOO_LARGE_UPDATE:
        return Finding(name, "red", sentence + " That is far too much.", fraction, "learning-rate-too-high")
    return Finding(name, "amber" if fraction > LARGE_UPDATE else "green", sentence, fraction)


def _spread(states: torch.Tensor) -> float:
    """Return the largest difference between two positions of states (B, T, D)."""
    flat = states.flatten(0, 1)
    return (flat - flat[:1]).abs().max().item()


def training_loss(state: TrainingState, subject: Subject) -> torch.Tensor:
    """Return a state's training loss on some of the subject's pairs under full teacher forcing."""
    state.model.eval()
    pairs = subject.pairs[:TRIAL_BATCH]
    return state.loss_function(
        state.model, pairs, subject.state.preset.training, teacher_forcing_ratio=1.0, generator=torch.Generator()
    )


def _is_table(parameter: torch.Tensor) -> bool:
    """Whether a frozen parameter is a fixed table of sines and cosines: all its rows have the same norm."""
    norms = parameter.detach().float().flatten(0, -2).norm(dim=-1) if parameter.ndim > 1 else parameter.new_zeros(0)
    return bool(len(norms)) and bool((norms - norms.mean()).abs().max() < 1e-3 * norms.mean())


def _norms_by_part(norms: dict[str, float]) -> dict[str, float]:
    """Return the gradient norm of each layer, and of every outermost module without its layers."""
    parts: dict[str, float] = {}
    for norm, part in zip(norms.values(), _parts(list(norms)), strict=True):
        parts[part] = math.hypot(parts.get(part, 0.0), norm)
    return parts


def _shown(norms: dict[str, float]) -> dict[str, float]:
    """Return the norms of the parts that a sentence lists; of many parts the smallest and the largest."""
    if len(norms) <= LISTED:
        return norms
    by_size = sorted(norms, key=lambda part: norms[part])
    return {part: norms[part] for part in (*by_size[: LISTED // 2], *by_size[-LISTED // 2 :])}


def _parts(paths: list[str]) -> list[str]:
    """Return the layer that each parameter belongs to, or its outermost module if that is in no list of layers.

    Modules around all of them, such as those of ``torch.compile`` and ``DistributedDataParallel``, are left out.
    """
    names = [path.split(".") for path in paths]
    modules = [each[:-1] for each in names]
    levels = zip(*modules, strict=False)
    around = next((at for at, level in enumerate(levels) if len({*level}) > 1), min(map(len, modules), default=0))
    parts = []
    for each in names:
        inner = each[around:]
        number = next((at for at, name in enumerate(inner) if name.isdigit()), 0)
        parts.append(".".join(inner[: number + 1]))
    return parts
