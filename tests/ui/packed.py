"""Unpacks attention maps as the browser does."""

import base64

import numpy as np


def unpacked(maps: dict) -> np.ndarray:
    """Return the weights (L, H, rows, columns) of packed maps."""
    kind = {1: "<u1", 2: "<u2"}[maps["bytes"]]
    full = 256 ** maps["bytes"] - 1
    return np.frombuffer(base64.b64decode(maps["data"]), dtype=kind).reshape(maps["shape"]) / full
