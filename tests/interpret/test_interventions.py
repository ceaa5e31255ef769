"""Interventions on heads equal the same model with other weights, or what can be worked out by hand."""

import copy
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from core.interpret.interventions import NO_INTERVENTIONS, Interventions, Pattern
from core.models import forward_with_attention, kernels
from core.models.decoder_only import DecoderOnly
from core.models.encoder_only import EncoderOnly
from core.models.gru import GRUSeq2Seq
from core.models.seq2seq import Head, Seq2Seq
from core.models.transformer import Transformer
from core.storage.errors import InputError
from tests.support.scripted_models import make_model

E, D, H, K = 6, 16, 2, 8
BLOCKS = {"max_seq_len": 12, "d_model": D, "num_heads": H, "d_ff": 24}
ONE_LAYER = {"num_encoder_layers": 1, "num_decoder_layers": 2}
MODELS = {
    "post": lambda: make_model(Transformer, **BLOCKS),
    "pre": lambda: make_model(Transformer, **BLOCKS, norm="pre"),
    "alibi": lambda: make_model(Transformer, **BLOCKS, **ONE_LAYER, positions="alibi"),
    "vo-rope": lambda: make_model(Transformer, **BLOCKS, **ONE_LAYER, positions="vo-rope"),
    "decoder-only": lambda: make_model(DecoderOnly, **BLOCKS, num_layers=2, norm="pre"),
    "encoder-only": lambda: make_model(EncoderOnly, **BLOCKS, num_layers=2),
    "gru": lambda: make_model(GRUSeq2Seq, max_seq_len=12, d_embedding=E, d_hidden=D, num_layers=2),
}
SRC = torch.tensor([[1, 7, 8, 9, 2, 0, 0], [1, 5, 2, 0, 0, 0, 0], [1, 3, 4, 5, 6, 7, 2]])
TGT = torch.tensor([[1, 9, 8, 7], [1, 5, 4, 3], [1, 7, 6, 5]])
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture(params=MODELS)
def model(request) -> Seq2Seq:
    return MODELS[request.param]().eval()


def output_weights(model: Seq2Seq, head: Head) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights that multiply a head's output, (…, K), and the bias added to the product."""
    if isinstance(model, GRUSeq2Seq):
        return model.decoder.layers[0].weight_ih[:, E:], model.decoder.layers[0].bias_ih
    module = model.attention[head.block, head.layer]
    return module.w_o.weight[:, (head.head - 1) * K : head.head * K], module.w_o.bias


@torch.no_grad()
def without(model: Seq2Seq, *heads: Head, output: torch.Tensor | None = None) -> Seq2Seq:
    """A copy in which the heads' outputs have no effect; ``output`` always takes their place."""
    changed = copy.deepcopy(model)
    for head in heads:
        weight, bias = output_weights(changed, head)
        if output is not None:
            bias += weight @ output
        weight.zero_()
    return changed


def logits_with(model: Seq2Seq, interventions: Interventions) -> torch.Tensor:
    with interventions.applied_to(model):
        return model(SRC, TGT)


# --- ablation ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_an_ablated_head_is_one_whose_output_weights_are_zero(model):
    intact = model(SRC, TGT)
    for head in model.heads:
        logits = logits_with(model, Interventions((head,)))
        assert_close(logits, without(model, head)(SRC, TGT), **CLOSE)
        assert (logits - intact).abs().max() > 1e-3, head
    assert torch.equal(model(SRC, TGT), intact)  # outside the block the model is as it was


@torch.no_grad()
def test_mean_ablation_is_a_shifted_bias(model):
    for head in model.heads:
        mean = torch.randn(D if isinstance(model, GRUSeq2Seq) else K)
        logits = logits_with(model, Interventions((head,), means={head: mean}))
        assert_close(logits, without(model, head, output=mean)(SRC, TGT), **CLOSE)


