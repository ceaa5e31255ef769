"""Heads by name, knocked out and forced: each equals the same model with other weights, or what a hand works out."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from core.models import attention
from core.models.attention import AdditiveAttention, MultiHeadAttention
from core.models.decoder_only import DecoderOnly
from core.models.gru import GRUSeq2Seq
from core.models.heads import NO_INTERVENTIONS, AttentionEdit, Head, Interventions, Pattern
from core.models.seq2seq import Seq2Seq
from core.models.transformer import Transformer
from core.storage.errors import InputError
from core.text.vocab import PAD_ID

E, D, H, K = 6, 16, 2, 8
SIZES = {"src_vocab_size": 13, "tgt_vocab_size": 13, "max_seq_len": 12}
BLOCKS = {"d_model": D, "num_heads": H, "d_ff": 24}
MODELS = {
    "post": lambda: Transformer(**SIZES, **BLOCKS, num_encoder_layers=2, num_decoder_layers=2),
    "pre": lambda: Transformer(**SIZES, **BLOCKS, num_encoder_layers=2, num_decoder_layers=2, norm="pre"),
    "alibi": lambda: Transformer(**SIZES, **BLOCKS, num_encoder_layers=1, num_decoder_layers=2, positions="alibi"),
    "rotary": lambda: Transformer(**SIZES, **BLOCKS, num_encoder_layers=1, num_decoder_layers=2, positions="vo-rope"),
    "decoder-only": lambda: DecoderOnly(**SIZES, **BLOCKS, num_layers=2, norm="pre"),
    "gru": lambda: GRUSeq2Seq(**SIZES, d_embedding=E, d_hidden=D, num_layers=2),
}
SRC = torch.tensor([[1, 7, 8, 9, 2, 0, 0], [1, 5, 2, 0, 0, 0, 0], [1, 3, 4, 5, 6, 7, 2]])
TGT = torch.tensor([[1, 9, 8, 7], [1, 5, 4, 3], [1, 7, 6, 5]])
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture(params=MODELS)
def model(request) -> Seq2Seq:
    return MODELS[request.param]().eval()


def output_weights(model: Seq2Seq, head: Head) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights that a head's output is multiplied by, (…, K), and the bias that is added to what comes of it."""
    if isinstance(model, GRUSeq2Seq):
        return model.decoder.layers[0].weight_ih[:, E:], model.decoder.layers[0].bias_ih
    if isinstance(model, DecoderOnly):
        module = model.layers[head.layer - 1].self_attention
    else:
        layers = model.encoder_layers if head.block == "encoder" else model.decoder_layers
        layer = layers[head.layer - 1]
        module = layer.cross_attention if head.block == "cross" else layer.self_attention
    return module.w_o.weight[:, (head.head - 1) * K : head.head * K], module.w_o.bias


@torch.no_grad()
def without(model: Seq2Seq, *heads: Head, output: torch.Tensor | None = None) -> Seq2Seq:
    """A copy in which nothing comes of what heads find; ``output`` comes instead, always."""
    changed = copy.deepcopy(model)
    for head in heads:
        weight, bias = output_weights(changed, head)
        if output is not None:
            bias += weight @ output
        weight.zero_()
    return changed


# --- knocked out ------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_head_knocked_out_is_one_whose_output_weights_are_zero(model):
    intact, _ = model(SRC, TGT)
    for head in model.heads:
        logits, _ = model(SRC, TGT, interventions=Interventions((head,)))
        assert_close(logits, without(model, head)(SRC, TGT)[0], **CLOSE)
        assert (logits - intact).abs().max() > 1e-3, head


@torch.no_grad()
def test_a_mean_in_place_of_a_head_is_a_shifted_bias(model):
    for head in model.heads:
        width = D if isinstance(model, GRUSeq2Seq) else K
        mean = torch.randn(width)
        logits, _ = model(SRC, TGT, interventions=Interventions((head,), means={head: mean}))
        assert_close(logits, without(model, head, output=mean)(SRC, TGT)[0], **CLOSE)


