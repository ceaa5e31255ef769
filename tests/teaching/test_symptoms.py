"""The list of symptoms: its links lead somewhere, its code holds for a correct model, and its masks are right."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from core.teaching.attention_lessons import attention_lessons
from core.teaching.lessons import lesson_names
from core.teaching.symptoms import Symptom, symptoms

PAD, BOS, EOS = 0, 1, 2
TABS = {"train", "decode", "attention", "report", "compare", "sweep", "lessons"}
NUM_TOKENS, B, H = 12, 2, 2


class Model(nn.Module):
    """A correct model on ``nn.Transformer``."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(NUM_TOKENS, 8)
        self.positions = nn.Embedding(16, 8)
        self.transformer = nn.Transformer(8, H, 1, 1, 16, dropout=0.0, batch_first=True)
        self.output = nn.Linear(8, NUM_TOKENS)

    def forward(self, src: torch.Tensor, tgt_in: torch.Tensor, **masks: torch.Tensor) -> torch.Tensor:
        """Return logits (B, T, V)."""
        length = tgt_in.shape[1]
        given = masks or {
            "tgt_mask": torch.ones(length, length, dtype=torch.bool).triu(1),
            "src_key_padding_mask": src == PAD,
            "tgt_key_padding_mask": tgt_in == PAD,
            "memory_key_padding_mask": src == PAD,
        }
        states = [self.tokens(ids) + self.positions.weight[: ids.shape[1]] for ids in (src, tgt_in)]
        return self.output(self.transformer(*states, **given))


@pytest.fixture
def names() -> dict[str, Any]:
    """What the code of the list may name."""
    torch.manual_seed(0)
    src = torch.tensor([[BOS, 5, 6, 7, EOS], [BOS, 8, 9, EOS, PAD]])
    labels = torch.tensor([[7, 6, 5, EOS], [9, 8, EOS, PAD]])
    tgt_in = torch.cat([torch.full((B, 1), BOS), labels[:, :-1]], dim=1)
    model, width = Model().eval(), 8
    visible = (src != PAD)[:, None, None, :].expand(B, 1, 4, 5) & (torch.arange(5) <= torch.arange(4)[:, None] + 1)
    return globals() | {
        **{
            "src": src,
            "labels": labels,
            "tgt_in": tgt_in,
            "model": model,
            "visible": visible,
            "num_tokens": NUM_TOKENS,
        },
        **{"T": tgt_in.shape[1], "S": src.shape[1], "K": width // H, "x": torch.randn(B, 4, width)},
        **{
            "loss": torch.tensor(2.0),
            "math": math,
            "w_q": nn.Linear(width, width),
            "tgt_key_padding_mask": tgt_in == PAD,
        },
    }


@pytest.mark.parametrize("symptom", symptoms(), ids=lambda each: each.id)
def test_links_lead_somewhere_and_the_code_holds_for_a_correct_model(symptom: Symptom, names: dict[str, Any]):
    lessons = {*lesson_names(), *(each.name for each in attention_lessons())}
    for link in symptom.links:
        assert link.query["tab"] in TABS
        assert link.query.get("lesson", "no-causal-mask") in lessons
    assert all("://" in address for _, address in symptom.sources)
    with torch.no_grad():
        exec(symptom.code, names)  # noqa: S102 - of the repository


def test_the_code_fails_for_a_model_that_reads_ahead_and_attends_to_pad(names: dict[str, Any]):
    codes = {each.id: each.code for each in symptoms()}
    plain, hidden = names["model"], {"src_key_padding_mask": torch.zeros(B, 8, dtype=torch.bool)}
    names["model"] = lambda src, tgt_in: plain(
        src, tgt_in, src_key_padding_mask=hidden["src_key_padding_mask"][:, : src.shape[1]]
    )
    for name in ("good-loss-bad-output", "batch-dependent"):
        with torch.no_grad(), pytest.raises(AssertionError):
            exec(codes[name], names)  # noqa: S102 - of the repository


def test_every_row_of_the_table_of_masks_gives_the_same_attention(names: dict[str, Any]):
    (table,) = (each.table for each in symptoms() if each.table)
    code = {row[0]: eval(row[-1], names) for row in table.rows}  # noqa: S307 - of the repository
    visible, src = code["masks of this project"], names["src"]
    attention = nn.MultiheadAttention(8, H, batch_first=True).eval()
    query, key = torch.randn(B, 4, 8), torch.randn(B, 5, 8)

    def attend(**masks: torch.Tensor) -> torch.Tensor:
        return attention(query, key, key, **masks)[0]

    expected = attend(attn_mask=code["nn.MultiheadAttention, attn_mask"])
    floats = code["a mask of floats, in all of them"]
    assert torch.allclose(attend(attn_mask=floats.expand(B, H, 4, 5).flatten(0, 1)), expected, atol=1e-6)
    heads = [torch.randn(B, H, length, 4) for length in (4, 5, 5)]
    fused = F.scaled_dot_product_attention(*heads, attn_mask=code["F.scaled_dot_product_attention, attn_mask"])
    scores = heads[0] @ heads[1].transpose(-2, -1) / 2
    assert torch.allclose(fused, scores.masked_fill(~visible, -torch.inf).softmax(-1) @ heads[2], atol=1e-6)
    assert torch.allclose(F.scaled_dot_product_attention(*heads, attn_mask=floats), fused, atol=1e-6)
    padding = (src != PAD)[:, None, None, :].expand(B, H, 4, 5).flatten(0, 1)
    hidden = code["nn.MultiheadAttention, key_padding_mask"]
    assert torch.allclose(attend(key_padding_mask=hidden), attend(attn_mask=~padding), atol=1e-6)
    assert torch.equal(code["transformers, attention_mask"] == 0, hidden)
    assert torch.equal(~code["nn.Transformer, tgt_mask"], torch.ones(4, 4, dtype=torch.bool).tril())
