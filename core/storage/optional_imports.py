"""Import packages that only some features need."""

import importlib
from types import ModuleType

from core.storage.errors import LabError


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
        raise LabError(f"{purpose} needs the package {package}: pip install {package}") from error
