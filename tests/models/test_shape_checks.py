"""Bad calls of attention: the message has the names of the axes, the sizes, and the rule."""

import pytest
import torch

from core.models.attention import MultiHeadAttention

X = torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("x", "mask", "error", "message"),
    [
        (X[..., :60], None, ValueError, r"x is (B=2, T=5, D=60): it must be (B, T, D) with D=64"),
        (X[0], None, ValueError, r"x is (5, 64): it must be (B, T, D)"),
        (X[[0, 1, 1]], None, ValueError, "queries of B=3 sequences and keys of B=2"),
        (X, torch.ones(5, 5), TypeError, "mask is float32: it must be bool, True = may attend. Write mask.bool()"),
        (X, torch.zeros(5, 5), TypeError, "mask == 0 if 1 means hidden or if it is added to the scores"),
        (X, torch.ones(2, 5, dtype=torch.int64), TypeError, "mask is int64"),
        (X, torch.ones(2, 5, dtype=torch.bool), ValueError, "mask is (2, 5): it must be broadcastable"),
        (X, torch.ones(7, 7, dtype=torch.bool), ValueError, "here (B=2, H=4, Tq=5, Tk=5)"),
    ],
)
def test_a_bad_call_is_refused_with_names_sizes_and_rule(
    x: torch.Tensor, mask: torch.Tensor | None, error: type[Exception], message: str
):
    attention = MultiHeadAttention(64, 4)
    keys_values = attention.keys_values(X)
    with pytest.raises(error) as refused:
        attention(x, keys_values, mask)
    assert message in str(refused.value)


def test_keys_of_another_attention_are_refused():
    attention, other = MultiHeadAttention(64, 4), MultiHeadAttention(64, 8)
    with pytest.raises(ValueError, match=r"queries are \(B=2, H=4, T=5, K=16\) and keys \(B=2, H=8, T=5, K=8\)"):
        attention(X, other.keys_values(X))
    key, value = attention.keys_values(X)
    with pytest.raises(ValueError, match=r"values \(B=2, H=4, T=4, K=16\): they must be equal"):
        attention(X, (key, value[:, :, :4]))
