"""Counts how often each source is decoded."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from core import generation
from core.generation import beam
from core.text.vocab import PAD_ID

Decodes = Counter[tuple[str, tuple[int, ...]]]  # by kind of strategy and ids of the source without PAD


@contextmanager
def counted_decodes() -> Iterator[Decodes]:
    """Count the decodes of each source inside the block, with any strategy, in whatever batch.

    A decode of one step, which finds out what a model records, does not count.
    """
    counts: Decodes = Counter()

    def counting(search):
        def decode(model, src, strategy, **settings):
            if settings["max_steps"] > 1:
                counts.update((strategy.kind, tuple(id for id in row if id != PAD_ID)) for row in src.tolist())
            return search(model, src, strategy, **settings)

        return decode

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "generate_stepwise", counting(generation.generate_stepwise))
        patch.setattr(beam, "beam_search", counting(beam.beam_search))
        yield counts
