"""The reader's own file: imported once, with the parts of a Transformer found in it by their names."""

import importlib.util
import inspect
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from core.storage.error_messages import place_in, shown
from core.storage.errors import InputError
from core.teaching.milestones.names import NAMES, PartName


@dataclass(frozen=True)
class OwnFile:
    """A module with implementations to check: the reader's file, or the lab's modules under the document's names.

    Attributes:
        path: of the file; "" for the lab's own modules.
        parts: what was found, by the name of the part.
        found_as: the name of each part in the file.
    """

    path: str
    parts: dict[PartName, Any] = field(default_factory=dict)
    found_as: dict[PartName, str] = field(default_factory=dict)

    def line_of(self, error: Exception) -> str:
        """Return where in the file an exception was raised, as the end of a sentence; "" if not in it."""
        place = place_in(Path(self.path), error) if self.path else ""
        return f", {place} of the file" if place.startswith("line ") else ""


def load_own_file(path: Path) -> OwnFile:
    """Import a Python file and find the parts in it; it runs with all rights of the user who names it.

    Raises:
        InputError: the file cannot be read, is not Python, or does not run to its end; the message names its line.
    """
    file = path.resolve()
    if not file.is_file():
        raise InputError(f"--module={str(path)!r} is not a file")
    spec = importlib.util.spec_from_file_location(f"own_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise InputError(f"--module={str(path)!r} must be a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses look up their module there
    sys.path.insert(0, str(file.parent))  # the file may import others beside it
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        raise InputError(
            f"--module={str(path)!r} ends the program while it is imported: put what runs below "
            'if __name__ == "__main__":'
        ) from error
    except Exception as error:
        raise InputError(f"--module={str(path)!r}, {place_in(file, error)}: {shown(error)}") from error
    finally:
        sys.path.remove(str(file.parent))
    parts = parts_of(module)
    return OwnFile(
        str(file),
        {part: getattr(module, name) for part, name in parts.items()},
        parts,
    )


def parts_of(module: ModuleType) -> dict[PartName, str]:
    """Return the names in a module by which its parts are found; those of PyTorch itself do not count."""
    own = {_plain(name): name for name, value in vars(module).items() if not name.startswith("_") and _is_own(value)}
    found: dict[PartName, str] = {}
    for part, names in NAMES.items():
        name = next((own[_plain(each)] for each in names if _plain(each) in own), None)
        if name is not None:
            found[part] = name
    return found


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _is_own(value: Any) -> bool:
    """Whether a value is a class or a function, and not of PyTorch; an object that can be called is a result."""
    if not (inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, partial)):
        return False
    value = value.func if isinstance(value, partial) else value
    home = inspect.getmodule(value)
    return value is not torch.nn.functional.scaled_dot_product_attention and (
        home is None or home.__name__.partition(".")[0] not in ("torch", "builtins")
    )
