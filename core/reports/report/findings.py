"""The findings of a report in sentences; each sentence is chosen by this run's measurements and states them."""

from dataclasses import dataclass

from core.config.counting import counted, percent
from core.reports.formatting import headline_text
from core.reports.report.measurements import ReportMeasurements

SOLVED, NEARLY, PARTLY = 0.999, 0.95, 0.5  # exact match
MIN_COMPARABLE = 30  # inputs or steps; a fraction of fewer is not meaningful
PADDING_GAP = 0.02  # difference in exact match that rounding cannot explain
BLEU_PADDING_GAP = 1.0  # the same of BLEU, 0-100
FREE_RUNNING_GAP = 0.1
OVERFITTING_RATIO = 2.0  # validation loss / training loss
GUESSING, CONFIDENTLY_WRONG = 0.9, 1.5  # loss / loss of a uniform guess
SMALL_LOSS = 0.05  # nats per token; below it, the ratio is not meaningful


@dataclass(frozen=True)
class TrainingOutcome:
    """The facts about a run's training that the findings use.

    Attributes:
        step: updates made so far.
        steps: updates planned.
        message: why training ended, if there is a message.
        train_loss: loss of these weights on the fixed training set, nats per token; None without such a set.
        guessing_loss: loss of a uniform guess: ln of the vocabulary size.
        overfitting: see ``History.overfitting``.
        stopped_early: whether it ended before its last step because its patience was over.
    """

    step: int
    steps: int
    message: str
    train_loss: float | None
    guessing_loss: float
    overfitting: str = ""
    stopped_early: bool = False


def verdict(measurements: ReportMeasurements) -> str:
    """Return one sentence on how well the model solves its task, by what ``core.evaluation.headline`` says decides."""
    first, total = measurements.headline.measures[0], len(measurements.sequences)
    if first == "perplexity":
        return (
            "This task has no single reference answer, so exact match says nothing; the model's perplexity on "
            f"held-out data is {measurements.evaluation.perplexity:.2f} per token."
        )
    if first == "bleu" and measurements.quality and measurements.copying:
        quality, copying = measurements.quality, measurements.copying
        sentence = (
            f"This model's translations have {quality.bleu_name} {quality.bleu:.1f} and chrF {quality.chrf:.1f} on "
            f"{counted(total, 'held-out input')}, decoded greedily; the sources themselves have "
            f"{copying.bleu:.1f} and {copying.chrf:.1f}."
        )
        is_alone = len(measurements.headline.measures) == 1
        return sentence if is_alone else f"{sentence} {_exact_answers(measurements)} are answered exactly."
    if first in ("error_rate", "token_error_rate"):
        return f"{_error_rates(measurements)}."
    sentence = _by_exact_match(measurements)
    if not measurements.quality:
        return sentence
    quality = measurements.quality
    return f"{sentence} {quality.bleu_name} is {quality.bleu:.1f}, chrF {quality.chrf:.1f}."


def _exact_answers(measurements: ReportMeasurements) -> str:
    correct, total = int(measurements.sequences.is_exact.sum()), len(measurements.sequences)
    return f"{correct:,} of {total:,} held-out inputs ({percent(measurements.exact_match)})"


def _error_rates(measurements: ReportMeasurements) -> str:
    """Return the error rate that decides, and how many answers are right."""
    rate = headline_text(measurements.figures[:1])
    if measurements.headline.measures[0] == "token_error_rate":
        return (
            f"This model has {rate}: edits to the references, for each of their tokens, on held-out inputs; "
            f"{_exact_answers(measurements)} are answered exactly"
        )
    return f"This model has {rate}: {_exact_answers(measurements)} are answered with one of their references"


def _by_exact_match(measurements: ReportMeasurements) -> str:
    exact, total = measurements.exact_match, len(measurements.sequences)
    correct = int(measurements.sequences.is_exact.sum())
    figure = f"{_exact_answers(measurements)} are answered exactly"
    if exact >= SOLVED:
        return f"This model solves its task: {figure}."
    if exact >= NEARLY:
        return f"This model nearly solves its task: {figure}; {total - correct:,} are not."
    if exact >= PARTLY:
        return f"This model solves its task only in part: {figure}; {total - correct:,} are not."
    if exact >= 1 - NEARLY:
        return f"This model mostly fails at its task: only {figure}."
    return f"This model does not solve its task: {figure}."


def findings(measurements: ReportMeasurements, training: TrainingOutcome) -> list[str]:
    """Return sentences about notable properties of a run, mostly problems; [] if there are none."""
    sentences = [
        _unfinished(training),
        _not_learned(measurements, training),
        _no_better_than_copying(measurements),
        _depends_on_padding(measurements),
        _does_not_stop(measurements),
        _depends_on_length(measurements),
        _free_running_gap(measurements),
        _overfitting(measurements, training),
        training.overfitting,
    ]
    return [sentence for sentence in sentences if sentence]


