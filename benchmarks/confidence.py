"""Measure how well the sign of an unsure answer tells foreign inputs and wrong answers of a translator.

``python -m benchmarks.confidence RUN PAIRS``, where PAIRS is what ``core corpus tatoeba`` wrote. Foreign inputs are
sentences of this project's documents, targets instead of sources, and test sources with their words shuffled.
"""

import random
import re
import sys
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from scipy.stats import mannwhitneyu

from benchmarks.everyday_translation import by_trigram, most_similar, read_pairs
from core.evaluation.translation_quality import quality_metrics, source_texts
from core.interpret.inspection import Inspection
from core.runs import DEFAULT_ROOT
from core.runs.run import Runs
from core.storage.errors import InputError
from core.tasks import fixed_pairs

DOCUMENTS = Path(__file__).parents[1] / "docs"
COUNTS = {"documents": 300, "targets": 100, "shuffled": 100}
NUM_SOURCES = 500
WRONG = 45  # chrF of an answer that shares little with every reference


def main(run: str, file: str) -> None:
    """Print the area under the curve of each measure, and the share of foreign inputs and wrong answers flagged."""
    trained = Runs(DEFAULT_ROOT, pairs=Path(file))[run].trained()
    references, training = read_pairs(Path(file))
    rng = random.Random(0)  # noqa: S311 - no secret
    test = source_texts(trained.task, fixed_pairs(trained.task, 1_000_000, split="test"))
    answered = [(source, trained.decode(source)) for source in test]
    known = rng.sample(answered, NUM_SOURCES)
    foreign = {
        name: decoded(trained.decode, rng.sample(inputs, len(inputs)), COUNTS[name])
        for name, inputs in foreign_inputs(test, references, rng).items()
    }
    index = by_trigram(training)

    def similarity(text: str) -> float:
        try:
            return most_similar(text, index)[0]
        except ValueError:  # no trigram in common with any training source
            return 0.0

    measures: dict[str, Callable[[str, Inspection], float]] = {
        "mean log-probability": lambda _, seen: -seen.log_prob / len(seen.steps),
        "log-probability": lambda _, seen: -seen.log_prob,
        "lowest probability": lambda _, seen: -min(step.probability for step in seen.steps),
        "pieces a word": lambda text, seen: len(seen.symbols) / len(text.split()),
        "input length": lambda _, seen: len(seen.symbols),
        "nearest training source": lambda text, _: -similarity(text),
    }

    chrf = quality_metrics("13a")["chrf"]
    right = [each for each in answered if each[1].text in references[each[0]]]
    wrong = [
        (source, seen)
        for source, seen in answered
        if max(chrf.corpus_score([seen.text], [[target]]).score for target in references[source]) < WRONG
    ]
    groups = {**foreign, "all foreign": list(chain(*foreign.values())), "wrong": wrong}
    for name, measure in measures.items():
        areas = {
            group: area(measure, of_group, right if group == "wrong" else known) for group, of_group in groups.items()
        }
        print(f"{name:24} " + ", ".join(f"{group} {found:.3f}" for group, found in areas.items()))
    for group, of_group in {**groups, "right": right, "all test sources": answered}.items():
        unsure = sum(bool(seen.is_unsure) for _, seen in of_group)
        print(f"unsure: {unsure / len(of_group):6.1%} of {len(of_group)} {group}")


def foreign_inputs(test: Sequence[str], references: dict[str, list[str]], rng: random.Random) -> dict[str, list[str]]:
    """Return inputs that are unlike the training sources, by kind."""
    text = " ".join(path.read_text(encoding="utf-8") for path in sorted(DOCUMENTS.glob("*.md")))
    text = re.sub(r"```.*?```|[`*|\[\]]", " ", text, flags=re.DOTALL)
    sentences = re.split(r"(?<=[.!?])\s+", re.sub(r"\s+", " ", text))
    prose = {each for each in sentences if 20 < len(each) < 110 and each[0].isupper() and "http" not in each}
    shuffled = [shuffle_words(source, rng) for source in test if len(source.split()) > 4]
    return {"documents": sorted(prose), "targets": [references[source][0] for source in test], "shuffled": shuffled}


def shuffle_words(source: str, rng: random.Random) -> str:
    """Return a sentence with its words in random order, its final punctuation kept."""
    words = source.rstrip(".?!").split()
    return " ".join(rng.sample(words, len(words))) + source[len(source.rstrip(".?!")) :]


def decoded(decode: Callable[[str], Inspection], inputs: Sequence[str], count: int) -> list[tuple[str, Inspection]]:
    """Decode the first ``count`` inputs that the model can read."""
    found: list[tuple[str, Inspection]] = []
    for text in inputs:
        try:
            found.append((text, decode(text)))
        except InputError:  # longer than the model reads
            continue
        if len(found) == count:
            break
    return found


def area(measure: Callable[[str, Inspection], float], positive: Sequence[Any], negative: Sequence[Any]) -> float:
    """Return the area under the ROC curve of a measure that should be higher for ``positive``."""
    high, low = ([measure(*each) for each in group] for group in (positive, negative))
    return float(mannwhitneyu(high, low).statistic) / (len(high) * len(low))


if __name__ == "__main__":
    main(*sys.argv[1:])
