"""What each part of a model computes, followed from the embedding to the logits."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from core.interpret.parts import model_parts, part_vectors
from core.models import AttentionRecorder
from core.models.encoder_only import EncoderOnly
from core.models.transformer import Transformer
from core.storage.errors import InputError
from tests.interpret.test_cell import MODELS, build, decoded, source

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def vectors(model, src, tokens, name) -> dict[str, torch.Tensor]:
    return dict(part_vectors(model, src, tokens, name).vectors)


@pytest.mark.parametrize("name", MODELS)
def test_every_part_of_every_family_can_be_opened(name):
    model, src = build(name, 0), source(5, 0)
    tokens = decoded(model, src).tokens
    parts = model_parts(model)
    assert len({part.name for part in parts}) == len(parts)
    assert {(part.block, part.layer) for part in parts if part.kind == "attention"} == set(model.attention)
    for part in parts:
        if part.kind == "attention":
            continue
        found = part_vectors(model, src, tokens, part.name)
        rows = src.shape[1] if part.side == "source" else tokens.shape[1]
        assert all(values.shape[0] == rows and values.isfinite().all() for _, values in found.vectors), part.name
        if part.kind != "output":
            is_zero = found.vectors[-1][1].abs().sum(dim=-1) == 0  # as the embedding of PAD
            assert_close(found.similarity.diagonal(), (~is_zero).double(), **CLOSE)
        assert (found.patterns is not None) == (part.kind == "positions")
    first = 2 if isinstance(model, EncoderOnly) else 1  # its logits are those of the source's positions, after BOS
    assert int(vectors(model, src, tokens, "output")["logits"][first].argmax()) == tokens[0, 1]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_parts_add_up_from_the_embedding_to_the_logits(norm):
    model, src = build(f"{norm}-norm sinusoidal", 4), source(4, 4)
    tokens = decoded(model, src).tokens
    states = vectors(model, src, tokens, "target.embedding")["after"]
    states = states + vectors(model, src, tokens, "target.positions")["after"]
    for part in model_parts(model):
        if part.kind != "add" or part.side != "target":
            continue
        step = vectors(model, src, tokens, part.name)
        assert_close(step["before"], states, **CLOSE)
        total = step["before"] + step["added"]
        states = step["after"]
        assert_close(states, total if norm == "pre" else F.layer_norm(total, total.shape[-1:]), **CLOSE)
    if norm == "pre":
        assert_close(vectors(model, src, tokens, "decoder.norm")["before"], states, **CLOSE)
        states = vectors(model, src, tokens, "decoder.norm")["after"]
    assert_close(model.output(states), vectors(model, src, tokens, "output")["logits"], **CLOSE)


def test_the_patterns_of_positions_are_those_of_equal_tokens():
    model, src = build("post-norm sinusoidal", 6), source(5, 6)
    tokens = decoded(model, src).tokens
    patterns = part_vectors(model, src, tokens, "source.positions").patterns
    torch.nn.init.zeros_(model.src_embedding.tokens.weight)
    with AttentionRecorder(model) as recorder:
        model.encode(src)
    assert_close(patterns, recorder.take().encoder[0, 0], **CLOSE)


def test_a_part_that_is_not_there_is_refused():
    model, src = build("post-norm alibi", 0), source(4, 0)
    assert isinstance(model, Transformer)
    tokens = decoded(model, src).tokens
    for name in ("source.positions", "cross.1", "decoder.9.feed-forward", "nonsense"):
        with pytest.raises(InputError, match=r"part='.*' is not one of source.embedding, encoder.1.encoder.add, "):
            part_vectors(model, src, tokens, name)
