"""Keep the direction of a text from reordering what stands beside it."""

import re

_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u202b\u202e\u2067]"
)  # letters, and marks that order
_ISOLATE, _END = "\u2068", "\u2069"  # FIRST STRONG ISOLATE and POP DIRECTIONAL ISOLATE


def isolated(text: str) -> str:
    """Return a text for a sentence with other texts: Hebrew or Arabic would reorder the numbers and arrows beside it.

    Texts without such letters or marks of direction are returned as they are.
    """
    return f"{_ISOLATE}{text}{_END}" if _RIGHT_TO_LEFT.search(text) else text
