"""Checks of how a model learns: what passes through it, gradients, first loss, size of an update."""

import math

import torch
from torch import nn

from core.models.hooks import hooks
from core.models.layers import DecoderLayer, EncoderLayer
from core.teaching.bugs import new_state
from core.teaching.doctor.finding import Finding
from core.teaching.doctor.subject import Subject
from core.training.loop import StepEvent, train
from core.training.schedules import learning_rate_at
from core.training.state import TrainingState

TRIED = 16  # sequences in the batches of a trial
TOO_UNEVEN = 1e5  # between the layers' gradients
FIRST_LOSS_ABOVE = 2.0  # nats above ln(vocabulary)
LARGE_UPDATE, TOO_LARGE_UPDATE = 0.3, 0.6  # of the size of the weights


@torch.no_grad()
def residuals(subject: Subject) -> Finding:
    """With every sublayer silenced, what goes into a stack still comes out."""
    name = "residual connections"
    layers = [each for each in subject.model.modules() if isinstance(each, EncoderLayer | DecoderLayer)]
    if not layers:
        return Finding(name, "green", "It has no sublayers to pass by.")
    src, tgt_in = subject.few
    modules = [
        module
        for layer in layers
        for module in (layer.self_attention, getattr(layer, "cross_attention", None), layer.feed_forward)
        if module is not None
    ]
    with hooks({module.hook_out.name: torch.zeros_like for module in modules}):
        stacks = {"encoder": subject.model.encode(src).states, "decoder": subject.logits(src, tgt_in)}
    blocked = [each for each, states in stacks.items() if _spread(states) < 1e-6]
    if not blocked:
        return Finding(name, "green", "With all sublayers silenced, what goes in still comes out.", 0.0)
    sentence = f"With its sublayers silenced, nothing comes out of the {' and the '.join(blocked)}: "
    return Finding(name, "red", sentence + "nothing passes by a sublayer.", len(blocked), "no-residual")


def gradients(subject: Subject) -> Finding:
    """Every parameter gets a gradient, and no layer's is out of all proportion."""
    name = "gradients"
    model = subject.model
    model.zero_grad(set_to_none=True)
    _loss(subject.state, subject).backward()
    norms = {each: 0.0 if it.grad is None else it.grad.norm().item() for each, it in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    # A constant added to all keys changes no softmax, so the bias of w_k has no gradient but rounding.
    without = [each for each, norm in norms.items() if norm == 0 and not each.endswith("w_k.bias")]
    by_layer = _by_layer(model, norms)
    uneven = max(by_layer.values()) / max(min(by_layer.values()), 1e-30)
    listed = ", ".join(f"{layer} {norm:.2g}" for layer, norm in by_layer.items())
    if without:
        sentence = f"{len(without)} of {len(norms)} parameters get no gradient, the first of them {without[0]}."
        return Finding(name, "amber", sentence, float(len(without)))
    sentence = f"Every parameter gets a gradient; norms by part: {listed}."
    if uneven > TOO_UNEVEN:
        return Finding(name, "amber", sentence + " That is very uneven: it vanishes or explodes on its way.", uneven)
    return Finding(name, "green", sentence, uneven)


@torch.no_grad()
def first_loss(subject: Subject) -> Finding:
    """Before training, no token is likelier than another: the loss is about ln(vocabulary)."""
    name = "loss before training"
    trained = subject.state
    fresh = new_state(trained.preset, pairs=trained.task.pairs_file) if subject.is_trained else trained
    loss, even = _loss(fresh, subject).item(), math.log(len(subject.state.task.tgt_vocab))
    sentence = f"Before training the loss is {loss:.2f}; ln(vocabulary) is {even:.2f}."
    if loss > even + FIRST_LOSS_ABOVE or loss < 0.75 * even:
        return Finding(name, "amber", sentence, loss)
    return Finding(name, "green", sentence, loss)


def size_of_updates(subject: Subject) -> Finding:
    """An update moves the weights by a small part of their size, at the highest learning rate too."""
    name = "size of an update"
    given = subject.state.preset.training
    trial = subject.state.preset.with_changes(
        {
            "training.batch_size": min(TRIED, given.batch_size),
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
    moved = math.sqrt(sum((new - old).square().sum().item() for new, old in zip(_weights(state), before, strict=True)))
    size = math.sqrt(sum(each.square().sum().item() for each in before))
    settings = state.preset.training
    steps = {1, max(1, settings.warmup_steps), max(1, round(0.3 * settings.steps))}
    highest = max(learning_rate_at(step, settings) for step in steps)
    share = moved / size * highest / learning_rate_at(1, settings)
    sentence = f"At the highest learning rate, {highest:.2g}, an update moves the weights by {share:.1%} of their size."
    if share > TOO_LARGE_UPDATE:
        return Finding(name, "red", sentence + " That is far too much.", share, "learning-rate-too-high")
    return Finding(name, "amber" if share > LARGE_UPDATE else "green", sentence, share)


def _spread(states: torch.Tensor) -> float:
    """Return how far places differ, of states (B, T, D)."""
    flat = states.flatten(0, 1)
    return (flat - flat[:1]).abs().max().item()


def _loss(state: TrainingState, subject: Subject) -> torch.Tensor:
    """Return the training loss of the subject's pairs under full teacher forcing."""
    state.model.eval()
    pairs = subject.pairs[:TRIED]
    return state.loss_function(
        state.model, pairs, subject.state.preset.training, teacher_forcing_ratio=1.0, generator=torch.Generator()
    )


def _by_layer(model: nn.Module, norms: dict[str, float]) -> dict[str, float]:
    """Return the joint norm of the gradients of every outermost part; of a list of layers, of each."""
    parts: dict[str, float] = {}
    for name, norm in norms.items():
        first, second, *_ = [*name.split("."), ""]
        part = f"{first}.{second}" if second.isdigit() else first
        parts[part] = math.hypot(parts.get(part, 0.0), norm)
    return parts


def _weights(state: TrainingState) -> list[torch.Tensor]:
    return [each.detach() for each in state.model.parameters()]
