"""The precision of an examination: as if it were the default one, and unseen by other threads."""

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from core.interpret.any_module.kept_states import computing_in

IDS = torch.arange(6).view(2, 3)
NEW: dict[str, Callable[[], Tensor]] = {
    "zeros": lambda: torch.zeros(3),
    "full": lambda: torch.full((2,), float("-inf")),
    "from data": lambda: torch.tensor([1.0, 2.0]),
    "range": lambda: torch.arange(4.0),
    "range of ints": lambda: torch.arange(4),
    "ints divided": lambda: torch.arange(0, 8, 2) / 8,
    "root of an int": lambda: torch.tensor(64).sqrt(),
    "choice": lambda: torch.where(IDS > 3, 1.0, 0.0),
    "causal mask": lambda: nn.Transformer.generate_square_subsequent_mask(3),
    "one-hot": lambda: nn.functional.one_hot(IDS, 10) * 1.0,
    "powers": lambda: torch.pow(2, -torch.arange(4) * 0.5),
    "random": lambda: torch.randn(2),
    "named precision": lambda: torch.zeros(2, dtype=torch.float32),
    "converted": lambda: IDS.float(),
    "like another": lambda: torch.zeros_like(torch.zeros(2, dtype=torch.float32)),
}


@pytest.mark.parametrize("name", NEW)
def test_new_tensors_have_the_precision_that_a_default_would_give_them(name: str):
    torch.set_default_dtype(torch.float64)
    try:
        expected = NEW[name]()
    finally:
        torch.set_default_dtype(torch.float32)
    with computing_in(torch.float64, nn.Linear(1, 1)):
        assert NEW[name]().dtype == expected.dtype


def test_other_threads_keep_their_precision():
    found = []
    with computing_in(torch.float64, nn.Linear(1, 1)):
        other = threading.Thread(target=lambda: found.append(torch.zeros(1).dtype))
        other.start()
        other.join()
    assert found == [torch.float32]
