"""What every task checks in what a person typed, before it looks at the symbols."""

from collections.abc import Sequence

from core.storage.errors import InputError

MAX_TYPED_CHARACTERS = 2_000


def check_length(text: str) -> None:
    """Raise InputError where a text is longer than anything there is to read."""
    if len(text) > MAX_TYPED_CHARACTERS:
        raise InputError(f"input has {len(text)} characters; at most {MAX_TYPED_CHARACTERS} are read")


def check_not_empty(symbols: Sequence[str], *, example: str) -> None:
    """Raise InputError where nothing was typed; the message offers an example."""
    if not symbols:
        raise InputError(f"input is empty; type something like: {example}")


def shortened(text: str) -> str:
    """Quote a text for a message, without letting a stranger's page into it."""
    return repr(text if len(text) <= 40 else text[:37] + "...")
