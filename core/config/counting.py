"""Numbers of things in sentences."""


def counted(number: int, noun: str) -> str:
    """Return ``1 seed``, ``2,000 seeds``: a number and a noun that takes an s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def in_percent(share: float, *, digits: int = 0) -> str:
    """Return ``2 %``: a share of 1 in percent."""
    return f"{100 * share:.{digits}f} %"
