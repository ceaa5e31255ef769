"""Browser code that components share: scripts, styles and colors, as text."""

from pathlib import Path

WEB = Path(__file__).parent


def script(name: str) -> str:
    """Return the JavaScript function in ``ui/web/<name>.js``, for the ``js`` of an event listener."""
    return (WEB / f"{name}.js").read_text(encoding="utf-8").strip()
