"""Count WER and PER of pronunciations as in the literature, without code of the project.

``python -m benchmarks.count_errors REFERENCES ANSWERS``: each line of REFERENCES is a word and its pronunciations with
tabs between them, each line of ANSWERS the answer to the word on the same line, as ``core translate`` prints them.
"""

import sys
from collections.abc import Iterable

from core.config.counting import percent


def edits(one: list[str], other: list[str]) -> int:
    """Count the insertions, deletions and substitutions between two answers (Wagner & Fischer 1974)."""
    row = list(range(len(other) + 1))
    for number, phone in enumerate(one, start=1):
        above, row[0] = row[0], number
        for column, expected in enumerate(other, start=1):
            above, row[column] = row[column], min(above + (phone != expected), row[column] + 1, row[column - 1] + 1)
    return row[-1]


def count_errors(references: Iterable[str], answers: Iterable[str]) -> tuple[int, int, int, int]:
    """Return the numbers of words, wrong words, edits to the nearest references, and phones in these references."""
    words = wrong = distance = phones = 0
    for line, answer in zip(references, answers, strict=True):
        _, *pronunciations = line.rstrip("\n").split("\t")
        found = answer.split()
        distances = [edits(found, each.split()) for each in pronunciations]
        nearest = pronunciations[distances.index(min(distances))]  # the first of several
        words, wrong = words + 1, wrong + (answer.strip() not in pronunciations)
        distance, phones = distance + min(distances), phones + len(nearest.split())
    return words, wrong, distance, phones


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as reference_file, open(sys.argv[2], encoding="utf-8") as answer_file:
        total, errors, changed, length = count_errors(reference_file, answer_file)
    print(f"{total:,} words: WER {percent(errors / total, 4)}, PER {percent(changed / length, 4)}")
