"""Measure a translator on the test pairs of a file, by similarity to the training pairs, and on sentences of one's own.

``python -m benchmarks.everyday_translation RUN PAIRS``, where PAIRS is what ``core corpus tatoeba`` wrote.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise, zip_longest
from pathlib import Path

from core.evaluation.outputs import decode_unpadded
from core.evaluation.translation_quality import quality_metrics, source_texts
from core.generation import GREEDY, Beam
from core.runs import DEFAULT_ROOT
from core.runs.run import Runs
from core.tasks import fixed_pairs

SENTENCES = Path(__file__).parent / "everyday_sentences.tsv"
BOUNDS = (0, 0.5, 0.6, 0.7, 0.8, 1.01)
Translations = dict[str, list[str]]
"""The targets of each source, in the order of the file."""


def main(run: str, file: str) -> None:
    """Print BLEU and chrF with the first and with all references, greedy and with a beam of 5."""
    trained = Runs(DEFAULT_ROOT, pairs=Path(file))[run].trained()
    references, training = read_pairs(Path(file))
    pairs = fixed_pairs(trained.task, 1_000_000, split="test")
    sources = source_texts(trained.task, pairs)
    index = by_trigram(training)
    nearest = [most_similar(source, index) for source in sources]
    copied = [training[source][0] for _, source in nearest]
    report("nearest training source", copied, sources, references)
    own = dict(line.split("\t") for line in SENTENCES.read_text(encoding="utf-8").splitlines())
    for name, strategy in (("greedy", GREEDY), ("beam 5", Beam(beam_size=5))):
        texts = decode_unpadded(trained.model, pairs, strategy=strategy).texts(trained.task)
        report(name, texts, sources, references)
        for low, high in pairwise(BOUNDS):
            rows = [row for row, (similarity, _) in enumerate(nearest) if low <= similarity < high]
            for of, outputs in (("", texts), (", nearest source", copied)):
                report(
                    f"  {low}-{high}{of}", [outputs[row] for row in rows], [sources[row] for row in rows], references
                )
        answers = {source: trained.decode(source, strategy=strategy).text for source in own}
        expected = {source: [target] for source, target in own.items()}
        unseen = [source for source in own if source not in training]
        report("own sentences", list(answers.values()), list(answers), expected)
        report("  not trained on", [answers[source] for source in unseen], unseen, expected)


def read_pairs(path: Path) -> tuple[Translations, Translations]:
    """Return the translations of all sources, and those of training sources."""
    everything: Translations = defaultdict(list)
    training: Translations = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        source, target, *split = line.split("\t")
        everything[source].append(target)
        if not split:
            training[source].append(target)
    return everything, training


def by_trigram(sources: Iterable[str]) -> dict[str, list[str]]:
    """Return the sources that each trigram occurs in."""
    index: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        for trigram in _trigrams(source):
            index[trigram].append(source)
    return index


def most_similar(source: str, index: dict[str, list[str]]) -> tuple[float, str]:
    """Return the highest Dice coefficient of character trigrams, and the indexed source that has it."""
    trigrams = _trigrams(source)
    shared = Counter(other for trigram in trigrams for other in index.get(trigram, ()))
    return max((2 * count / (len(trigrams) + len(_trigrams(other))), other) for other, count in shared.items())


def report(name: str, outputs: Sequence[str], sources: Sequence[str], references: Translations) -> None:
    """Print one line of figures."""
    metrics = quality_metrics("13a")
    all_of = [list(column) for column in zip_longest(*(references[source] for source in sources))]
    first = [[references[source][0] for source in sources]]
    equal = sum(output in references[source] for output, source in zip(outputs, sources, strict=True))
    figures = {
        "BLEU": metrics["bleu"].corpus_score(outputs, first).score,
        "BLEU, all references": metrics["bleu"].corpus_score(outputs, all_of).score,
        "chrF": metrics["chrf"].corpus_score(outputs, first).score,
        "equal to a reference, %": 100 * equal / len(outputs),
    }
    print(f"{name:28}{len(outputs):6}  " + "  ".join(f"{key} {value:5.2f}" for key, value in figures.items()))


@cache
def _trigrams(text: str) -> frozenset[str]:
    """Return the character trigrams of a text in lower case, with two spaces at both ends."""
    padded = f"  {text.casefold()}  "
    return frozenset(padded[start : start + 3] for start in range(len(padded) - 2))


if __name__ == "__main__":
    main(*sys.argv[1:])
