"""The case of texts: whether all are in the same case, and conversion of a text to it."""

import unicodedata
from dataclasses import dataclass
from typing import Literal

TextCase = Literal["as-is", "lower", "upper"]


@dataclass
class CaseCheck:
    """Detects whether all texts are in lower case or all in upper case."""

    has_lower: bool = False
    has_upper: bool = False

    def add(self, text: str) -> None:
        """Take a text into account."""
        self.has_lower = self.has_lower or text != text.upper()
        self.has_upper = self.has_upper or text != text.lower()

    @property
    def case(self) -> TextCase:
        """The only case of the texts; "as-is" if they are in both, or have no letters with a case."""
        if self.has_lower == self.has_upper:
            return "as-is"
        return "lower" if self.has_lower else "upper"


def in_case(text: str, case: TextCase) -> str:
    """Return a text in a case, in NFC; unchanged if that is "as-is"."""
    if case == "as-is":
        return text
    return unicodedata.normalize("NFC", text.lower() if case == "lower" else text.upper())
