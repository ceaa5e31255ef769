"""Numbers of things in sentences."""


def counted(number: int, noun: str) -> str:
    """Return ``1 seed``, ``2,000 seeds``: a number and a noun that takes an s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
