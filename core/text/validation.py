"""Text that somebody typed, checked before anything is made of it."""

import unicodedata
from typing import Any

from core.storage.errors import InputError

_NOT_TEXT = ("Cc", "Cs")  # control characters, and halves of characters that cannot be written


def validate_text(field: str, text: Any, *, most: int) -> str:
    """Return a text as it is.

    Raises:
        InputError: it is no text, has more than ``most`` characters, or some that nobody can see or write.
    """
    if not isinstance(text, str):
        raise InputError(f"{field} must be text, not {type(text).__name__}")
    if len(text) > most:
        raise InputError(f"{field} has {len(text):,} characters; at most {most:,} are read here")
    for place, letter in enumerate(text, start=1):
        if unicodedata.category(letter) in _NOT_TEXT and letter not in "\t\n\r":
            raise InputError(f"{field} has the character U+{ord(letter):04X} at position {place}, which is no text")
    return text
