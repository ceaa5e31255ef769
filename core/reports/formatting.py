"""Numbers in sentences: no false digits, and nothing rounded to all or none that is not."""

_SPACE = "\N{NO-BREAK SPACE}"


def percent(share: float) -> str:
    """Write a share (0-1) with one decimal: ``100 %`` and ``0 %`` only where it is exactly that."""
    if share in (0, 1):
        return f"{share * 100:.0f}{_SPACE}%"
    written = f"{share * 100:.1f}"
    if written == "100.0":
        return f"{int(share * 1e4) / 100:.2f}{_SPACE}%" if share < 0.9999 else f">{_SPACE}99.99{_SPACE}%"
    return f"<{_SPACE}0.1{_SPACE}%" if written == "0.0" else f"{written}{_SPACE}%"


def count(number: int, noun: str) -> str:
    """Write a number of things: ``1 step``, ``12,000 steps``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
