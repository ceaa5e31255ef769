"""What any model may lack: residuals, activations, order of the target, weights that depend on the query."""

from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import model_styles
from benchmarks.mutants import SOURCE, examine
from core.teaching.doctor import diagnose
from core.teaching.doctor.finding import Examination, Finding
from tests.support.windowed import Windowed

D, SIZE = 16, 23


def finding(examination: Examination, check: str) -> Finding:
    [found] = [each for each in examination.findings if each.check == check]
    return found


def edited(line: str, broken: str) -> ModuleType:
    """The correct models as a module, with an edit."""
    module = ModuleType("edited")
    assert line in SOURCE
    exec(compile(SOURCE.replace(line, broken), "edited", "exec"), module.__dict__)  # noqa: S102 - our own file
    return module


@pytest.mark.parametrize(
    ("line", "broken", "style", "check", "words"),
    [
        (
            "return norm(x + self.dropout(sublayer(x)))",
            "return norm(self.dropout(sublayer(x)))",
            "fused",
            "residual connections",
            "the decoder's attention 1: its input is not added to its output. So it is in 5 of 5 sublayers",
        ),
        (
            "return x + self.dropout(sublayer(norm(x)))",
            "return self.dropout(sublayer(norm(x))) if number == 0 else x + self.dropout(sublayer(norm(x)))",
            "einsum, pre-norm",
            "residual connections",
            "the encoder's attention 1: its input is not added",
        ),
        (
            "y = self.add(3, y, lambda z: self.cross(z, memory, may_read))",
            "y = self.norms[3](self.cross(y, memory, may_read))",
            "matmul",
            "residual connections",
            "the decoder's attention 2: its input is not added",
        ),
        (
            "memory = self.add(1, x, self.feed[0])",
            "memory = self.norms[1](self.feed[0](x))",
            "matmul",
            "residual connections",
            "feed-forward network 1: its input is not added",
        ),
        (
            "memory = x + self.encoder",
            "memory = self.encoder",
            "convolutions",
            "residual connections",
            "convolution 1: its input is not added",
        ),
        (
            "self.places(torch.arange(tgt_in.shape[1]))  # position\n        y = self.add",
            "0  # position\n        y = self.add",
            "matmul",
            "target order",
            "Swapping two earlier target tokens changes no logit, although replacing one does",
        ),
        (
            "self.score(self.mixed(both).tanh())",
            "self.score(self.mixed(both))",
            "GRU with attention",
            "attention queries",
            "In 1 of 1 attention modules all queries have the same weights, which are not uniform",
        ),
        ("nn.ReLU()", "nn.Dropout(0.1)", "fused", "activation", "In 2 of 2 feed-forward networks nothing lies between"),
    ],
)
def test_what_is_missing_is_named(line, broken, style, check, words):
    examination = examine(edited(line, broken), style)
    found = finding(examination, check)
    assert found.light == "amber"
    assert words in found.sentence
    assert [each.check for each in examination.alarms] == [check]


class Gated(nn.Module):
    """A language model with a small embedding, as ALBERT's, gated feed-forward networks and one key for all heads."""

    def __init__(self, *, residual: bool = True) -> None:
        super().__init__()
        self.residual = residual
        self.tokens, self.places, self.wide = nn.Embedding(SIZE, 8), nn.Embedding(30, D), nn.Linear(8, D)
        self.q, self.kv, self.o = nn.Linear(D, D), nn.Linear(D, 16), nn.Linear(D, D)
        self.gate, self.up, self.down = nn.Linear(D, 3 * D), nn.Linear(D, 3 * D), nn.Linear(3 * D, D)
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(3))
        self.narrow = nn.Linear(D, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return logits (B, T, V)."""
        x = self.wide(self.tokens(ids)) + self.places(torch.arange(ids.shape[1]))
        y = self.norms[0](x)
        q = self.q(y).unflatten(2, (2, 8)).transpose(1, 2)
        k, v = self.kv(y)[:, None].chunk(2, dim=-1)
        z = F.scaled_dot_product_attention(q, k.expand_as(q), v.expand_as(q), is_causal=True)
        x = x + self.o(z.transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        fed = self.down(F.silu(self.gate(y)) * self.up(y))
        x = x + fed if self.residual else fed
        return self.narrow(self.norms[2](x)) @ self.tokens.weight.mT


@pytest.mark.parametrize("residual", [True, False])
def test_gates_and_small_embeddings_are_no_missing_residuals(residual):
    torch.manual_seed(0)
    ids = torch.randint(3, SIZE, (6, 12))
    examination = diagnose(Gated(residual=residual), None, ids)
    found = finding(examination, "residual connections")
    assert found.light == ("green" if residual else "amber")
    assert residual or "feed-forward network 1" in found.sentence
    assert finding(examination, "activation").light == "green"


def test_what_was_seen_is_named_and_nothing_is_said_of_the_rest():
    torch.manual_seed(0)
    examination = diagnose(Windowed(), *model_styles.make_batch(), **model_styles.IDS)
    assert finding(examination, "residual connections").sentence == (
        "A path to the logits goes around every sublayer seen: the decoder's attention (2), feed-forward network (2)."
    )
    assert finding(examination, "hidden tokens").sentence == (
        "Every token but PAD is attended to, in the decoder's attention and the cross-attention."
    )


@pytest.mark.parametrize("residual", [True, False])
def test_paths_begin_at_embeddings_that_are_frozen(residual):
    line = "y = self.add(3, y, lambda z: self.cross(z, memory, may_read))"
    broken = line if residual else "y = self.norms[3](self.cross(y, memory, may_read))"
    model = edited(line, broken).STYLES["matmul"]()
    for table in (model.source, model.target, model.places):
        table.requires_grad_(False)
    src, tgt = model_styles.make_batch()
    found = finding(diagnose(model, src, tgt, **model_styles.IDS), "residual connections")
    assert found.light == ("green" if residual else "amber")


def test_rows_that_do_not_sum_to_one_explain_nothing_else():
    correct = "scores.masked_fill(~mask, -1e9).softmax(dim=-1)"
    examination = examine(edited(correct, correct.replace("-1)", "0)")), "matmul")
    assert finding(examination, "attention rows").light == "red"
    for each in examination.alarms:
        assert each.check == "attention rows" or "attention" not in each.sentence, each.sentence
    for check in ("score scaling", "attention queries", "head diversity", "attention entropy"):
        assert finding(examination, check).sentence == "Not checked: rows of attention weights do not sum to 1."


def test_a_single_query_has_no_columns_to_sum():
    examination = examine(edited("scores.softmax(dim=1)", "scores.softmax(dim=0)"), "GRU with attention")
    assert "over the queries" not in finding(examination, "attention rows").sentence


def test_an_inverted_causal_mask_is_not_called_missing():
    examination = examine(edited("masked_fill(~mask, -1e9)", "masked_fill(mask, -1e9)"), "matmul")
    assert "none on earlier ones: the causal mask is flipped" in finding(examination, "causal leak").sentence
    assert finding(examination, "target order").light == "gray"
