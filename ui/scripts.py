"""The page's small scripts, each a file in ``ui/assets/``."""

from pathlib import Path

ASSETS = Path(__file__).parent / "assets"


def script(name: str) -> str:
    """Return the JavaScript function in ``ui/assets/<name>.js``, for an event's or the page's ``js``."""
    return (ASSETS / f"{name}.js").read_text(encoding="utf-8").strip()
