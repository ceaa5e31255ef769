"""Numbers and shares in sentences and tables."""

import math


def counted(number: int, noun: str) -> str:
    """Return ``1 seed``, ``2,000 seeds``: a number and a noun that takes an s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(share: float, digits: int = 1) -> str:
    """Return ``2.5 %``: a share of 1 in percent, with one digit more where rounding would make it 0 % or 100 %."""
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    value, finest = 100 * share, 10.0 ** -(digits + 1)
    if 0 < value < finest:
        return f"< {finest:.{digits + 1}f} %"
    if 100 - finest <= value < 100:
        return f"> {100 - finest:.{digits + 1}f} %"
    if 0 < value < 10 * finest:
        return f"{value:.{digits + 1}f} %"
    if value < 100 and round(value, digits) == 100:
        return f"{math.floor(share * 10 ** (digits + 3)) / 10 ** (digits + 1):.{digits + 1}f} %"
    return f"{value:.{digits}f} %"
