"""Four questions about a run's attention, answered from its own decoding steps.

They are those of Bahdanau et al. 2015, section 5.2, asked of one head: the one of the last layer that looks most at
the true source tokens.
"""

from dataclasses import dataclass

import pandas as pd

from core.interpret.head_scores import HeadScore, best_head_of_layer
from core.reports.formatting import count, percent
from core.reports.report.findings import COMPARABLE
from core.reports.report.measurements import ReportMeasurements

CLEAR, PARTIAL = 0.9, 0.5  # share of steps whose largest weight is at the commonest place
GAIN = 0.05  # of tokens written right: less is no difference worth a sentence
SHOWN_MISALIGNED = 5


@dataclass(frozen=True)
class Answer:
    """A question and its answer: sentences, and perhaps a table (column names first)."""

    question: str
    sentences: list[str]
    table: list[list[str]] | None = None


def best_head(measured: ReportMeasurements) -> HeadScore | None:
    """Return the head that the answers are about; None where the model has no cross-attention to judge."""
    scores = measured.head_scores()
    return best_head_of_layer(scores, max(score.layer for score in scores)) if scores else None


def answers(measured: ReportMeasurements) -> list[Answer]:
    """Answer the four questions; [] where the model has no cross-attention to judge."""
    head = best_head(measured)
    if head is None:
        return []
    steps = measured.steps[(measured.steps.layer == head.layer) & (measured.steps["head"] == head.head)]
    aligned = steps[steps.gold_column >= 0]
    return [
        _patterns(head, aligned, steps),
        _alignment(measured, aligned),
        _use(measured, aligned),
        _ends(measured, steps),
    ]


def _patterns(head: HeadScore, aligned: pd.DataFrame, steps: pd.DataFrame) -> Answer:
    offsets = (aligned.argmax_column - aligned.gold_column).value_counts(normalize=True)
    offset, share = int(offsets.index[0]), float(offsets.iloc[0])
    sentences = [
        _opening(offset, share),
        f"Over {count(len(aligned), 'step')} {percent(head.attention_mass)} of its attention falls on the input token "
        f"that the written one comes from; looking everywhere alike would give {percent(head.uniform_mass)}.",
        f"The largest weight is most often {_place(offset)} ({percent(share)} of the steps).",
        "The table gives the entropy of its weights by length: 0 is all on one token, 1 spread evenly.",
    ]
    by_length = steps[steps.step <= steps.length].groupby("length")
    rows = [[str(length), f"{group.entropy.mean():.2f}", _share(group)] for length, group in by_length]
    table = [["symbols", "entropy", "attention on the true token"], *rows]
    return Answer("What patterns does the attention show?", sentences, table)


def _opening(offset: int, share: float) -> str:
    follows = "follows the task's own map from answer to input" + ("" if offset == 0 else f", {_place(offset)}")
    if share >= CLEAR:
        return f"A clear one: the head {follows}."
    if share >= PARTIAL:
        return f"A partial one: the head often {follows}, but not reliably."
    return "None that follows the task: the head mostly looks elsewhere than where the written token comes from."


def _place(offset: int) -> str:
    if offset == 0:
        return "on the true token itself"
    return f"{count(abs(offset), 'token')} to the {'right' if offset > 0 else 'left'} of the true one"


def _alignment(measured: ReportMeasurements, aligned: pd.DataFrame) -> Answer:
    question = "Does it align the answer with the input?"
    missed = aligned[aligned.argmax_column != aligned.gold_column]
    hits = percent(1 - len(missed) / len(aligned))
    sentences = [f"In {hits} of {count(len(aligned), 'step')} the largest weight is on the true token."]
    if missed.empty:
        return Answer(question, [*sentences, "There is no misaligned step among them."])
    shown = missed.head(SHOWN_MISALIGNED)
    sentences.append(f"{count(len(missed), 'step')} are misaligned; the table shows the first {len(shown)}.")
    rows = [_misaligned_row(measured, step) for step in shown.itertuples()]
    return Answer(question, sentences, [["input", "step", "comes from", "looked at", "was written"], *rows])


