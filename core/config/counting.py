"""Numbers of things in sentences."""


def counted(number: int, noun: str) -> str:
    """Return ``1 seed``, ``2,000 seeds``: a number and a noun that takes an s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def in_percent(share: float, *, digits: int = 0) -> str:
    """Return ``2 %``: a share of 1 in percent; what is rounded is never 0 % or 100 %, but ``<1 %`` or ``>99 %``."""
    percent, least = 100 * share, 10**-digits
    if 0 < percent < least:
        return f"<{least:.{digits}f} %"
    if 100 - least < percent < 100:
        return f">{100 - least:.{digits}f} %"
    return f"{percent:.{digits}f} %"
