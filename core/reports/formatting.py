"""Numbers in sentences and tables: no more digits than are meaningful, and never rounded up to all or down to none."""

_SPACE = "\N{NO-BREAK SPACE}"


def percent(fraction: float) -> str:
    """Format a fraction (0-1) with one decimal; ``100 %`` and ``0 %`` only if it is exactly that."""
    if fraction in (0, 1):
        return f"{fraction * 100:.0f}{_SPACE}%"
    text = f"{fraction * 100:.1f}"
    if text == "100.0":
        return f"{int(fraction * 1e4) / 100:.2f}{_SPACE}%" if fraction < 0.9999 else f">{_SPACE}99.99{_SPACE}%"
    return f"<{_SPACE}0.1{_SPACE}%" if text == "0.0" else f"{text}{_SPACE}%"


def count(number: int, noun: str) -> str:
    """Format a number with its noun: ``1 step``, ``12,000 steps``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
