"""Say in words what was measured. Every sentence is chosen by figures of this very run and gives them."""

from dataclasses import dataclass

from core.reports.formatting import count, percent
from core.reports.report.measurements import ReportMeasurements

SOLVED, NEARLY, PARTLY = 0.999, 0.95, 0.5
COMPARABLE = 30  # inputs or steps: of fewer a share says little
PADDING_GAP = 0.02  # of exact match: more cannot be rounding
FREE_RUNNING_GAP = 0.1
OVERFITTED = 2.0  # validation loss over training loss
GUESSING, CERTAIN = 0.9, 1.5  # loss over that of guessing: no better, and much worse
SMALL_LOSS = 0.05  # nats per token: below it, such a ratio says nothing


@dataclass(frozen=True)
class Training:
    """What is to be known of a run's training to judge it.

    Attributes:
        step, steps: updates made so far, and asked for.
        message: why it ended, if there is something to say about that.
        train_loss: of these very weights on the fixed set they were trained on, nats per token; None without one.
        guessing_loss: what guessing every token alike would cost, ln of the vocabulary's size.
    """

    step: int
    steps: int
    message: str
    train_loss: float | None
    guessing_loss: float


def verdict(measured: ReportMeasurements) -> str:
    """Say in one sentence whether the model does its task."""
    if measured.open_ended:
        return (
            "This model's task has many good answers to an input, so being exactly the reference says nothing; it "
            f"finds held-out ones likely to a perplexity of {measured.evaluation.perplexity:.2f} per token."
        )
    exact, total = measured.exact_alone, len(measured.sequences)
    right = int(measured.sequences.is_exact.sum())
    figure = f"{right:,} of {total:,} held-out inputs ({percent(exact)}) are answered exactly"
    if exact >= SOLVED:
        return f"This model does its task: {figure}."
    if exact >= NEARLY:
        return f"This model nearly does its task: {figure}; {total - right:,} are not."
    if exact >= PARTLY:
        return f"This model does its task only in part: {figure}; {total - right:,} are not."
    if exact >= 1 - NEARLY:
        return f"This model mostly fails at its task: only {figure}."
    return f"This model does not do its task: {figure}."


def findings(measured: ReportMeasurements, training: Training) -> list[str]:
    """Say what is remarkable about a run, above all what is wrong with it; [] if nothing is."""
    found = [
        _unfinished(training),
        _untrained(measured, training),
        _padding(measured),
        _stopping(measured),
        _lengths(measured),
        _own_words(measured),
        _overfitted(measured, training),
    ]
    return [sentence for sentence in found if sentence]


def _unfinished(training: Training) -> str:
    if training.step >= training.steps:
        return ""
    said = f"Its training is not finished: {training.step:,} of {training.steps:,} steps are made."
    return f"{said} It ended because: {training.message}." if training.message else said


def _untrained(measured: ReportMeasurements, training: Training) -> str:
    loss = measured.evaluation.loss
    if loss < GUESSING * training.guessing_loss:
        return ""
    if loss > CERTAIN * training.guessing_loss:
        return (
            f"It is sure of wrong tokens: its loss is {loss:.2f} nats per token, and guessing all tokens alike would "
            f"cost only {training.guessing_loss:.2f}."
        )
    return (
        f"It has learned next to nothing: its loss is {loss:.2f} nats per token, and guessing all tokens alike costs "
        f"{training.guessing_loss:.2f}."
    )


def _padding(measured: ReportMeasurements) -> str:
    batch, alone = measured.evaluation.exact_match, measured.exact_alone
    if abs(batch - alone) <= PADDING_GAP:
        return ""
    return (
        f"What it writes depends on PAD: in a padded batch {percent(batch)} of the inputs are answered exactly, "
        f"the same inputs without padding behind them {percent(alone)}. Padding should change nothing; a part of the "
        "model reads it as if it were input."
    )


def _stopping(measured: ReportMeasurements) -> str:
    if measured.stopped == 1:
        return ""
    endless = f"{percent(1 - measured.stopped)} of its answers never end." if measured.stopped else "No answer ends."
    probability = measured.sequences.eos_probability[~measured.sequences.stopped].mean()
    said = (
        f"{endless} Fed the whole right answer to these inputs it gives EOS a probability of {percent(probability)} on "
        "average."
    )
    targets = measured.targets
    if targets.with_eos == 0:
        return (
            f"{said} The reason is in its training data: of {targets.sampled:,} targets sampled from it, none ends "
            "with EOS. It was never shown when to stop, and the training loss does not count what it never shows."
        )
    return f"{said} Its training data does show it: {percent(targets.with_eos)} of the sampled targets end with EOS."


def _lengths(measured: ReportMeasurements) -> str:
    lengths = measured.targets.lengths
    if len(lengths) == 1:
        return (
            f"Everything it was trained on has {count(lengths[0], 'symbol')}: it may have learned places instead of a "
            "rule, so try it on other lengths."
        )
    by_length = measured.exact_by_length(least=COMPARABLE)
    if len(by_length) < 2 or abs(by_length.iloc[0] - by_length.iloc[-1]) < 1 - NEARLY:
        return ""
    (first, shortest), *_, (last, longest) = by_length.items()
    return (
        f"Length matters: of the inputs with {count(first, 'symbol')} {percent(shortest)} are answered exactly, of "
        f"those with {last} {percent(longest)}."
    )


def _own_words(measured: ReportMeasurements) -> str:
    accuracy, alone = measured.evaluation.token_accuracy, measured.exact_alone
    length = measured.sequences.reference.map(len).mean() + 1
    if measured.stopped < PARTLY:
        return ""  # said already
    if accuracy**length - max(alone, measured.evaluation.exact_match) < FREE_RUNNING_GAP:
        return ""
    return (
        f"Fed the true answer so far it predicts {percent(accuracy)} of the tokens, which would make about "
        f"{percent(accuracy**length)} of the answers exact if its mistakes were independent; left to its own words it "
        f"writes only {percent(alone)} exactly."
    )


def _overfitted(measured: ReportMeasurements, training: Training) -> str:
    loss, train_loss = measured.evaluation.loss, training.train_loss
    if train_loss is None or loss < max(SMALL_LOSS, OVERFITTED * train_loss):
        return ""
    return (
        f"It knows its training sentences better than the task: the loss is {train_loss:.3f} on them and {loss:.3f} on "
        "held-out ones."
    )
