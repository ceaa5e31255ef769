"""In what way a written sequence is wrong."""

from collections.abc import Sequence
from typing import Literal

Kind = Literal[
    "exact", "never stopped", "stopped early", "stopped late", "omitted", "repeated", "swapped", "wrong symbols"
]
KINDS: dict[Kind, str] = {
    "exact": "the right answer, ended by EOS",
    "never stopped": "no EOS before the model ran out of positions",
    "stopped early": "the beginning of the right answer, and no more",
    "stopped late": "the right answer, and then more",
    "omitted": "the right answer with symbols missing from its middle or beginning",
    "repeated": "the right answer with symbols of it put in once more",
    "swapped": "the right symbols in another order",
    "wrong symbols": "anything else: other symbols than the right ones",
}


def kind_of(output: Sequence[str], expected: Sequence[str], *, stopped: bool) -> Kind:
    """Name the way in which an output differs from what was expected.

    Args:
        output: what was written, EOS left out.
        stopped: whether EOS ended it.
    """
    output, expected = list(output), list(expected)
    if not stopped:
        return "never stopped"
    if output == expected:
        return "exact"
    if output == expected[: len(output)]:
        return "stopped early"
    if expected == output[: len(expected)]:
        return "stopped late"
    if _is_within(output, expected):
        return "omitted"
    if _is_within(expected, output) and set(output) == set(expected):
        return "repeated"
    return "swapped" if sorted(output) == sorted(expected) else "wrong symbols"


def first_wrong_place(output: Sequence[str], expected: Sequence[str]) -> int | None:
    """Return the index of the first token that differs, one missing or too many included; None if none does."""
    for place, (written, right) in enumerate(zip(output, expected, strict=False)):
        if written != right:
            return place
    return None if len(output) == len(expected) else min(len(output), len(expected))


def _is_within(short: list[str], long: list[str]) -> bool:
    """Tell whether ``long`` becomes ``short`` by striking out symbols."""
    rest = iter(long)
    return all(symbol in rest for symbol in short)
