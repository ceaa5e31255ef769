"""Checks of a trained model: the curve of its loss, and what it writes by itself beside what it predicts."""

import math
from statistics import fmean, median, pstdev

from core.evaluation.accuracy import evaluate
from core.tasks import fixed_pairs
from core.teaching.doctor.finding import Finding
from core.teaching.doctor.subject import Subject
from core.text.vocab import PAD_ID

EVALUATED = 200
EARLY = 100  # steps that are too few to judge a curve by
SPIKE = 1.0  # nats above the losses before it and above those after it
AROUND = 10  # of them, on either side
IN_A_ROW = 5  # losses that are a rise, if half of them are high
RESTLESS = 0.3  # nats


def gap(subject: Subject) -> Finding:
    """Answers written freely are as good as teacher-forced accuracy promises."""
    name = "teacher-forced against free-running"
    if subject.state.task.open_ended:
        return Finding(name, "green", "Many answers are as good, so exact match says nothing.")
    pairs = fixed_pairs(subject.state.task, EVALUATED, split="validation")
    found = evaluate(subject.model, pairs)
    tokens = (pairs.tgt_out != PAD_ID).sum(dim=1).float().mean().item()
    promised = found.token_accuracy**tokens
    sentence = (
        f"Teacher-forced, {found.token_accuracy:.1%} of the tokens are right; "
        f"free-running, {found.exact_match:.1%} of the answers."
    )
    if promised > 0.3 and found.exact_match < promised / 2:
        too_good = " It predicts what it is shown, and cannot write it." if found.token_accuracy > 0.95 else ""
        return Finding(name, "red", sentence + too_good, found.token_accuracy - found.exact_match)
    return Finding(name, "green", sentence, found.token_accuracy - found.exact_match)


def loss_curve(subject: Subject) -> Finding:
    """The loss falls from where it began, without spikes, and comes to rest."""
    name = "curve of the loss"
    points = subject.history.points() if subject.history else {"loss": []}
    losses = [loss for loss in points["loss"] if loss is not None]
    if len(losses) < EARLY or points["step"][-1] < EARLY:
        return Finding(name, "green", f"Too early to tell: {len(losses)} updates.")
    even = math.log(len(subject.state.task.tgt_vocab))
    tenth = max(1, len(losses) // 10)
    first, last = fmean(losses[:10]), fmean(losses[-tenth:])
    ending = losses[-2 * tenth :]
    spikes, restless = _spikes(losses), pstdev(ending)
    sentence = f"The training loss went from {first:.2f} to {last:.2f}"
    if last > 0.9 * even:
        return Finding(name, "red", f"{sentence}: flat, no better than guessing ({even:.2f}).", last)
    if _highest(losses) > losses[0] + SPIKE:
        return Finding(name, "amber", f"{sentence}, and rose to {max(losses):.2f} on its way.", max(losses))
    if spikes > max(2, 0.01 * len(losses)):
        return Finding(name, "amber", f"{sentence}, with {spikes} spikes.", float(spikes))
    if restless > RESTLESS:
        return Finding(name, "amber", f"{sentence} and swings by {restless:.2f} at the end.", restless)
    return Finding(name, "green", f"{sentence}.", last)


def _highest(losses: list[float]) -> float:
    """Return the highest that a curve came to and stayed: one batch of another kind is no rise."""
    return max(median(losses[place : place + IN_A_ROW]) for place in range(len(losses) - IN_A_ROW + 1))


def _spikes(losses: list[float]) -> int:
    """Count losses far above the median of those before and of those after: a fall from high up is no spike."""
    found = 0
    for place in range(1, len(losses) - 1):
        before, after = losses[max(0, place - AROUND) : place], losses[place + 1 : place + 1 + AROUND]
        found += losses[place] > max(median(before), median(after)) + SPIKE
    return found
