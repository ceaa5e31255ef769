"""The attention section of a report: four questions, answered from the run's own decoding steps.

The questions are those of Bahdanau et al. 2015, section 5.2, for one head: the head of the last layer with the most
attention on the correct source tokens.
"""

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from core.config.counting import counted, percent
from core.interpret.head_scores import HeadScore, best_head_of_layer
from core.reports.report.findings import MIN_COMPARABLE
from core.reports.report.measurements import ReportMeasurements
from core.text.pieces import piece_name

CLEAR, PARTIAL = 0.9, 0.5  # fraction of steps with the largest weight at the most frequent offset
MIN_GAIN = 0.05  # difference in token accuracy worth a sentence
MAX_MISALIGNED_SHOWN = 5
SHARED_WORDS = (
    "In a translation only the words that input and output share have a correct source token: numbers, identifiers and "
    "names that occur once on each side."
)
ONLY_SOURCE = (
    "This model reads its input and its own output with the same heads. The largest weight and the entropy are those "
    "of the weights on the input."
)


@dataclass(frozen=True)
class Answer:
    """A question with its answer: sentences, and optionally a table with column names in the first row."""

    question: str
    sentences: list[str]
    table: list[list[str]] | None = None


def best_head(measurements: ReportMeasurements) -> HeadScore | None:
    """Return the head that the answers are about; None if the model has no cross-attention to score."""
    scores = measurements.head_scores()
    return best_head_of_layer(scores, max(score.layer for score in scores)) if scores else None


def answer_questions(measurements: ReportMeasurements) -> list[Answer]:
    """Answer the four questions; [] if the model has no cross-attention to score."""
    head = best_head(measurements)
    if head is None:
        return []
    steps = measurements.steps[(measurements.steps.layer == head.layer) & (measurements.steps["head"] == head.head)]
    aligned = steps[steps.gold_column >= 0]
    pattern, alignment = _pattern(head, aligned, steps), _alignment(measurements, aligned)
    if measurements.reads_output:
        pattern = replace(pattern, sentences=[ONLY_SOURCE, *pattern.sentences])
    if measurements.has_subwords:  # a translation is not right or wrong token by token
        return [replace(pattern, sentences=[SHARED_WORDS, *pattern.sentences]), alignment]
    return [pattern, alignment, _usefulness(measurements, aligned), _first_and_last_steps(measurements, steps)]


def _pattern(head: HeadScore, aligned: pd.DataFrame, steps: pd.DataFrame) -> Answer:
    offsets = (aligned.argmax_column - aligned.gold_column).value_counts(normalize=True)
    offset, fraction = int(offsets.index[0]), float(offsets.iloc[0])
    sentences = [
        _pattern_summary(offset, fraction),
        f"Over {counted(len(aligned), 'step')}, {percent(head.attention_mass)} of its attention is on the correct "
        f"source token; uniform attention would give {percent(head.uniform_mass)}.",
        f"The largest weight is most often {_describe_offset(offset)} ({percent(fraction)} of the steps).",
        "The table gives the entropy of the weights by length: 0 is all on one token, 1 is uniform.",
    ]
    by_length = steps[steps.step <= steps.length].groupby("length")
    rows = [[str(length), f"{group.entropy.mean():.2f}", _mean_mass(group)] for length, group in by_length]
    table = [["symbols", "entropy", "attention on the correct source token"], *rows]
    return Answer("Does the attention show a pattern?", sentences, table)


def _pattern_summary(offset: int, fraction: float) -> str:
    follows = "follows the task's gold alignment" + ("" if offset == 0 else f", {_describe_offset(offset)}")
    if fraction >= CLEAR:
        return f"Yes, a clear one: the head {follows}."
    if fraction >= PARTIAL:
        return f"In part: the head often {follows}, but not reliably."
    return "None that follows the task: at most steps the head attends elsewhere than to the correct source token."


def _describe_offset(offset: int) -> str:
    if offset == 0:
        return "on the correct source token itself"
    return f"{counted(abs(offset), 'token')} to the {'right' if offset > 0 else 'left'} of the correct source token"


def _alignment(measurements: ReportMeasurements, aligned: pd.DataFrame) -> Answer:
    question = "Does it align the output with the input?"
    misaligned = aligned[aligned.argmax_column != aligned.gold_column]
    accuracy = percent(1 - len(misaligned) / len(aligned))
    sentences = [
        f"At {accuracy} of {counted(len(aligned), 'step')}, the largest weight is on the correct source token."
    ]
    if misaligned.empty:
        return Answer(question, [*sentences, "No step is misaligned."])
    shown = misaligned.head(MAX_MISALIGNED_SHOWN)
    sentences.append(f"{counted(len(misaligned), 'step')} are misaligned; the table shows the first {len(shown)}.")
    rows = [_misaligned_row(measurements, step) for step in shown.itertuples()]
    columns = ["input", "step", "correct source token", "largest weight on", "output token"]
    return Answer(question, sentences, [columns, *rows])


