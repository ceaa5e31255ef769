"""Checks of a trained model: its answers, free-running against teacher-forced results, and the loss curve."""

import math
from statistics import fmean, median, pstdev

from core.config.counting import percent
from core.evaluation.accuracy import Evaluation, evaluate
from core.evaluation.outputs import Outputs, decode_padded
from core.evaluation.produced_tokens import produced_tokens
from core.evaluation.translation_quality import copying_quality
from core.tasks import Batch, fixed_pairs
from core.teaching.doctor.finding import Finding, not_checked
from core.teaching.doctor.subject import Subject
from core.text.vocab import PAD_ID

TASK, TOKENS, GAP, CURVE = "task", "produced tokens", "free-running gap", "loss curve"
NO_REFERENCE = "the task has no single reference answer."
NUM_EVALUATED = 200
MIN_EXACT = 0.5  # minimum fraction of correct answers of a run that does its task
MIN_BLEU = 5.0  # minimum BLEU of translations that share more than single words with their references
FREQUENT = 0.01  # share of the references' tokens; a model may well never produce a rarer one
MIN_UPDATES = 100  # with fewer it is too early to judge a curve
SPIKE = 1.0  # nats above the losses before and after it
SPIKE_WINDOW = 10  # losses on each side
RISE_LENGTH = 5  # losses in a row; a rise if half of them are high
MAX_FINAL_DEVIATION = 0.3  # nats


def decode_held_out(subject: Subject) -> Outputs | None:
    """Decode held-out inputs, each for as many steps as the longest reference has; None as ``measure``."""
    if subject.state.task.open_ended:
        return None
    pairs = _held_out(subject)
    return decode_padded(subject.model, pairs, max_steps=pairs.tgt_out.shape[1])


def measure(subject: Subject, outputs: Outputs | None = None) -> Evaluation | None:
    """Evaluate a run on held-out pairs, a translation by BLEU too; None if its task has no single reference answer.

    Args:
        subject: to examine.
        outputs: the result of ``decode_held_out``, which is called for None.
    """
    outputs = outputs or decode_held_out(subject)
    if outputs is None:
        return None
    return evaluate(subject.model, outputs.pairs, task=subject.state.task, outputs=outputs)


def check_task(subject: Subject, evaluation: Evaluation | None) -> Finding:
    """The run does its task: most of its answers are right, or its translations are better than the sources."""
    name, task = TASK, subject.state.task
    if evaluation is None:
        return not_checked(name, NO_REFERENCE)
    after = f"after {subject.state.step:,} of {subject.state.preset.training.steps:,} updates"
    exact = evaluation.exact_match
    sentence = f"Of the answers to {evaluation.sequences} held-out inputs {percent(exact)} are right, {after}"
    if exact >= MIN_EXACT:
        return Finding(name, "green", f"{sentence}.", exact)
    copying = copying_quality(task, _held_out(subject))
    if copying is None or evaluation.bleu is None:
        return Finding(name, "amber", f"{sentence}: the model does not do its task.", exact)
    sentence = f"Its translations of held-out inputs have {copying.bleu_name} {evaluation.bleu:.1f}, {after}; "
    sentence += f"the sources themselves have {copying.bleu:.1f}"
    if evaluation.bleu < max(MIN_BLEU, copying.bleu):
        return Finding(name, "amber", f"{sentence}: the model does not translate.", evaluation.bleu)
    return Finding(name, "green", f"{sentence}.", evaluation.bleu)


def check_produced_tokens(subject: Subject, outputs: Outputs | None) -> Finding:
    """Every frequent token of the references is also produced."""
    name = TOKENS
    if outputs is None:
        return not_checked(name, NO_REFERENCE)
    produced = produced_tokens(subject.state.task, outputs)
    held_out = f"the references of {len(outputs.pairs)} held-out inputs"
    if not produced.missing:
        sentence = f"All {produced.in_references:,} tokens in {held_out} are also produced."
        return Finding(name, "green", sentence, 0.0)
    share = produced.missing_share
    count = len(produced.missing)
    are = "is" if count == 1 else "are"
    sentence = f"Of the {produced.in_references:,} tokens in {held_out}, {count:,} {are} never produced"
    sentence += f", {percent(share)} of all by number"
    if produced.missing[0][1] < FREQUENT * produced.total:
        return Finding(name, "green", f"{sentence}; none of them is frequent.", share)
    return Finding(name, "amber", f"{sentence}: {produced.listed()}.", share)


