"""A decode with its attention maps as the page's scripts read it; ``ui/web/maps.js`` documents the keys."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from core.config.counting import counted
from core.text.vocab import EOS
from ui.attention_blocks import Block, described, source_block
from ui.current_decode import CurrentDecode
from ui.subword_texts import sentences, words_of, words_of_steps

MAX_RIBBON_TOKENS = 128  # of the source or of the output
_FULL = 65_535  # 16 bits per weight: no displayed digit is lost


def ribbon_record(decode: CurrentDecode) -> dict[str, Any] | None:
    """Return a decode as a record with the maps through which the answer reads the source only.

    None for a model without any, and for a decode of more tokens than lines between them could show.
    """
    block = decode.source_block
    tokens = max(len(decode.inspection.source_labels), len(decode.inspection.steps))
    if block is None or block == "encoder" or tokens > MAX_RIBBON_TOKENS:
        return None
    return decode_record(decode, [block])


def decode_record(decode: CurrentDecode, maps: Sequence[Block] | None = None) -> dict[str, Any]:
    """Return a decode as a record, with the maps of some attention blocks; None stands for all of them."""
    inspection, blocks = decode.inspection, decode.blocks
    tokens = [step.produced for step in inspection.steps]
    suffix = f", {decode.interventions}" if decode.interventions else ""
    return {
        "run": decode.title,
        "model": f"{decode.title} after {counted(decode.step, 'step')}{suffix}",
        "source": inspection.source_labels,
        "tokens": tokens,
        **words_and_texts(inspection.source_labels, tokens, inspection.expected, subwords=inspection.has_subwords),
        "expected": [*inspection.expected, EOS] if inspection.expected else None,
        "blocks": described(blocks),
        "maps": {block: _pack(getattr(inspection.maps, block)[:, 0].numpy()) for block in maps or blocks},
        "scored_block": source_block(blocks) if inspection.scores else None,
        "attention_mass": _by_layer([(score.layer, score.attention_mass) for score in inspection.scores]),
        "scored_on": "on this input",
        "uniform_mass": inspection.scores[0].uniform_mass if inspection.scores else None,
        "gold_cells": decode.gold_cells,
        "marks": decode.marks,
        "ablated": list(decode.interventions.ablate),
        "name": decode.run,
        "interventions": {
            "ablate": list(decode.interventions.ablate),
            "patterns": list(decode.interventions.patterns),
            "ablate_with": decode.interventions.ablate_with,
        },
    }


def words_and_texts(
    source: Sequence[str], tokens: Sequence[str], expected: Sequence[str] | None, *, subwords: bool
) -> dict[str, Any]:
    """Return what a decode in subwords has beside its tokens: sentences, and the words that its pieces make."""
    if not subwords:
        return {}
    texts = sentences(source=source, output=tokens, expected=expected)
    return {"texts": texts, "words": {"source": words_of(source), **words_of_steps(tokens)}}


def _pack(weights: np.ndarray) -> dict[str, Any]:
    """Pack attention weights (L, H, Tq, Tk) float into 16-bit little-endian integers, base64-encoded."""
    numbers = (weights * _FULL).round().astype("<u2")
    return {"shape": weights.shape, "bytes": 2, "data": base64.b64encode(numbers.tobytes()).decode()}


def _by_layer(scores: Sequence[tuple[int, float]]) -> list[list[float]] | None:
    """Group (layer, score) of every head into one list per layer; None without scores."""
    layers: dict[int, list[float]] = {}
    for layer, score in scores:
        layers.setdefault(layer, []).append(score)
    return list(layers.values()) or None