def _misaligned_row(measurements: ReportMeasurements, step: Any) -> list[str]:
    sequence: Any = measurements.sequences.loc[step.sequence]
    name = piece_name if measurements.has_subwords else str
    produced = name(sequence.output[step.step]) if step.step < len(sequence.output) else "EOS"
    symbols = list(map(name, sequence.input))
    return [
        sequence.input_text if measurements.has_subwords else " ".join(symbols),
        str(step.step + 1),
        _column_name(step.gold_column, symbols),
        _column_name(step.argmax_column, symbols),
        produced if measurements.has_subwords else f"{produced} ({'correct' if step.is_correct else 'wrong'})",
    ]


def _column_name(column: int, symbols: list[str]) -> str:
    if column == 0:
        return "BOS"
    return "EOS" if column > len(symbols) else f"{symbols[column - 1]} (position {column})"


def _usefulness(measurements: ReportMeasurements, aligned: pd.DataFrame) -> Answer:
    is_aligned = aligned.argmax_column == aligned.gold_column
    parts = [
        f"{percent(float(group.is_correct.mean()))} correct at the {counted(len(group), 'step')} that attended {where}"
        for where, group in (
            ("mostly to the correct source token", aligned[is_aligned]),
            ("mostly elsewhere", aligned[~is_aligned]),
        )
        if len(group)
    ]
    sentences = [f"Output tokens: {'; '.join(parts)}."]
    if min(is_aligned.sum(), (~is_aligned).sum()) < MIN_COMPARABLE:
        sentences.append("One of the two groups is too small to compare them.")
    elif aligned.is_correct[is_aligned].mean() - aligned.is_correct[~is_aligned].mean() > MIN_GAIN:
        sentences.append("So attending to the correct source token goes with a correct output token.")
    else:
        sentences.append("So where this head attends says little about whether the output token is correct.")
    by_length = measurements.exact_by_length(min_count=MIN_COMPARABLE)
    if len(by_length) > 1 and measurements.exact_match > 0 and not measurements.headline.is_bleu_first:
        (first, shortest), *_, (last, longest) = by_length.items()
        sentences.append(
            "A model that compresses its whole input into one vector would get worse with the length of the input; "
            f"this one answers {percent(shortest)} of the inputs with {counted(first, 'symbol')} exactly, and "
            f"{percent(longest)} of those with {last}."
        )
    sentences.append("These are correlations: where a head attends does not prove why the model chose a token.")
    return Answer("Does the attention help?", sentences)


def _first_and_last_steps(measurements: ReportMeasurements, steps: pd.DataFrame) -> Answer:
    parts = {
        "first": steps[steps.step == 0],
        "between": steps[(steps.step > 0) & (steps.step < steps.length - 1)],
        "last symbol": steps[(steps.step == steps.length - 1) & (steps.step > 0)],
        "EOS": steps[steps.step == steps.length],
    }
    rows = [_part_row(name, group) for name, group in parts.items() if len(group)]
    columns = ["step", "attention on the correct source token", "argmax accuracy", "entropy", "token accuracy"]
    eos = parts["EOS"]
    never = (
        f"{percent(1 - measurements.stopped)} of the outputs never end"
        if measurements.stopped < 1
        else "every output ends"
    )
    probability = percent(float(measurements.sequences.eos_probability.mean()))
    sentences = ["The table compares the first and the last steps with those between."]
    if len(eos):
        fractions = _source_regions(eos).value_counts(normalize=True)
        regions = ", ".join(f"{percent(fraction)} on {region}" for region, fraction in fractions.items())
        sentences.append(f"At the step that should produce EOS, the largest weight is: {regions}.")
    sentences.append(f"After the reference answer, EOS has a probability of {probability} on average; {never}.")
    return Answer("What happens at the beginning and at the end?", sentences, [columns, *rows])


def _part_row(name: str, steps: pd.DataFrame) -> list[str]:
    aligned = steps[steps.gold_column >= 0]
    accuracy = (aligned.argmax_column == aligned.gold_column).mean()
    return [
        name,
        _mean_mass(steps),
        percent(float(accuracy)) if len(aligned) else "–",
        f"{steps.entropy.mean():.2f}",
        percent(float(steps.is_correct.mean())),
    ]


def _mean_mass(steps: pd.DataFrame) -> str:
    """Format the mean attention on the correct source tokens of some steps; a dash if they have none."""
    aligned = steps[steps.gold_column >= 0]
    return percent(float(aligned.attention_mass.mean())) if len(aligned) else "–"


def _source_regions(steps: pd.DataFrame) -> pd.Series:
    """Name the source token with each step's largest weight: BOS, the first or last symbol, EOS, or another."""
    names = pd.Series("another symbol", index=steps.index)
    names[steps.argmax_column == steps.source_length] = "the last symbol"
    names[steps.argmax_column == 1] = "the first symbol"
    names[steps.argmax_column == 0] = "BOS"
    names[steps.argmax_column == steps.source_length + 1] = "EOS"
    return names