def check_free_running_gap(subject: Subject, evaluation: Evaluation | None = None) -> Finding:
    """Free-running exact match is as high as teacher-forced token accuracy implies.

    Args:
        subject: to examine.
        evaluation: the result of ``measure``, which is called for None.
    """
    name = GAP
    evaluation = evaluation or measure(subject)
    if evaluation is None:
        return not_checked(name, NO_REFERENCE)
    tokens = (_held_out(subject).tgt_out != PAD_ID).sum(dim=1).float().mean().item()
    expected = evaluation.token_accuracy**tokens
    sentence = (
        f"Teacher-forced, {percent(evaluation.token_accuracy)} of the tokens are correct; "
        f"free-running, {percent(evaluation.exact_match)} of the answers."
    )
    gap = evaluation.token_accuracy - evaluation.exact_match
    if expected > 0.3 and evaluation.exact_match < expected / 2:
        if evaluation.token_accuracy > 0.95:
            sentence += " The model predicts the tokens of given answers, but cannot generate answers."
        return Finding(name, "red", sentence, gap)
    return Finding(name, "green", sentence, gap)


def check_loss_curve(subject: Subject) -> Finding:
    """The training loss falls without spikes and converges."""
    name = CURVE
    points = subject.history.evenly_spaced_points() if subject.history else {"loss": []}
    losses = [loss for loss in points["loss"] if loss is not None]
    if len(losses) < MIN_UPDATES or points["step"][-1] < MIN_UPDATES:
        return not_checked(name, f"it is too early to judge, after {len(losses)} updates.")
    guessing = math.log(len(subject.state.task.tgt_vocab))
    tenth = max(1, len(losses) // 10)
    first, last = fmean(losses[:10]), fmean(losses[-tenth:])
    spikes, deviation = _num_spikes(losses), pstdev(losses[-2 * tenth :])
    sentence = f"The training loss went from {first:.2f} to {last:.2f}"
    if last > 0.9 * guessing:
        return Finding(name, "red", f"{sentence}: no better than guessing ({guessing:.2f}).", last)
    if _highest_plateau(losses) > losses[0] + SPIKE:
        return Finding(name, "amber", f"{sentence}, and rose to {max(losses):.2f} in between.", max(losses))
    if spikes > max(2, 0.01 * len(losses)):
        return Finding(name, "amber", f"{sentence}, with {spikes} spikes.", float(spikes))
    if deviation > MAX_FINAL_DEVIATION:
        return Finding(name, "amber", f"{sentence}, and still varies by {deviation:.2f} at the end.", deviation)
    return Finding(name, "green", f"{sentence}.", last)


def _held_out(subject: Subject) -> Batch:
    return fixed_pairs(subject.state.task, NUM_EVALUATED, split="validation")


def _highest_plateau(losses: list[float]) -> float:
    """Return the highest median of ``RISE_LENGTH`` consecutive losses; a single unusual batch is not a rise."""
    return max(median(losses[at : at + RISE_LENGTH]) for at in range(len(losses) - RISE_LENGTH + 1))


def _num_spikes(losses: list[float]) -> int:
    """Count losses far above the medians before and after them; a decrease from a high start is not a spike."""
    spikes = 0
    for at in range(1, len(losses) - 1):
        before, after = losses[max(0, at - SPIKE_WINDOW) : at], losses[at + 1 : at + 1 + SPIKE_WINDOW]
        spikes += losses[at] > max(median(before), median(after)) + SPIKE
    return spikes
