"""Ten sentences of the document that ``words-reversal-gru-as-told`` follows, answered by the reported model."""

from dataclasses import dataclass

from core.evaluation.answers import answer_table
from core.models import Seq2Seq
from core.reports.report.tables import Rows, examples
from core.tasks import Batch, Task
from core.tasks.data import add_bos_eos, pad_rows
from core.tasks.sequences import Words
from core.tasks.word_examples import WORD_EXAMPLES


@dataclass(frozen=True)
class DocumentedExamples:
    """The ten examples as a table.

    Attributes:
        matches: sentences that the reported model answers exactly.
        own_matches: sentences that the document's own model answered exactly.
        table: a row per sentence; the first row holds the column names.
    """

    matches: int
    own_matches: int
    table: Rows


def documented_examples(model: Seq2Seq, task: Task) -> DocumentedExamples | None:
    """Decode the ten sentences, each separately; None if they do not apply to the task or the model."""
    if not isinstance(task, Words) or task.transform != "reverse":
        return None
    symbols = [task.src_vocab.encode(task.tokenize(example.sentence)) for example in WORD_EXAMPLES]
    longest = max(map(len, symbols))
    if longest + 2 > model.max_seq_len:
        return None
    answers = examples(answer_table(model, task, _pairs(symbols, longest)))
    header = ["input", "this model's answer", "reference", "this model", "what the document's own model wrote", "it"]
    rows = [
        [
            answer["input"],
            answer["output"],
            answer["reference"],
            answer["match"],
            example.output,
            _match(example.is_match),
        ]
        for answer, example in zip(answers, WORD_EXAMPLES, strict=True)
    ]
    matches = sum(answer["match"] == _match(is_match=True) for answer in answers)
    return DocumentedExamples(matches, sum(example.is_match for example in WORD_EXAMPLES), [header, *rows])


def _pairs(symbols: list[list[int]], width: int) -> Batch:
    """Return sentences paired with their reversal."""
    sources, answers = (pad_rows(rows, width) for rows in (symbols, [row[::-1] for row in symbols]))
    return Batch(add_bos_eos(sources), add_bos_eos(answers))


def _match(is_match: bool) -> str:
    return "match" if is_match else "no match"