@torch.no_grad()
def test_several_heads_are_knocked_out_together(model):
    for names in (["cross.1"], ["decoder", "cross"], ["encoder.1.1", "encoder.1", "cross.2.2"]):
        known = [name for name in names if any(str(head).startswith(name) for head in model.heads)]
        interventions = Interventions.parse(model.heads, ablate=known)
        expected, _ = without(model, *interventions.ablated)(SRC, TGT)
        assert_close(model(SRC, TGT, interventions=interventions)[0], expected, **CLOSE)


@torch.no_grad()
def test_the_weights_of_a_head_that_is_knocked_out_are_still_recorded(model):
    _, intact = model(SRC, TGT, need_weights=True)
    last = model.heads[-1]
    _, maps = model(SRC, TGT, need_weights=True, interventions=Interventions((last,)))
    before, after = (getattr(each, last.block)[last.layer - 1, :, last.head - 1] for each in (intact, maps))
    # In the last layer nothing that asks comes of the head, but for the GRU, whose next state asks.
    rows = slice(0, 1) if isinstance(model, GRUSeq2Seq) else slice(None)
    assert_close(after[:, rows], before[:, rows], **CLOSE)
    assert (after > 0).any()


def test_training_can_go_on_around_a_head_that_is_knocked_out(model):
    head = model.heads[0]
    model(SRC, TGT, interventions=Interventions((head,)))[0].square().mean().backward()
    weight = output_weights(model, head)[0]
    if isinstance(model, GRUSeq2Seq):
        assert model.decoder.attention.v.weight.grad is None or not model.decoder.attention.v.weight.grad.any()
    else:
        parameters = dict(model.named_parameters())
        owner = next(name for name, each in parameters.items() if each.data_ptr() == weight.data_ptr())
        gradient = parameters[owner].grad
        assert not gradient[:, :K].any()
        assert gradient[:, K:].any()


# --- forced -----------------------------------------------------------------------------------------------------

COLUMNS = {
    # (pattern, source): where five steps look; SRC's first source has 3 tokens, its second 1, its third 5.
    "diagonal": [[1, 2, 3, 4, 4], [1, 2, 2, 2, 2], [1, 2, 3, 4, 5]],
    "anti-diagonal": [[3, 2, 1, 0, 0], [1, 0, 0, 0, 0], [5, 4, 3, 2, 1]],
    "position 0": [[0] * 5] * 3,
    "position 3": [[3] * 5, [2] * 5, [3] * 5],
    "position 99": [[4] * 5, [2] * 5, [6] * 5],
}


@pytest.mark.parametrize("pattern", COLUMNS)
@pytest.mark.parametrize("name", ["post", "pre", "alibi", "rotary", "gru"])
@torch.no_grad()
def test_a_forced_head_looks_where_its_pattern_says_and_the_others_where_they_like(name, pattern):
    model = MODELS[name]().eval()
    tgt = torch.randint(3, 13, (3, 5))
    expected = F.one_hot(torch.tensor(COLUMNS[pattern]), SRC.shape[1]).float()
    _, intact = model(SRC, tgt, need_weights=True)
    for head in (head for head in model.heads if head.block == "cross"):
        interventions = Interventions.parse(model.heads, force=[f"{head}={pattern}"])
        _, maps = model(SRC, tgt, need_weights=True, interventions=interventions)
        assert torch.equal(maps.cross[head.layer - 1, :, head.head - 1], expected)
        others = [each for each in range(model.heads[-1].head) if each != head.head - 1]
        assert_close(maps.cross[0, :, others], intact.cross[0, :, others], **CLOSE)


@torch.no_grad()
def test_what_is_forced_is_what_is_used():
    ours = MultiHeadAttention(d_model=D, num_heads=H).eval()
    x, seen = torch.randn(3, 4, D), torch.randn(3, SRC.shape[1], D)
    mask = (SRC != PAD_ID)[:, None, None, :]
    edit = AttentionEdit({2: Pattern("anti-diagonal")}, {}, first_step=1)
    output, weights = ours(x, ours.keys_values(seen), mask, edit=edit, need_weights=True)
    columns = torch.tensor(COLUMNS["anti-diagonal"])[:, 1:]
    rows = torch.arange(3)[:, None]
    value = ours.w_v(seen)
    second = value[rows, columns, K:]  # the values of the second head at the very tokens
    first = ours(x, ours.keys_values(seen), mask, need_weights=True)[1][:, 0] @ value[..., :K]
    assert_close(output, ours.w_o(torch.cat([first, second], dim=-1)), **CLOSE)
    assert torch.equal(weights[:, 1], F.one_hot(columns, SRC.shape[1]).float())
    # The same output where nobody asks for the weights.
    assert torch.equal(ours(x, ours.keys_values(seen), mask, edit=edit)[0], output)


