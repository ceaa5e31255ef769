"""What the page shows instead of subword tokens: the sentences they make, and the words of a map's rows and columns."""

from collections.abc import Sequence
from typing import Any

from core.text.pieces import sentence_of, word_groups, word_names
from core.text.vocab import BOS


def sentences(*, source: Sequence[str], output: Sequence[str], expected: Sequence[str] | None) -> dict[str, str | None]:
    """Return the texts of a decode in subwords; a reference that is not known is None."""
    return {
        "source": sentence_of(source),
        "output": sentence_of(output),
        "expected": None if expected is None else sentence_of(expected),
    }


def words_of_steps(tokens: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return name and number of pieces of each word that the steps produced, and of those that they read."""
    return {"produced": words_of(tokens), "read": words_of([BOS, *tokens[:-1]])}


def words_of(tokens: Sequence[str]) -> list[dict[str, Any]]:
    """Return name and number of pieces of each word, special tokens included."""
    groups, names = word_groups(tokens), word_names(tokens)
    return [{"name": name, "pieces": len(group)} for name, group in zip(names, groups, strict=True)]