@torch.no_grad()
def test_several_heads_are_ablated_together(model):
    for names in (["cross.1"], ["decoder", "cross"], ["encoder.1.1", "encoder.1", "cross.2.2"]):
        known = [name for name in names if any(str(head).startswith(name) for head in model.heads)]
        interventions = Interventions.parse(model.heads, ablate=known)
        assert_close(logits_with(model, interventions), without(model, *interventions.ablated)(SRC, TGT), **CLOSE)


@torch.no_grad()
def test_the_weights_of_an_ablated_head_are_still_recorded(model):
    _, intact = forward_with_attention(model, SRC, TGT)
    last = model.heads[-1]
    with Interventions((last,)).applied_to(model):
        _, maps = forward_with_attention(model, SRC, TGT)
    before, after = (getattr(each, last.block)[last.layer - 1, :, last.head - 1] for each in (intact, maps))
    # The queries of the last layer do not depend on the head, but those of the GRU do from the second step on.
    rows = slice(0, 1) if isinstance(model, GRUSeq2Seq) else slice(None)
    assert_close(after[:, rows], before[:, rows], **CLOSE)
    assert (after > 0).any()


def test_an_ablated_head_gets_no_gradient_and_the_others_do(model):
    head = model.heads[0]
    logits_with(model, Interventions((head,))).square().mean().backward()
    if isinstance(model, GRUSeq2Seq):
        assert model.decoder.attention.v.weight.grad is None or not model.decoder.attention.v.weight.grad.any()
    else:
        gradient = model.attention[head.block, head.layer].w_o.weight.grad
        assert not gradient[:, :K].any()
        assert gradient[:, K:].any()


# --- patterns ---------------------------------------------------------------------------------------------------

COLUMNS = {
    # Where five steps attend; SRC's first source has 3 tokens, its second 1, its third 5.
    "diagonal": [[1, 2, 3, 4, 4], [1, 2, 2, 2, 2], [1, 2, 3, 4, 5]],
    "anti-diagonal": [[3, 2, 1, 0, 0], [1, 0, 0, 0, 0], [5, 4, 3, 2, 1]],
    "position 0": [[0] * 5] * 3,
    "position 3": [[3] * 5, [2] * 5, [3] * 5],
    "position 99": [[4] * 5, [2] * 5, [6] * 5],
}


@pytest.mark.parametrize("name", ["post", "pre", "alibi", "vo-rope", "gru"])
@torch.no_grad()
def test_a_head_follows_its_pattern_and_the_others_attend_freely(name):
    model = MODELS[name]().eval()
    tgt = torch.randint(3, 13, (3, 5))
    _, intact = forward_with_attention(model, SRC, tgt)
    for pattern, columns in COLUMNS.items():
        expected = F.one_hot(torch.tensor(columns), SRC.shape[1]).float()
        for head in (head for head in model.heads if head.block == "cross"):
            interventions = Interventions.parse(model.heads, patterns=[f"{head}={pattern}"])
            with interventions.applied_to(model):
                _, maps = forward_with_attention(model, SRC, tgt)
            assert torch.equal(maps.cross[head.layer - 1, :, head.head - 1], expected)
            others = [each for each in range(model.heads[-1].head) if each != head.head - 1]
            assert_close(maps.cross[0, :, others], intact.cross[0, :, others], **CLOSE)


@pytest.mark.parametrize(
    ("hidden", "columns"),
    [
        ({"source_bos": False}, {"anti-diagonal": [3, 2, 1, 1], "position 0": [1] * 4, "position 9": [4] * 4}),
        ({"source_eos": False}, {"anti-diagonal": [3, 2, 1, 0], "diagonal": [1, 2, 3, 3], "position 9": [3] * 4}),
        ({"source_bos": False, "source_eos": False}, {"anti-diagonal": [3, 2, 1, 1], "diagonal": [1, 2, 3, 3]}),
    ],
)
@torch.no_grad()
def test_a_pattern_means_the_same_tokens_where_bos_or_eos_are_masked(hidden: dict, columns: dict):
    model = make_model(Transformer, **BLOCKS, **hidden).eval()
    for pattern, expected in columns.items():
        with Interventions.parse(model.heads, patterns=[f"cross.1.1={pattern}"]).applied_to(model):
            _, maps = forward_with_attention(model, SRC[:1], TGT[:1])
        assert torch.equal(maps.cross[0, 0, 0], F.one_hot(torch.tensor(expected), 7).float()), pattern


