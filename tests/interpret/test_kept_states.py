"""The precision of an examination: as if it were the default one, and unseen by other threads."""

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from core.interpret.any_module.kept_states import computing_in, examined

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


class Writing(nn.Module):
    """Writes into its weights, buffers and other tensors while it is examined, as RWKV rescales its weights."""

    def __init__(self):
        super().__init__()
        self.rows, self.out, self.norm = nn.Embedding(10, 4, max_norm=0.1), nn.Linear(4, 10), nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("shared", torch.arange(3)[None].expand(2, 3))
        self.kept, self.by_length, self.seen = torch.zeros(3), {"sums": [torch.zeros(3)]}, []

    def forward(self, ids):
        if not self.training:
            self.calls += 1
            self.shared[0].add_(1)
            self.kept[0] = self.calls
            self.by_length["sums"][0].add_(1)
            self.by_length[len(ids)] = torch.zeros(len(ids))
            self.seen.append(ids)
            self.out.weight.data.div_(2)
            torch.neg(self.out.bias, out=self.out.bias.data)
            torch._foreach_mul_([self.norm.weight.data], 3)
            self.out.weight.grad.zero_()
            self.norm.train()
        return self.out(self.norm(self.rows(ids)))


def test_examinations_that_overlap_turn_fused_layers_off_until_the_last_ends():
    enabled = torch.backends.mha.get_fastpath_enabled
    first, second = examined(None), examined(None)
    assert enabled()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not enabled()
    second.__exit__(None, None, None)
    assert enabled()


def test_what_a_model_writes_into_its_tensors_and_attributes_is_undone():
    model, ids = Writing(), IDS.flatten()
    model(ids).sum().backward()
    loss = model(ids[:2]).square().sum()

    def values():
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        others = (model.kept, *model.by_length["sums"])
        return [each.clone() for each in (*model.state_dict().values(), *others, *gradients)]

    before, versions = values(), [each._version for each in model.parameters()]
    with torch.no_grad(), examined(model):
        model(ids + 4)  # and rows that training has not shortened
        changed = sum(not torch.equal(*each) for each in zip(before, values(), strict=True))
    assert changed == len(before) - 5  # a bias and four gradients
    assert (list(model.by_length), model.seen) == (["sums"], [])
    assert [each._version for each in model.parameters()] == versions
    assert all(torch.equal(*each) for each in zip(before, values(), strict=True))
    loss.backward()  # its graph has read the weights as they are again
