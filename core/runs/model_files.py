"""Read the weights and settings of models that other programs wrote: safetensors, state dicts, JSON.

Only the local user's own files are read here. Nothing is unpickled but tensors, with ``weights_only``.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from core.models.positions import sinusoidal_positions
from core.storage.error_messages import short_repr, shortened
from core.storage.errors import LabError

MAX_MODEL_BYTES = 4 * 1024**3
_SINES_ROUNDING = 2.5e-3  # bfloat16 rounds numbers up to 1 by at most 2 ** -9
_FORMATS = torch.float32, torch.float16, torch.bfloat16, torch.float64
_NAME_SHOWN = 100  # characters of a tensor's name, in a message
_STATE_KEYS = "model_state_dict", "state_dict", "model"  # of checkpoints that hold more than weights


class ModelImportError(LabError):
    """A model cannot be imported; the message names the file or field, its value, and the rule."""


def read_weights(folder: Path, ignored: str = "") -> dict[str, torch.Tensor]:
    """Return the tensors of a folder in float32.

    Args:
        ignored: a regular expression for the whole names of tensors that are no weights.

    Raises:
        ModelImportError: there are none, they are damaged or too large, or ``check_weight`` refuses one.
    """
    files = _weight_files(folder)
    size = sum(file.stat().st_size for file in files if file.is_file())
    if size > MAX_MODEL_BYTES:
        raise ModelImportError(f"the weights have {size:,} bytes; the limit is {MAX_MODEL_BYTES:,}")
    state: dict[str, torch.Tensor] = {}
    for file in files:
        state |= _read_tensors(file)
    state = {name: tensor for name, tensor in state.items() if not re.fullmatch(ignored, name)}
    for name, tensor in state.items():
        check_weight(name, tensor)
    return {name: tensor.float() for name, tensor in state.items()}


def check_weight(name: str, tensor: torch.Tensor) -> None:
    """Raise ModelImportError unless a tensor has the floating-point numbers of a weight, all of them finite."""
    if tensor.dtype not in _FORMATS:
        formats = ", ".join(map(_short_name, _FORMATS[:-1]))
        raise ModelImportError(
            f"tensor {short_repr(name, _NAME_SHOWN)} has dtype {_short_name(tensor.dtype)}; a weight must be "
            f"{formats} or {_short_name(_FORMATS[-1])}"
        )
    if not tensor.isfinite().all():
        raise ModelImportError(f"tensor {short_repr(name, _NAME_SHOWN)} has values that are not finite")


def _short_name(kind: torch.dtype | torch.layout) -> str:
    return str(kind).removeprefix("torch.")


def read_state_dict(file: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of one file as they are; of a checkpoint with more in it, those of its model.

    Raises:
        ModelImportError: the file is missing, damaged or too large, or has no state dict.
    """
    if file.exists() and not file.is_file():
        raise ModelImportError(f"{file.name} is not a regular file")
    if file.is_file() and file.stat().st_size > MAX_MODEL_BYTES:
        raise ModelImportError(f"{file.name} has {file.stat().st_size:,} bytes; the limit is {MAX_MODEL_BYTES:,}")
    return _read_tensors(file)


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or any("/" in str(name) or "\\" in str(name) for name in names.values()):
            raise ModelImportError(f"{index.name}: its weight_map is not one of file names")
        return [folder / str(name) for name in sorted(set(names.values()))]
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return [folder / name]
    raise ModelImportError(f"{folder.name} has neither model.safetensors nor pytorch_model.bin")


def _read_tensors(file: Path) -> dict[str, torch.Tensor]:
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        state = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise ModelImportError(f"{file.name} is missing") from error
    except (OSError, SafetensorError, RuntimeError, ValueError, EOFError) as error:
        # The libraries' own sentences speak of archives, headers and seeks.
        reason = "it is empty, damaged or cut off"
        if isinstance(error, OSError) and error.filename is not None:
            reason = str(error.strerror)
        raise ModelImportError(f"{file.name} cannot be read: {reason}") from error
    except Exception as error:  # weights_only raises pickle's own error for what is not tensors
        raise ModelImportError(
            f"{file.name} has no tensors, or holds more than tensors, and nothing else is loaded; "
            "save model.state_dict() with torch.save"
        ) from error
    for key in _STATE_KEYS:
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in state.items()
    ):
        raise ModelImportError(
            f"{file.name} is not a state dict: names of tensors and their values; nor a dictionary that has one under "
            f"{', '.join(map(repr, _STATE_KEYS))}"
        )
    return _dense(state)


def _dense(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors by name; ModelImportError if the values of one are not stored one by one."""
    for name, tensor in state.items():
        forms = {
            f"quantized ({_short_name(tensor.dtype)})": tensor.is_quantized,
            f"sparse ({_short_name(tensor.layout)})": tensor.layout != torch.strided,
            "on the device meta, which keeps no values": tensor.is_meta,
        }
        if form := next((form for form, is_it in forms.items() if is_it), ""):
            raise ModelImportError(f"tensor {short_repr(name, _NAME_SHOWN)} is {form}; a weight must be a dense tensor")
    return dict(state)


def read_json(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file; ModelImportError if it is missing or damaged."""
    try:
        content = json.loads(file.read_bytes())
    except OSError as error:
        raise ModelImportError(f"{file.name} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelImportError(f"{file.name} is not JSON: {shortened(str(error), 100)}") from error
    if not isinstance(content, dict):
        raise ModelImportError(f"{file.name} is not a JSON object")
    return content


def is_sinusoidal(table: torch.Tensor, *, in_halves: bool = False) -> bool:
    """Whether a table (length, d_model) float of any precision has the sinusoidal encodings, up to its rounding."""
    sines = sinusoidal_positions(*table.shape, in_halves=in_halves)
    return torch.allclose(table.float(), sines, rtol=0, atol=_SINES_ROUNDING)
