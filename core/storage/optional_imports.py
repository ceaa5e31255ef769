"""Import packages that only some features need."""

import importlib
from importlib.util import find_spec
from types import ModuleType

from core.storage.errors import LabError


def is_installed(package: str) -> bool:
    """Return whether an optional package is installed; it is not imported."""
    return find_spec(package) is not None


def needs_package(package: str) -> str:
    """Return the end of a sentence that says how to install a package."""
    return f"needs the package {package}: pip install {package}"


def require_package(package: str, *, purpose: str) -> ModuleType:
    """Import an optional package.

    Args:
        purpose: the feature that needs it, for the message.

    Raises:
        LabError: the package is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise LabError(f"{purpose} {needs_package(package)}") from error
