"""Memory and cache can be indexed like a batch: in any order, with rows left out or repeated."""

import pytest
import torch
from torch.testing import assert_close

from core.config import Preset
from core.models import Seq2Seq, build_model
from core.tasks import Batch, build_task

INDEX = torch.tensor([3, 3, 0, 2])


@pytest.fixture(scope="module", params=["tiny", "tiny_gru"])
def preset(request) -> Preset:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def model(preset) -> Seq2Seq:
    return build_model(preset.model, build_task(preset.task), torch.Generator().manual_seed(0)).eval()


@pytest.fixture(scope="module")
def batch(preset) -> Batch:
    """Five pairs; no test may change them."""
    return build_task(preset.task).sample(5, split="train", generator=torch.Generator().manual_seed(1))


def test_selected_rows_of_memory_and_cache_decode_as_in_the_batch(model, batch):
    memory = model.encode(batch.src)
    first = model.decode(batch.tgt_in[:, :2], memory)
    expected = model.decode(batch.tgt_in[:, 2:4], memory, first.cache)

    some = memory.select(INDEX)
    again = model.decode(batch.tgt_in[INDEX, 2:4], some, first.cache.select(INDEX))
    assert_close(again.logits, expected.logits[INDEX], atol=1e-6, rtol=0)
    # In the order of the first four, each two of which had the same source: what is left to do is less.
    pairs, order = torch.tensor([3, 3, 2, 2]), torch.tensor([1, 0, 3, 3])
    first = model.decode(batch.tgt_in[:4, :2], model.encode(batch.src[pairs]))
    moved, kept = first.cache.select(order), first.cache.reorder(order)
    again = [model.decode(batch.tgt_in[:4, 2:4], memory.select(pairs), each).logits for each in (moved, kept)]
    assert torch.equal(*again)
    # Also before the first token, when there is nothing of the past yet.
    fresh = model.decode(batch.tgt_in[INDEX, :1], some).logits
    assert_close(fresh, model.decode(batch.tgt_in[:, :1], memory).logits[INDEX], atol=1e-6, rtol=0)


def test_rows_that_share_a_source_decode_as_if_each_had_its_own(model, batch):
    batch = batch[:3]
    memory = model.encode(batch.src)
    cache = model.decode(batch.tgt_in[:, :2], memory).cache
    token = batch.tgt_in[[0, 1, 2] * 4, 2:3]  # others for rows of one source
    wide = torch.arange(3).repeat_interleave(4)
    one_by_one = [
        model.decode(token[row : row + 1], memory.select(at), cache.select(at)) for row, at in enumerate(wide[:, None])
    ]
    for make in (cache.select, cache.reorder):
        step = model.decode(token, memory.select(wide), make(wide))
        assert_close(step.logits, torch.cat([each.logits for each in one_by_one]), atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_a_cache_can_be_continued_twice(model, batch):
    batch = batch[:3]
    memory = model.encode(batch.src)
    cache = model.decode(batch.tgt_in[:, :1], memory).cache
    for _ in range(2):
        cache = model.decode(batch.tgt_in[:, 1:2], memory, cache).cache
    once = model.decode(batch.tgt_in[:, 2:3], memory, cache)
    other = model.decode(batch.tgt_in[:, 3:4], memory, cache)
    again = model.decode(batch.tgt_in[:, 2:3], memory, cache)
    assert torch.equal(once.logits, again.logits)
    assert not torch.equal(once.logits, other.logits)
    further = [model.decode(batch.tgt_in[:, :1], memory, each.cache).logits for each in (once, again)]
    assert torch.equal(*further)


@torch.no_grad()
def test_a_reordered_cache_of_some_sources_decodes_as_these_rows(model, batch):
    batch = batch[:3]
    memory = model.encode(batch.src)
    wide = torch.arange(3).repeat_interleave(2)
    cache = model.decode(batch.tgt_in[:, :2], memory).cache.reorder(wide)
    token = torch.tensor([3, 4, 5, 6, 7, 8])[:, None]
    step = model.decode(token, memory.select(wide), cache)
    rows, sources = torch.tensor([1, 1, 5, 4]), torch.tensor([0, 2])
    some = model.decode(token[:4], memory.select(wide[rows]), step.cache.reorder(rows, sources))
    order = torch.tensor([1, 1, 2, 2, 5, 4])
    of_all = model.decode(torch.cat([token[:2], token[:2], token[2:4]]), memory.select(wide), step.cache.reorder(order))
    assert_close(some.logits, of_all.logits[[0, 1, 4, 5]], atol=1e-6, rtol=1e-5)