def _unfinished(training: TrainingOutcome) -> str:
    if training.step >= training.steps:
        return ""
    if training.stopped_early:
        return f"Training {training.message}; {training.steps:,} steps were planned."
    sentence = f"Training is not finished: {training.step:,} of {training.steps:,} steps are done."
    return f"{sentence} The run's message: {training.message}." if training.message else sentence


def _not_learned(measurements: ReportMeasurements, training: TrainingOutcome) -> str:
    loss = measurements.evaluation.loss
    if loss < GUESSING * training.guessing_loss:
        return ""
    if loss > CONFIDENTLY_WRONG * training.guessing_loss:
        return (
            f"The model is confident in wrong tokens: its loss is {loss:.2f} nats per token, and a uniform guess would "
            f"have only {training.guessing_loss:.2f}."
        )
    return (
        f"The model has learned almost nothing: its loss is {loss:.2f} nats per token, and a uniform guess has "
        f"{training.guessing_loss:.2f}."
    )


def _no_better_than_copying(measurements: ReportMeasurements) -> str:
    quality, copying = measurements.quality, measurements.copying
    if quality is None or copying is None or quality.bleu > copying.bleu:
        return ""
    return (
        f"The translations are no better than the sources themselves: {quality.bleu_name} {quality.bleu:.1f}, and "
        f"{copying.bleu:.1f} for copying."
    )


def _depends_on_padding(measurements: ReportMeasurements) -> str:
    padding, quality = measurements.padding, measurements.quality
    of = f"of the first {counted(padding.sequences, 'input')}"
    if measurements.headline.is_bleu_first and quality:
        alone, padded = padding.bleu_alone, padding.bleu_padded
        if alone is None or padded is None or abs(padded - alone) <= BLEU_PADDING_GAP:
            return ""
        found = f"in padded batches, {quality.bleu_name} {of} is {padded:.1f}, without padding {alone:.1f}"
    elif abs(padding.padded - padding.alone) <= PADDING_GAP:
        return ""
    else:
        found = (
            f"in padded batches, {percent(padding.padded)} {of} are answered exactly, without padding "
            f"{percent(padding.alone)}"
        )
    return (
        f"The output depends on padding: {found}. Padding should make no difference; some part of the model attends to "
        "PAD as if it were input."
    )


def _does_not_stop(measurements: ReportMeasurements) -> str:
    if measurements.stopped == 1:
        return ""
    never = (
        f"{percent(1 - measurements.stopped)} of the outputs never end" if measurements.stopped else "No output ends"
    )
    probability = measurements.sequences.eos_probability[~measurements.sequences.stopped].mean()
    sentence = (
        f"{never}. Given the complete reference answer to these inputs, the model predicts EOS with a probability of "
        f"{percent(probability)} on average."
    )
    targets = measurements.targets
    if targets.with_eos == 0:
        return (
            f"{sentence} The cause is the training data: of {targets.sampled:,} training targets sampled, none ends "
            "with EOS. The model never saw an end, and the training loss does not measure what the data never show."
        )
    if targets.with_eos < PARTLY:
        return (
            f"{sentence} The cause is the training data: of {targets.sampled:,} training targets sampled, only "
            f"{percent(targets.with_eos)} end with EOS."
        )
    return f"{sentence} The training data do show it: {percent(targets.with_eos)} of the sampled targets end with EOS."


def _depends_on_length(measurements: ReportMeasurements) -> str:
    lengths = measurements.targets.lengths
    if len(lengths) == 1:
        return (
            f"Every training input has {counted(lengths[0], 'symbol')}: the model may have learned fixed positions "
            "instead of a rule, so try it on other lengths."
        )
    by_length = measurements.exact_by_length(min_count=MIN_COMPARABLE)
    if len(by_length) < 2 or measurements.headline.is_bleu_first:
        return ""
    (first, shortest), *_, (last, longest) = by_length.items()
    if abs(shortest - longest) < 1 - NEARLY:
        return ""
    return (
        f"Accuracy depends on length: of the inputs with {counted(first, 'symbol')}, {percent(shortest)} are answered "
        f"exactly, of those with {last}, {percent(longest)}."
    )


def _free_running_gap(measurements: ReportMeasurements) -> str:
    accuracy, exact = measurements.evaluation.token_accuracy, measurements.exact_match
    length = measurements.sequences.reference.map(len).mean() + 1
    if measurements.stopped < PARTLY or measurements.headline.is_bleu_first:
        return ""  # ``_does_not_stop`` explains it; a translation has many good answers
    if accuracy**length - max(exact, measurements.padding.padded) < FREE_RUNNING_GAP:
        return ""
    return (
        f"Teacher-forced token accuracy is {percent(accuracy)}, which would make about {percent(accuracy**length)} of "
        f"the answers exact if errors were independent; free-running, only {percent(exact)} are exact."
    )


def _overfitting(measurements: ReportMeasurements, training: TrainingOutcome) -> str:
    loss, train_loss = measurements.evaluation.loss, training.train_loss
    if train_loss is None or loss < max(SMALL_LOSS, OVERFITTING_RATIO * train_loss):
        return ""
    return (
        f"The model is overfitting: the loss is {train_loss:.3f} on its training set and {loss:.3f} on held-out data."
    )