def _misaligned_row(measured: ReportMeasurements, step: tuple) -> list[str]:
    sequence = measured.sequences.loc[step.sequence]
    written = sequence.output[step.step] if step.step < len(sequence.output) else "EOS"
    return [
        " ".join(sequence.input),
        str(step.step + 1),
        _column_name(step.gold_column, sequence.input),
        _column_name(step.argmax_column, sequence.input),
        f"{written} ({'right' if step.is_correct else 'wrong'})",
    ]


def _column_name(column: int, symbols: list[str]) -> str:
    if column == 0:
        return "BOS"
    return "EOS" if column > len(symbols) else f"{symbols[column - 1]} (number {column})"


def _use(measured: ReportMeasurements, aligned: pd.DataFrame) -> Answer:
    hit = aligned.argmax_column == aligned.gold_column
    parts = [
        f"{percent(float(group.is_correct.mean()))} right of {count(len(group), 'step')} that looked {where}"
        for where, group in (("at the true token", aligned[hit]), ("elsewhere", aligned[~hit]))
        if len(group)
    ]
    sentences = [f"Tokens written: {'; '.join(parts)}."]
    if min(hit.sum(), (~hit).sum()) < COMPARABLE:
        sentences.append("That is too little to compare: this run hardly tells what happens otherwise.")
    elif aligned.is_correct[hit].mean() - aligned.is_correct[~hit].mean() > GAIN:
        sentences.append("So looking at the true token goes with writing it.")
    else:
        sentences.append("So where this head looks says little about whether the right token is written.")
    by_length = measured.exact_by_length(least=COMPARABLE)
    if len(by_length) > 1 and measured.exact_alone > 0:
        (first, shortest), *_, (last, longest) = by_length.items()
        sentences.append(
            "A model that squeezed its whole input into one vector would do worse the longer the input; this one "
            f"answers {percent(shortest)} of the inputs with {count(first, 'symbol')} exactly and {percent(longest)} "
            f"of those with {last}."
        )
    sentences.append("These are observations: where a head looked is not by itself why the model wrote what it did.")
    return Answer("Does the attention help?", sentences)


def _ends(measured: ReportMeasurements, steps: pd.DataFrame) -> Answer:
    parts = {
        "first": steps[steps.step == 0],
        "between": steps[(steps.step > 0) & (steps.step < steps.length - 1)],
        "last symbol": steps[(steps.step == steps.length - 1) & (steps.step > 0)],
        "EOS": steps[steps.step == steps.length],
    }
    rows = [_ends_row(name, group) for name, group in parts.items() if len(group)]
    table = [["step", "attention on the true token", "largest weight there", "entropy", "written right"], *rows]
    eos, never = parts["EOS"], percent(1 - measured.stopped)
    probability = percent(float(measured.sequences.eos_probability.mean()))
    sentences = ["The table compares the first and the last steps with those between."]
    if len(eos):
        places = _ends_of_source(eos).value_counts(normalize=True)
        looked = ", ".join(f"{percent(share)} at {place}" for place, share in places.items())
        sentences.append(f"At the step that should write EOS, the head looks most: {looked}.")
    sentences.append(
        f"After the right answer EOS gets a probability of {probability} on average; {never} of the answers never end."
    )
    return Answer("What happens at the beginning and at the end?", sentences, table)


def _ends_row(name: str, steps: pd.DataFrame) -> list[str]:
    aligned = steps[steps.gold_column >= 0]
    hits = (aligned.argmax_column == aligned.gold_column).mean()
    return [
        name,
        _share(steps),
        percent(float(hits)) if len(aligned) else "–",
        f"{steps.entropy.mean():.2f}",
        percent(float(steps.is_correct.mean())),
    ]


def _share(steps: pd.DataFrame) -> str:
    """Write how much attention falls on the true tokens of some steps; a dash where they have none."""
    aligned = steps[steps.gold_column >= 0]
    return percent(float(aligned.attention_mass.mean())) if len(aligned) else "–"


def _ends_of_source(steps: pd.DataFrame) -> pd.Series:
    """Name where in the source each step looked most: BOS, its first or last symbol, EOS, or in between."""
    names = pd.Series("another symbol", index=steps.index)
    names[steps.argmax_column == steps.source_length] = "the last symbol"
    names[steps.argmax_column == 1] = "the first symbol"
    names[steps.argmax_column == 0] = "BOS"
    names[steps.argmax_column == steps.source_length + 1] = "EOS"
    return names
