"""The figures that say how good a run is: exact match, an error rate, BLEU or perplexity, by the shape of the answers.

Everything that shows a run's quality in a word takes it from here. The first figure decides:

- perplexity, if the task has no single reference answer;
- BLEU for texts of more than ``LONG`` tokens, with exact match beside it if the tokens are words;
- the token error rate, then exact match, for other own pairs of that length, which are rarely right as a whole;
- the error rate of answers, if sources have several references and the answers are not long;
- exact match for everything else, followed by BLEU if the answers are texts that have 4-grams.

Token accuracy decides where nothing is decoded: in a training by a user's own loop (``core.runs.watching``).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Annotated, Literal, get_args
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field

from core.text.vocab import until_eos

if TYPE_CHECKING:  # tables of runs read figures without loading torch
    from core.tasks import Task

HeadlineMeasure = Literal["exact_match", "error_rate", "token_error_rate", "bleu", "perplexity", "token_accuracy"]
BleuName = Literal["BLEU", "character BLEU"]
MEASURES: tuple[HeadlineMeasure, ...] = get_args(HeadlineMeasure)
LONG = 10  # tokens, the median of the references; longer answers are rarely right as a whole
BLEU_ORDER = 4  # BLEU counts n-grams of 1 to 4 words
SAMPLED = 200  # held-out references that are looked at
SEVERAL = 0.02  # share of sources with several references, from which an answer is compared with all of them


class HeadlineFigure(BaseModel):
    """One measured figure of a headline.

    Attributes:
        measure: what was measured.
        name: what it is called, such as ``exact match``, ``character BLEU`` or ``WER``.
        value: 0-1 for exact match and error rates (above 1 if outputs are far too long), 0-100 for BLEU.
    """

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    measure: HeadlineMeasure
    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9 ().,@+:_-]{0,39}$")]
    value: Annotated[float, Field(ge=0)]


HeadlineFigures = Annotated[tuple[HeadlineFigure, ...], Field(max_length=2, strict=False)]


@dataclass(frozen=True)
class Headline:
    """What is measured of a task's answers, the measure that decides first.

    Attributes:
        measures: one or two.
        names: what they are called.
        bleu_tokenizer: sacrebleu's tokenizer if BLEU is measured; None if the answers are no texts, or too short.
        without_bleu: one sentence on why answers that are texts have no BLEU; "" otherwise.
    """

    measures: tuple[HeadlineMeasure, ...]
    names: Mapping[HeadlineMeasure, str]
    bleu_tokenizer: str | None = None
    without_bleu: str = ""

    @property
    def has_error_rates(self) -> bool:
        """Whether outputs are compared with all references of their sources."""
        return not {"error_rate", "token_error_rate"}.isdisjoint(self.measures)

    @property
    def is_bleu_first(self) -> bool:
        """Whether BLEU decides, so that exact match alone says little."""
        return self.measures[0] == "bleu"

    def figures(self, values: Mapping[HeadlineMeasure, float | None]) -> tuple[HeadlineFigure, ...]:
        """Return the figures that were measured; if none was, exact match, if that was."""
        known = {measure: value for measure, value in values.items() if value is not None and value < float("inf")}
        shown = [measure for measure in self.measures if measure in known] or ["exact_match"]
        return tuple(
            HeadlineFigure(
                measure=measure, name=self.names[measure], value=round(known[measure], 4 if measure == "bleu" else 6)
            )
            for measure in shown
            if measure in known
        )


def headline_of(task: "Task") -> Headline:
    """Return what is measured of a task's answers, judged by the first ``SAMPLED`` validation references."""
    if task not in _headlines:
        _headlines[task] = _headline(task)
    return _headlines[task]


EXACT_MATCH = Headline(("exact_match",), {"exact_match": "exact match"})
_NOT_IN_NAMES = re.compile(r"^[^A-Za-z]+|[^A-Za-z0-9 ().,@+:_-]+")
_headlines: WeakKeyDictionary["Task", Headline] = WeakKeyDictionary()


def bleu_name_of(tokenizer: str) -> BleuName:
    """Return what BLEU is called by sacrebleu's tokenizer.

    With ``char`` n-grams are made of characters: ``character BLEU`` is higher and not comparable with BLEU on words.
    """
    return "character BLEU" if tokenizer == "char" else "BLEU"


def _headline(task: "Task") -> Headline:
    rates = [_NOT_IN_NAMES.sub(" ", name)[:40] for name in task.rate_names or ("", "")]  # a plugin may have any
    bleu_name = bleu_name_of(task.bleu_tokenizer or "")
    names: dict[HeadlineMeasure, str] = {
        "exact_match": "exact match",
        "error_rate": rates[0],
        "token_error_rate": rates[1],
        "bleu": bleu_name,
        "perplexity": "perplexity",
    }
    if task.open_ended:
        return Headline(("perplexity",), names)
    if not (task.bleu_tokenizer or task.rate_names):
        return Headline(("exact_match",), names)
    if not task.has_pairs:  # a text published without its pairs; nothing of it can be measured either
        return Headline(("bleu",) if task.bleu_tokenizer else ("exact_match",), names, task.bleu_tokenizer)
    from core.tasks import fixed_pairs

    pairs = fixed_pairs(task, SAMPLED, split="validation")
    references = [task.tgt_vocab.decode(until_eos(ids)) for ids in pairs.tgt_out.tolist()]
    is_long = median(map(len, references)) > LONG
    whole: HeadlineMeasure = "exact_match"
    if task.rate_names and not is_long:
        sources = [task.src_vocab.decode(until_eos(ids[1:])) for ids in pairs.src.tolist()]
        several = sum(len(set(map(tuple, task.references(source)))) > 1 for source in sources)
        whole = "error_rate" if several >= SEVERAL * len(sources) else whole
    if task.bleu_tokenizer is None:
        return Headline(("token_error_rate", "exact_match") if is_long and task.rate_names else (whole,), names)
    unit = "characters" if task.bleu_tokenizer == "char" else "words"
    texts = map(task.answer_text, references)
    lengths = [len("".join(text.split())) if unit == "characters" else len(text.split()) for text in texts]
    with_ngrams = sum(length >= BLEU_ORDER for length in lengths)
    if 2 * with_ngrams < len(lengths):
        why = (
            f"BLEU is not measured: it counts runs of up to {BLEU_ORDER} {unit}, and {with_ngrams:,} of "
            f"{len(lengths):,} held-out references have {BLEU_ORDER} {unit} or more."
        )
        return Headline((whole,), names, without_bleu=why)
    if not is_long:
        return Headline((whole, "bleu"), names, task.bleu_tokenizer)
    return Headline(("bleu", "exact_match") if task.subwords is None else ("bleu",), names, task.bleu_tokenizer)