@torch.no_grad()
def test_the_context_of_the_forced_head_of_the_gru_is_one_state():
    ours = AdditiveAttention(d_hidden=D)
    seen, mask = torch.randn(3, SRC.shape[1], D), SRC != PAD_ID
    edit = AttentionEdit({1: Pattern("position", 3)}, {})
    context, weights = ours(torch.randn(3, D), ours.keys_values(seen), mask, edit=edit)
    assert torch.equal(context, seen[torch.arange(3), torch.tensor([3, 2, 3])])
    assert weights.argmax(dim=-1).tolist() == [3, 2, 3]


@torch.no_grad()
def test_a_source_of_nothing_but_padding_is_not_looked_at_even_by_force():
    model = MODELS["post"]().eval()
    interventions = Interventions.parse(model.heads, force=["cross.1.1=diagonal"])
    logits, maps = model(torch.zeros(1, 3, dtype=torch.int64), TGT[:1], need_weights=True, interventions=interventions)
    assert not maps.cross[0, 0, 0].any()
    assert logits.isfinite().all()


def test_training_can_go_on_around_a_head_that_is_forced():
    model = MODELS["post"]()
    interventions = Interventions.parse(model.heads, force=["cross.1.1=diagonal"])
    model(SRC, TGT, interventions=interventions)[0].square().mean().backward()
    gradient = model.decoder_layers[0].cross_attention.w_q.weight.grad
    assert not gradient[:K].any()  # what it asks does not matter any more
    assert gradient[K:].any()


def test_what_is_edited_is_a_copy():
    weights, heads, kept = torch.rand(3, H, 4, SRC.shape[1]), torch.rand(3, H, 4, K), []
    before = weights.clone(), heads.clone()
    edit = AttentionEdit({1: Pattern("diagonal")}, {2: 0.0}, kept=kept)
    assert not torch.equal(edit.forced(weights, (SRC != PAD_ID)[:, None, None, :]), weights)
    assert not torch.equal(edit.ablated(heads), heads)
    assert torch.equal(weights, before[0])
    for each in (heads, *kept):
        assert torch.equal(each, before[1])


# --- not edited -------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_without_edits_the_fused_kernel_computes_as_if_there_were_none(monkeypatch):
    ours = MultiHeadAttention(d_model=D, num_heads=H).eval()
    x, keys_values = torch.randn(3, 4, D), ours.keys_values(torch.randn(3, SRC.shape[1], D))
    mask = (SRC != PAD_ID)[:, None, None, :]
    query = ours.w_q(x).view(3, 4, H, K).transpose(1, 2)
    expected = F.scaled_dot_product_attention(query, *keys_values, attn_mask=mask)
    expected = ours.w_o(expected.transpose(1, 2).reshape(3, 4, D))
    assert_close(ours(x, keys_values, mask)[0], expected, atol=1e-6, rtol=1e-5)
    monkeypatch.setattr(attention, "attention_weights", None)  # whoever calls it fails
    for name in ("post", "pre", "decoder-only"):
        MODELS[name]().eval()(SRC, TGT)
    with pytest.raises(TypeError):
        MODELS["post"]().eval()(SRC, TGT, interventions=Interventions((Head("cross", 1, 1),)))


@torch.no_grad()
def test_edits_of_one_layer_leave_the_fused_kernel_to_the_others():
    interventions = Interventions((Head("cross", 2, 1),))
    assert interventions.of_layer(1) == {}
    assert set(interventions.of_layer(2)) == {"cross"}
    assert NO_INTERVENTIONS.of_layer(2) == {}


