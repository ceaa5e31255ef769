"""The page's address after a decode, as the browser keeps it."""

from typing import Any


def address_of(updates: dict[str, Any]) -> dict[str, str]:
    """Return the parameters of the address that the updates of a decode leave; empty ones are removed from it."""
    return {name: value for name, value in updates["address"]["parameters"].items() if value}