@torch.no_grad()
def test_step_by_step_a_pattern_continues_from_the_step():
    for name in ("post", "gru"):
        model = MODELS[name]().eval()
        with Interventions.parse(model.heads, patterns=["cross.1.1=anti-diagonal"]).applied_to(model):
            whole = model(SRC, TGT)
            memory, cache, parts = model.encode(SRC), None, []
            for token in TGT.split(1, dim=1):
                step = model.decode(token, memory, cache)
                cache = step.cache
                parts.append(step.logits)
        assert_close(torch.cat(parts, dim=1), whole, **CLOSE)


@torch.no_grad()
def test_the_values_at_the_pattern_are_what_the_head_outputs():
    model = MODELS["post"]().eval()
    attention = model.attention["cross", 1]
    outputs, values = [], []
    from core.models.hooks import hooks

    with (
        Interventions.parse(model.heads, patterns=["cross.1.2=anti-diagonal"]).applied_to(model),
        hooks({attention.hook_z.name: outputs.append, attention.hook_v.name: values.append}),
    ):
        model(SRC, TGT)
    columns = torch.tensor(COLUMNS["anti-diagonal"])[:, :4]
    assert_close(outputs[0][:, 1], values[0][:, 1][torch.arange(3)[:, None], columns], **CLOSE)


@torch.no_grad()
def test_no_pattern_attends_to_a_source_of_nothing_but_padding():
    model = MODELS["post"]().eval()
    with Interventions.parse(model.heads, patterns=["cross.1.1=diagonal"]).applied_to(model):
        logits, maps = forward_with_attention(model, torch.zeros(1, 3, dtype=torch.int64), TGT[:1])
    assert not maps.cross[0, 0, 0].any()
    assert logits.isfinite().all()


def test_the_queries_of_a_head_with_a_pattern_get_no_gradient():
    model = MODELS["post"]()
    logits_with(model, Interventions.parse(model.heads, patterns=["cross.1.1=diagonal"])).square().mean().backward()
    gradient = model.decoder_layers[0].cross_attention.w_q.weight.grad
    assert not gradient[:K].any()
    assert gradient[K:].any()


# --- calls and threads ------------------------------------------------------------------------------------------


@torch.no_grad()
def test_threads_that_share_a_model_do_not_see_each_others_interventions():
    model = MODELS["post"]().eval()
    blind = Interventions.parse(model.heads, ablate=["cross"])
    expected = {"plain": model(SRC, TGT), "blind": logits_with(model, blind)}
    as_expected: list[bool] = []

    def work(kind: str) -> None:
        with torch.no_grad():
            for _ in range(100):
                logits = logits_with(model, blind if kind == "blind" else NO_INTERVENTIONS)
                as_expected.append(torch.equal(logits, expected[kind]))

    threads = [threading.Thread(target=work, args=(kind,)) for kind in ("plain", "blind")]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # they take turns many times in every pass
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert as_expected == [True] * 200


@torch.no_grad()
def test_without_a_hook_on_the_weights_the_fused_kernel_runs(monkeypatch):
    fused = []
    plain = kernels.fused_attention
    monkeypatch.setattr(kernels, "fused_attention", lambda *args: fused.append(args) or plain(*args))
    model = MODELS["post"]().eval()
    model(SRC, TGT)
    assert len(fused) == 6
    fused.clear()
    logits_with(model, Interventions((Head("cross", 1, 1),)))  # ablation needs no weights
    assert len(fused) == 6
    fused.clear()
    logits_with(model, Interventions.parse(model.heads, patterns=["cross.1.1=diagonal"]))
    assert len(fused) == 5


# --- names ------------------------------------------------------------------------------------------------------


