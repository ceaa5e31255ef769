"""The arithmetic of a cell multiplies out to the recorded weight, and to the model's own output."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from core.generation import generate
from core.interpret.cell import CellArithmetic, cell_arithmetic
from core.interpret.interventions import NO_INTERVENTIONS, Interventions, Pattern
from core.models.decoder_only import DecoderOnly
from core.models.encoder_only import EncoderOnly
from core.models.gru import GRUSeq2Seq
from core.models.seq2seq import Head, Seq2Seq
from core.models.transformer import Transformer
from core.storage.errors import InputError
from core.text.vocab import BOS_ID, EOS_ID
from tests.support.attribution_models import CONTINUING
from tests.support.scripted_models import make_model

SIZES = {"max_seq_len": 12, "d_model": 16, "num_heads": 2, "d_ff": 24}
LAYERS = {"num_encoder_layers": 1, "num_decoder_layers": 2}
BLOCKS = (
    ("post", "sinusoidal"),
    ("pre", "sinusoidal"),
    ("post", "learned"),
    ("post", "alibi"),
    ("pre", "alibi"),
    ("pre", "rope"),
    ("pre", "vo-rope"),
)
MODELS = {
    **{
        f"{norm}-norm {positions}": (Transformer, SIZES | LAYERS | {"norm": norm, "positions": positions})
        for norm, positions in BLOCKS
    },
    "window": (Transformer, SIZES | LAYERS | {"attention": "window", "attention_window": 2}),
    "log-length": (Transformer, SIZES | LAYERS | {"attention_scale": "log-length", "attention_temperature": 0.5}),
    "linear": (Transformer, SIZES | LAYERS | {"attention": "linear"}),
    **{
        f"decoder-only {positions}": (DecoderOnly, SIZES | {"num_layers": 2, "norm": "pre", "positions": positions})
        for positions in ("learned", "alibi", "vo-rope")
    },
    "relative bias, gated": (
        Transformer,
        SIZES | LAYERS | {"norm": "pre", "positions": "relative-bias", "feed_forward_block": "gated"},
    ),
    "continuing": (
        DecoderOnly,
        SIZES | {"num_layers": 2, "norm": "pre", "positions": "learned"} | CONTINUING,
    ),
    "encoder-only": (EncoderOnly, SIZES | {"num_layers": 2}),
    "encoder-only pre-norm alibi": (EncoderOnly, SIZES | {"num_layers": 2, "norm": "pre", "positions": "alibi"}),
    **{
        cell: (GRUSeq2Seq, {"max_seq_len": 12, "d_embedding": 6, "d_hidden": 8, "num_layers": 2, "cell": cell})
        for cell in ("gru", "lstm")
    },
    **{
        attention: (GRUSeq2Seq, {"max_seq_len": 12, "d_embedding": 6, "d_hidden": 8, "attention_type": attention})
        for attention in ("location-sensitive", "last-token")
    },
}
EXACT = {"atol": 1e-6, "rtol": 0}


def build(name: str, seed: int) -> Seq2Seq:
    kind, config = MODELS[name]
    torch.manual_seed(seed)
    model = make_model(kind, **config).eval()
    for parameter in model.parameters():
        if parameter.shape[0] == config["max_seq_len"] * (2 if kind is DecoderOnly else 1):
            torch.nn.init.normal_(parameter)  # learned positions, which have no default
    return model


def decoded(model: Seq2Seq, src: torch.Tensor, interventions: Interventions = NO_INTERVENTIONS):
    with interventions.applied_to(model):
        return generate(model, src, max_steps=6, need_weights=True)


def source(length: int, seed: int) -> torch.Tensor:
    ids = torch.randint(3, 13, (1, length), generator=torch.Generator().manual_seed(seed))
    return torch.cat([torch.tensor([[BOS_ID]]), ids, torch.tensor([[EOS_ID]])], dim=1)


def follow(cell: CellArithmetic) -> None:
    """Every line follows from the line before."""
    assert_close(cell.products.sum() / cell.divisor + (0 if cell.bias is None else cell.bias[cell.column]),
                 cell.scores[cell.column], atol=1e-6, rtol=1e-6)  # fmt: skip
    kept = cell.scores.masked_fill(~cell.visible, -math.inf)
    shares = (cell.scores * cell.visible) / (cell.scores * cell.visible).sum()
    assert_close(cell.weights, shares if cell.method == "linear" else kept.softmax(dim=0), **EXACT)
    assert cell.weights.shape == cell.visible.shape == cell.scores.shape
    assert_close((cell.weights[:, None] * cell.values).sum(dim=0), cell.weighted_sum, **EXACT)
    if not cell.rotated_back:
        assert_close(cell.weighted_sum, cell.output, **EXACT)
    else:
        assert_close(cell.weighted_sum.norm(), cell.output.norm(), **EXACT)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=3)
@given(seed=st.integers(0, 2**16), length=st.integers(1, 6), choice=st.data())
def test_a_cell_multiplies_out_to_the_recorded_weight(name, seed, length, choice):
    model, src = build(name, seed), source(length, seed)
    result = decoded(model, src)
    head = choice.draw(st.sampled_from(model.heads))
    weights = getattr(result.maps, head.block)[head.layer - 1, 0, head.head - 1]
    row, column = (choice.draw(st.integers(0, count - 1)) for count in weights.shape)
    cell = cell_arithmetic(model, src, result.tokens, head, row, column)
    assert_close(cell.weights, weights[row].double(), **EXACT)
    assert cell.replaced == ()
    follow(cell)
    for step in cell.stream:
        assert step.before.shape == step.added.shape == step.after.shape == (16,)
    for earlier, later in zip(cell.stream, cell.stream[1:], strict=False):
        assert_close(earlier.after, later.before, **EXACT)
    step = row - 1 if isinstance(model, EncoderOnly) else row
    if (head.block == "encoder" and not isinstance(model, EncoderOnly)) or not 0 <= step < result.tokens.shape[1]:
        assert cell.answer is None
    else:
        assert int(cell.answer.logits.argmax()) == cell.answer.produced == result.tokens[0, step]


@pytest.mark.parametrize("name", ["post-norm alibi", "pre-norm vo-rope", "decoder-only learned"])
def test_the_outputs_of_all_heads_and_the_bias_are_the_sublayers(name):
    model, src = build(name, 0), source(4, 0)
    tokens = decoded(model, src).tokens
    for block, layer in model.attention:
        heads = [cell_arithmetic(model, src, tokens, Head(block, layer, head), 1, 0) for head in (1, 2)]
        bias = model.attention[block, layer].w_o.bias.double()
        assert_close(sum(each.head_addition for each in heads) + bias, heads[0].stream[0].added, **EXACT)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_stream_is_added_up_and_normalized(norm):
    model, src = build(f"{norm}-norm sinusoidal", 3), source(5, 3)
    tokens = decoded(model, src).tokens
    cell = cell_arithmetic(model, src, tokens, Head("decoder", 2, 1), 2, 1)
    assert [step.name for step in cell.stream] == ["attention", "cross-attention", "feed-forward"]
    layer = model.decoder_layers[1]
    norms = (layer.norm_self, layer.norm_cross, layer.norm_feed_forward)
    for step, module in zip(cell.stream, norms, strict=True):
        total = step.before + step.added
        assert_close(step.after, total if norm == "pre" else module(total.float()).double(), **EXACT)
    last = cell.stream[-1].after.float()
    assert_close(model.output(model.decoder_norm(last)).double(), cell.answer.logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["post-norm sinusoidal", "decoder-only alibi", "gru", "linear"])
def test_an_ablated_head_is_said_to_be_replaced(name):
    model, src = build(name, 1), source(4, 1)
    head = model.heads[-1]
    ablated = Interventions((head,))
    tokens = decoded(model, src, ablated).tokens
    cell = cell_arithmetic(model, src, tokens, head, 1, 1, ablated)
    assert cell.replaced == ("output",)
    assert cell.output.abs().max() == 0 < cell.weighted_sum.abs().max()
    assert_close(cell.answer.logits, cell.answer.logits_without, **EXACT)  # it has no effect already
    intact = cell_arithmetic(model, src, tokens, head, 1, 1)
    with ablated.applied_to(model):
        tgt_in = torch.cat([torch.tensor([[BOS_ID]]), tokens[:, :-1]], dim=1)
        assert_close(model(src, tgt_in)[0, 1].double(), intact.answer.logits_without, **EXACT)
    assert (intact.answer.logits - intact.answer.logits_without).abs().max() > 1e-4


def test_a_forced_pattern_replaces_the_weights_only():
    model, src = build("post-norm sinusoidal", 2), source(4, 2)
    head = Head("cross", 1, 2)
    forced = Interventions(patterns=((head, Pattern.parse("diagonal")),))
    tokens = decoded(model, src, forced).tokens
    cell = cell_arithmetic(model, src, tokens, head, 1, 2, forced)
    assert cell.replaced == ("weights",)
    assert cell.weights.tolist() == [0, 0, 1, 0, 0, 0]
    assert_close(cell.values[2], cell.output, **EXACT)


def test_a_bug_in_the_scores_is_said_to_replace_them():
    model, src = build("post-norm sinusoidal", 2), source(4, 2)
    head = Head("encoder", 1, 1)
    model.attention["encoder", 1].hook_attn_scores.permanent = lambda scores: scores * 4  # as without / √K
    cell = cell_arithmetic(model, src, decoded(model, src).tokens, head, 1, 2)
    assert cell.replaced == ("scores",)


def test_mode_and_weights_are_unchanged():
    model, src = build("pre-norm alibi", 5).train(), source(4, 5)
    tokens = decoded(model, src).tokens
    before = {name: each.clone() for name, each in model.state_dict().items()}
    cell_arithmetic(model, src, tokens, Head("cross", 2, 1), 0, 0)
    assert model.training
    assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())


@pytest.mark.parametrize(
    ("head", "row", "column", "message"),
    [
        (Head("cross", 3, 1), 0, 0, "head=cross.3.1 is not in this model"),
        (Head("cross", 1, 1), 99, 0, "row=100 is not in the map of cross.1.1, which has"),
        (Head("cross", 1, 1), 0, -1, "column=0 is not in the map of cross.1.1, which has 6"),
    ],
)
def test_cells_outside_the_map_are_refused(head, row, column, message):
    model, src = build("post-norm learned", 0), source(4, 0)
    with pytest.raises(InputError, match=message):
        cell_arithmetic(model, src, decoded(model, src).tokens, head, row, column)
