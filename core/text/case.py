"""The case of texts: whether all of them are in one, and a text in that case."""

import unicodedata
from dataclasses import dataclass
from typing import Literal

TextCase = Literal["as-is", "lower", "upper"]


@dataclass
class CaseCheck:
    """Finds out whether the texts that it is shown are all in lower or all in upper case."""

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
