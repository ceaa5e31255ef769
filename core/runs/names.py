"""Names for runs that nobody named."""

import random
from pathlib import Path

from core.storage.errors import InputError

_ADJECTIVES = "able bold brisk calm clear deft eager fair fleet keen kind light lucid merry neat nimble quick quiet"
_NOUNS = "badger crane dove finch fox hare heron jay lark lynx marten otter owl pike robin seal swift tern wren"


def numbered_name(root: Path, name: str) -> str:
    """Return a name, or, if a run has it, one with the first number behind it that none has."""
    number, free = 1, name
    while (root / free).exists():
        number += 1
        free = f"{name}-{number}"
    return free


def free_name(root: Path) -> str:
    """Make up a name that is easy to remember; from the system's randomness, which no seed fixes."""
    dice = random.SystemRandom()
    for attempt in range(1000):
        name = f"{dice.choice(_ADJECTIVES.split())}-{dice.choice(_NOUNS.split())}"
        name += f"-{dice.randrange(10 ** (attempt // 10 + 1))}" if attempt > 4 else ""
        if not (root / name).exists():
            return name
    raise InputError(f"no free name for a run in {root.name}")