def test_a_model_names_its_heads():
    heads = {name: [str(head) for head in make().heads] for name, make in MODELS.items()}
    blocks = ("encoder", "decoder", "cross")
    assert heads["post"] == [f"{block}.{layer}.{head}" for block in blocks for layer in (1, 2) for head in (1, 2)]
    assert heads["alibi"][:3] == ["encoder.1.1", "encoder.1.2", "decoder.1.1"]
    assert heads["decoder-only"] == ["decoder.1.1", "decoder.1.2", "decoder.2.1", "decoder.2.2"]
    assert heads["encoder-only"] == ["encoder.1.1", "encoder.1.2", "encoder.2.1", "encoder.2.2"]
    assert heads["gru"] == ["cross.1.1"]


def test_names_are_parsed_as_they_are_printed():
    for head in (Head("encoder", 1, 1), Head("decoder", 12, 3), Head("cross", 2, 16)):
        assert Head.parse(str(head)) == Head.parse(f" {head} ") == head
    for text in ("diagonal", "anti-diagonal", "position 0", "position 31"):
        assert str(Pattern.parse(f" {text}")) == text


def test_bad_names_are_refused():
    for text in (
        *("", "cross", "cross.1", "cross.0.1", "cross.1.0", "cross.-1.1", "Cross.1.1", "cross.1.1.1", "cross.1.١"),
    ):
        with pytest.raises(
            InputError, match=rf"head='{text}' is not a head: write block\.layer\.head, such as cross\.2"
        ):
            Head.parse(text)
    for text in ("", "diag", "position", "position -1", "position 1.5", "position 9999999", "3"):
        with pytest.raises(InputError, match=f"pattern='{text}' is not one of diagonal, anti-diagonal, position K"):
            Pattern.parse(text)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"ablate": ["cross.3"]}, "ablate=cross.3 is not in this model, which has encoder.1.1 to encoder.1.2, "),
        ({"ablate": ["cross.1.3"]}, "ablate=cross.1.3 is not in this model, which has"),
        ({"ablate": ["heads"]}, r"ablate='heads' is not a head \(cross.2.1\), a layer \(cross.2\) or a block"),
        ({"ablate": ["cross.01"]}, "ablate='cross.01' is not a head"),
        ({"patterns": ["cross.1.1"]}, "pattern='cross.1.1' must be HEAD=PATTERN, such as cross.2.1=anti-diagonal"),
        ({"patterns": ["cross.1=diagonal"]}, "head='cross.1' is not a head"),
        ({"patterns": ["cross.1.1=up"]}, "pattern='up' is not one of"),
        ({"patterns": ["cross.3.1=diagonal"]}, "head=cross.3.1 is not in this model, which has encoder.1.1 to"),
        ({"patterns": ["decoder.1.1=diagonal"]}, "head=decoder.1.1 cannot follow a pattern; only heads of cross"),
        (
            {"patterns": ["cross.1.1=diagonal"] * 2},
            "head=cross.1.1 has two patterns; it can follow one",
        ),
        (
            {"patterns": ["cross.1.1=diagonal"], "ablate": ["cross"]},
            "head=cross.1.1 cannot both be ablated and have the pattern diagonal",
        ),
    ],
    ids=str,
)
def test_interventions_that_a_model_cannot_do_are_refused(request_, message):
    with pytest.raises(InputError, match=message):
        Interventions.parse(MODELS["post"]().heads, **request_)


def test_a_head_that_the_model_lacks_is_refused_when_applied(model):
    with (
        pytest.raises(InputError, match=r"head=cross\.9\.1 is not in this model, which has (\w+\.1\.1)"),
        Interventions((Head("cross", 9, 1),)).applied_to(model),
    ):
        pass


def test_interventions_print_what_they_do():
    heads = MODELS["post"]().heads
    interventions = Interventions.parse(heads, ablate=["cross.1", "cross.1.1"], patterns=["cross.2.1=position 3"])
    assert str(interventions) == "cross.1.1, cross.1.2 ablated (zero); cross.2.1 follows position 3"
    assert str(NO_INTERVENTIONS) == str(Interventions.parse(heads)) == ""
    assert Interventions(means={}).ablation == "mean"
