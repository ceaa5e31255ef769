"""Classification of answers: correct, or wrong in which way."""

from collections.abc import Sequence
from typing import Literal

Outcome = Literal[
    "exact", "never stopped", "stopped early", "stopped late", "omitted", "repeated", "swapped", "wrong symbols"
]
OUTCOMES: dict[Outcome, str] = {
    "exact": "equal to the reference, ended by EOS",
    "never stopped": "no EOS within the model's maximum length",
    "stopped early": "a proper prefix of the reference",
    "stopped late": "the reference followed by more symbols",
    "omitted": "the reference with symbols missing from its beginning or middle",
    "repeated": "the reference with some of its own symbols inserted again",
    "swapped": "the reference's symbols in another order",
    "wrong symbols": "anything else: symbols that differ from the reference",
}


def classify_answer(output: Sequence[str], reference: Sequence[str], *, stopped: bool) -> Outcome:
    """Return how an output differs from its reference.

    Args:
        output: tokens produced, without EOS.
        reference: tokens expected, without EOS.
        stopped: whether the output ended with EOS.
    """
    output, reference = list(output), list(reference)
    if not stopped:
        return "never stopped"
    if output == reference:
        return "exact"
    if output == reference[: len(output)]:
        return "stopped early"
    if reference == output[: len(reference)]:
        return "stopped late"
    if _is_subsequence(output, reference):
        return "omitted"
    if _is_subsequence(reference, output) and set(output) == set(reference):
        return "repeated"
    return "swapped" if sorted(output) == sorted(reference) else "wrong symbols"


def first_difference(output: Sequence[str], reference: Sequence[str]) -> int | None:
    """Return the index of the first wrong, missing or extra token of an output; None if it equals the reference."""
    for index, (produced, expected) in enumerate(zip(output, reference, strict=False)):
        if produced != expected:
            return index
    return None if len(output) == len(reference) else min(len(output), len(reference))


def _is_subsequence(short: list[str], long: list[str]) -> bool:
    """Return whether deleting symbols from ``long`` can give ``short``."""
    remaining = iter(long)
    return all(symbol in remaining for symbol in short)
