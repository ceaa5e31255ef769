"""Checks of text that a user typed, before any task tokenizes it."""

import unicodedata
from collections.abc import Sequence
from typing import Any

from core.storage.errors import InputError
from core.text.direction import isolated

MAX_INPUT_CHARACTERS = 2_000
_REFUSED_CATEGORIES = ("Cc", "Cs")  # control characters and unpaired surrogates


def validate_text(field: str, text: Any, *, max_length: int) -> str:
    """Return a text unchanged if it is one.

    Args:
        field: the field's name, for the message.
        max_length: in characters.

    Raises:
        InputError: the value is not a string, is too long, or contains control characters or unpaired surrogates.
    """
    if not isinstance(text, str):
        raise InputError(f"{field} must be text, not {type(text).__name__}")
    if len(text) > max_length:
        raise InputError(f"{field} has {len(text):,} characters; the maximum is {max_length:,}")
    for position, character in enumerate(text, start=1):
        if unicodedata.category(character) in _REFUSED_CATEGORIES and character not in "\t\n\r":
            raise InputError(
                f"{field} has the character U+{ord(character):04X} at position {position}, which is not allowed"
            )
    return text


def check_input_length(text: str) -> None:
    """Raise InputError if a task's input exceeds ``MAX_INPUT_CHARACTERS``."""
    if len(text) > MAX_INPUT_CHARACTERS:
        raise InputError(f"input has {len(text)} characters; the maximum is {MAX_INPUT_CHARACTERS}")


def check_not_empty(symbols: Sequence[str], *, example: str) -> None:
    """Raise InputError if a task's input has no symbols; the message shows an example."""
    if not symbols:
        raise InputError(f"input is empty; an example is: {example}")


def visible(text: str) -> str:
    """Return a text with its invisible characters, of the categories Cc and Cf, as ``U+200B``."""
    return "".join(f"U+{ord(each):04X}" if unicodedata.category(each) in ("Cc", "Cf") else each for each in text)


def quote(text: str) -> str:
    """Return the repr of a text, shortened for a message."""
    return isolated(repr(text if len(text) <= 40 else text[:37] + "..."))
