"""Keys and values that a decoder keeps between steps, so that no token is read twice."""

from dataclasses import dataclass

import torch

from core.models.attention import KeysValues


@dataclass(frozen=True)
class LayerCache:
    """Keys and values that a decoder layer has computed.

    Attributes:
        memory: of the encoder's output, each (B, H, S, K), once for all rows that share a source; None without encoder.
        past: of the tokens read so far, each (B, H, T, K); None before the first.
    """

    memory: KeysValues | None
    past: KeysValues | None = None

    def append(self, new: KeysValues) -> "LayerCache":
        """Return the cache with the keys and values of further tokens after the past ones."""
        if self.past is None:
            return LayerCache(self.memory, new)
        key, value = (torch.cat(pair, dim=2) for pair in zip(self.past, new, strict=True))
        return LayerCache(self.memory, (key, value))

    def select(self, index: torch.Tensor) -> "LayerCache":
        """Return the cache of a batch made of these rows, (N,) int64."""
        memory, past = (pair and _select(pair, index) for pair in (self.memory, self.past))
        return LayerCache(memory, past)

    def reorder(self, index: torch.Tensor) -> "LayerCache":
        """Return the cache of rows that continue others of their sources; see ``Cache.reorder``."""
        return LayerCache(self.memory, self.past and _select(self.past, index))


@dataclass(frozen=True)
class KeyValueCache:
    """The caches of all decoder layers.

    Attributes:
        length: number of target tokens read so far.
    """

    layers: tuple[LayerCache, ...]
    length: int = 0

    def select(self, index: torch.Tensor) -> "KeyValueCache":
        """Return the cache of a batch made of these rows, (N,) int64."""
        return KeyValueCache(tuple(layer.select(index) for layer in self.layers), self.length)

    def reorder(self, index: torch.Tensor) -> "KeyValueCache":
        """Return the cache of rows that continue others of their sources; see ``Cache.reorder``."""
        return KeyValueCache(tuple(layer.reorder(index) for layer in self.layers), self.length)


def _select(pair: KeysValues, index: torch.Tensor) -> KeysValues:
    key, value = pair
    return key.index_select(0, index), value.index_select(0, index)
