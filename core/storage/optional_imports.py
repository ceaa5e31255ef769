"""Packages that only some things need, so that the rest works without them."""

import importlib
from types import ModuleType

from core.storage.errors import LabError


def require_package(package: str, *, purpose: str) -> ModuleType:
    """Import a package.

    Raises:
        LabError: it is not installed; the message says what it is for and how to get it.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise LabError(f"{purpose} needs the package {package}: pip install {package}") from error