# --- names ------------------------------------------------------------------------------------------------------


def test_a_model_names_its_heads():
    heads = {name: [str(head) for head in make().heads] for name, make in MODELS.items()}
    blocks = ("encoder", "decoder", "cross")
    assert heads["post"] == [f"{block}.{layer}.{head}" for block in blocks for layer in (1, 2) for head in (1, 2)]
    assert heads["alibi"][:3] == ["encoder.1.1", "encoder.1.2", "decoder.1.1"]
    assert heads["decoder-only"] == ["decoder.1.1", "decoder.1.2", "decoder.2.1", "decoder.2.2"]
    assert heads["gru"] == ["cross.1.1"]


def test_names_are_read_as_they_are_written():
    for head in (Head("encoder", 1, 1), Head("decoder", 12, 3), Head("cross", 2, 16)):
        assert Head.parse(str(head)) == Head.parse(f" {head} ") == head
    for text in ("diagonal", "anti-diagonal", "position 0", "position 31"):
        assert str(Pattern.parse(f" {text}")) == text


@pytest.mark.parametrize(
    "text", ["", "cross", "cross.1", "cross.0.1", "cross.1.0", "cross.-1.1", "Cross.1.1", "cross.1.1.1", "cross.1.١"]
)
def test_what_is_no_head_is_refused(text):
    with pytest.raises(InputError, match=rf"head='{text}' is not a head: write block\.layer\.head, such as cross\.2"):
        Head.parse(text)


@pytest.mark.parametrize("text", ["", "diag", "position", "position -1", "position 1.5", "position 9999999", "3"])
def test_what_is_no_pattern_is_refused(text):
    with pytest.raises(InputError, match=f"pattern='{text}' is not one of diagonal, anti-diagonal, position K"):
        Pattern.parse(text)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"ablate": ["cross.3"]}, "ablate=cross.3 is not in this model, which has encoder.1.1 to encoder.1.2, "),
        ({"ablate": ["cross.1.3"]}, "ablate=cross.1.3 is not in this model, which has"),
        ({"ablate": ["heads"]}, r"ablate='heads' is not a head \(cross.2.1\), a layer \(cross.2\) or a block"),
        ({"ablate": ["cross.01"]}, "ablate='cross.01' is not a head"),
        ({"force": ["cross.1.1"]}, "force='cross.1.1' must be HEAD=PATTERN, such as cross.2.1=anti-diagonal"),
        ({"force": ["cross.1=diagonal"]}, "head='cross.1' is not a head"),
        ({"force": ["cross.1.1=up"]}, "pattern='up' is not one of"),
        ({"force": ["cross.3.1=diagonal"]}, "head=cross.3.1 is not in this model, which has encoder.1.1 to"),
        ({"force": ["decoder.1.1=diagonal"]}, "head=decoder.1.1 cannot be forced; only heads of cross-attention can"),
        ({"force": ["cross.1.1=diagonal"] * 2}, "head=cross.1.1 is to do two things; it can be knocked out, or forced"),
        ({"force": ["cross.1.1=diagonal"], "ablate": ["cross"]}, "head=cross.1.1 is to do two things"),
    ],
    ids=str,
)
def test_what_cannot_be_done_to_a_model_is_refused(asked, message):
    with pytest.raises(InputError, match=message):
        Interventions.parse(MODELS["post"]().heads, **asked)


def test_a_model_refuses_heads_that_it_lacks(model):
    with pytest.raises(InputError, match=r"head=cross\.9\.1 is not in this model, which has (\w+\.1\.1)"):
        model(SRC, TGT, interventions=Interventions((Head("cross", 9, 1),)))


def test_edits_say_what_they_do():
    heads = MODELS["post"]().heads
    interventions = Interventions.parse(heads, ablate=["cross.1", "cross.1.1"], force=["cross.2.1=position 3"])
    assert str(interventions) == "cross.1.1, cross.1.2 knocked out (zero); cross.2.1 forced to position 3"
    assert str(NO_INTERVENTIONS) == str(Interventions.parse(heads)) == ""
    assert Interventions(means={}).ablation == "mean"
