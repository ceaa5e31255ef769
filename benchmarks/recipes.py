"""``bench recipes``: what ``data`` proposes for small sets of own pairs, trained as proposed and tested.

The sets that are generated here are of characters and words; files of pairs can be named instead. Of those generated,
only ``sums`` and ``boolean`` had a part in choosing the recipes, by their validation pairs.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import torch

from core.evaluation.accuracy import evaluate
from core.runs import Runs
from core.storage.errors import InputError
from core.tasks import fixed_pairs
from core.tasks.ingest import HeldOutFile, PairFiles, prepare_preset

TEST_PAIRS = 1_000  # at most
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August"]
MONTHS += ["September", "October", "November", "December"]
WORDS = ["apple", "bear", "cat", "dog", "egg", "fox", "goat", "hat", "ice", "jar"]
WORDS += ["kite", "lamp", "moon", "nut", "owl", "pig", "quilt", "rose", "sun", "tree"]
NUMERALS = {1000: "M", 900: "CM", 500: "D", 400: "CD", 100: "C", 90: "XC", 50: "L", 40: "XL", 10: "X", 9: "IX", 5: "V"}
NUMERALS |= {4: "IV", 1: "I"}
Pair = tuple[str, str]


def a_date(rng: random.Random) -> Pair:
    """Return a date as people write it, and as ISO 8601 does."""
    day = date(1900, 1, 1) + timedelta(days=rng.randrange(55_000))
    month = MONTHS[day.month - 1]
    forms = f"{day.day} {month} {day.year}", f"{month} {day.day}, {day.year}", f"{day.day}/{day.month}/{day.year}"
    return rng.choice([*forms, f"{month[:3]} {day.day} {day.year}"]), day.isoformat()


def a_numeral(rng: random.Random) -> Pair:
    """Return a number and its Roman numeral."""
    number = rest = rng.randrange(1, 4_000)
    numeral = ""
    for value, letters in NUMERALS.items():
        numeral += letters * (rest // value)
        rest %= value
    return str(number), numeral


def a_sum(rng: random.Random) -> Pair:
    """Return a sum of two numbers below 1,000, and its result."""
    one, other = rng.randrange(1_000), rng.randrange(1_000)
    return f"{one}+{other}", str(one + other)


def sorted_words(rng: random.Random) -> Pair:
    """Return 2 to 7 different words, and the same in alphabetical order."""
    words = rng.sample(WORDS, rng.randint(2, 7))
    return " ".join(words), " ".join(sorted(words))


def a_boolean(rng: random.Random) -> Pair:
    """Return an expression of truth values, and its value."""

    def expression(depth: int) -> tuple[str, bool]:
        if depth == 0 or rng.random() < 0.2:
            value = rng.random() < 0.5
            return str(value), value
        (left, one), (right, other) = expression(depth - 1), expression(depth - 1)
        kind = rng.choice(["not", "and", "or"])
        if kind == "not":
            return f"not {left}", not one
        return f"( {left} {kind} {right} )", (one and other) if kind == "and" else (one or other)

    text, value = expression(4)
    return text, str(value)


SETS: dict[str, tuple[Callable[[random.Random], Pair], int]] = {
    "dates": (a_date, 6_000),
    "sums": (a_sum, 6_000),
    "boolean": (a_boolean, 5_000),
    "sorted": (sorted_words, 5_000),
    "numerals": (a_numeral, 3_000),
}


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Train what is proposed for each set, and print exact match on test pairs and the seconds."""
    print(f"{'set':20} {'pairs':>7}  {'tokens':22} {'steps':>6} {'seconds':>8} {'test':>8}  {'of':>5}")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, files in _sets(Path(folder), options):
            result = _measure(name, files, Path(folder))
            print(
                f"{name:20} {result['pairs']:7,}  {' to '.join(result['tokens']):22} {result['steps']:6,} "
                f"{result['seconds']:8.1f} {result['exact_match']:8.1%}  {result['tested']:5,}",
                flush=True,
            )
            results.append(result)
    return {"sets": results}


def _sets(folder: Path, options: argparse.Namespace) -> Iterator[tuple[str, PairFiles]]:
    """Yield the generated sets, and those of files: ``PAIRS`` or ``PAIRS,TEST`` or ``PAIRS,TEST,VALIDATION``."""
    chosen = (options.sets or ",".join(SETS)).split(",") if not options.file else []
    if unknown := next((name for name in chosen if name not in SETS), None):
        raise InputError(f"--sets={unknown[:60]} is not one of {', '.join(SETS)}")
    for name in chosen:
        make, count = SETS[name]
        rng, pairs = random.Random(0), dict[str, str]()  # noqa: S311 - test data
        while len(pairs) < count:
            pairs.update([make(rng)])
        path = folder / f"{name}.tsv"
        path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs.items()), encoding="utf-8")
        yield name, PairFiles(path)
    for text in options.file:
        path, *others = map(Path, text.split(","))
        held_out = [HeldOutFile(each, split=split) for each, split in zip(others, ("test", "validation"), strict=False)]
        yield path.name, PairFiles(path, held_out=tuple(held_out))


def _measure(name: str, files: PairFiles, folder: Path) -> dict[str, Any]:
    pairs = folder / "pairs"
    found, preset = prepare_preset(files, pairs, name="proposed")
    run = Runs(folder / name).create(preset, pairs=pairs)
    started = time.perf_counter()
    with run.training() as events:
        for _ in events:
            pass
    seconds = time.perf_counter() - started
    trained = run.trained()
    test = fixed_pairs(trained.task, TEST_PAIRS, split="test")
    accuracy = evaluate(trained.model, test, task=trained.task)
    return {
        "name": name,
        "pairs": found.pairs,
        "tokens": list(found.kinds),
        "steps": preset.training.steps,
        "seconds": round(seconds, 1),
        "exact_match": accuracy.exact_match,
        "tested": len(test),
        "threads": torch.get_num_threads(),
    }
