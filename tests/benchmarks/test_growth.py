"""The theory beside which the growth of an update is measured is what PyTorch counts."""

import pytest
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.growth import Sizes, _memory, _update


@pytest.mark.parametrize("sizes", [Sizes(), Sizes(width=64, length=40, vocabulary=100, batch=3)])
def test_operations_are_those_that_pytorch_counts(sizes: Sizes):
    update = _update(sizes)
    # The counter does not know the fused kernel, which takes as many
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        update()
    assert counter.get_total_flops() == sizes.flops


def test_an_update_allocates_what_it_needs_and_little_more():
    allocated, needed = _memory(_update(Sizes(width=64, batch=64)))
    assert needed < allocated < 1.5 * needed
