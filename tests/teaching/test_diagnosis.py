"""The doctor on a user's model: bugs added to a plain PyTorch file by hand, other shapes, and broken calls."""

import json
import random
import signal
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import model_styles
from benchmarks.model_styles import initialized
from core.config import BugName, Preset
from core.storage.errors import InputError
from core.tasks import fixed_pairs
from core.teaching.bugs import new_state
from core.teaching.doctor import Examination, Finding, diagnose
from core.teaching.doctor.black_box import how_far
from tests.support import plain_seq2seq as plain

SOURCE = Path(plain.__file__).read_text()
GENERATOR = torch.Generator()
IDS = {"pad": plain.PAD, "bos": plain.BOS, "eos": plain.EOS}


class Bug(NamedTuple):
    """An edit of the plain file, the check that must find it, the bug that it must name, and what fails with it."""

    old: str
    new: str
    check: str
    name: BugName | None = None
    others: tuple[str, ...] = ()


BUGS = {
    "no causal mask": Bug("tgt_mask=later", "tgt_mask=None", "causal leak", "no-causal-mask"),
    "targets not shifted": Bug("tgt[:, :-1], tgt[", "tgt[:, 1:], tgt[", "target shift", "targets-not-shifted"),
    "targets shifted by two": Bug("tgt[:, :-1], tgt[:, 1:]", "tgt[:, :-2], tgt[:, 2:]", "target shift"),
    "no padding mask": Bug("is_pad = src == PAD", "is_pad = None", "PAD influence", "pad-attended-to"),
    "padding mask inverted": Bug(
        "src == PAD", "src != PAD", "PAD influence", "pad-attended-to", ("source order", "hidden tokens")
    ),
    "PAD in the loss": Bug(", ignore_index=PAD", "", "PAD in the loss", "pad-in-the-loss"),
    "no positions": Bug(
        "x = x + self.positions[: ids.shape[1]]", "pass", "source order", "no-positions", ("target order",)
    ),
    "no EOS": Bug("[BOS, *numbers[::-1], EOS]", "[BOS, *numbers[::-1]]", "EOS in the targets", "no-eos-in-targets"),
    "learning rate too high": Bug("lr=1e-3", "lr=0.3", "update size", "learning-rate-too-high"),
    "heads initialized alike": Bug(
        "nn.init.xavier_uniform_(parameter)",
        "parameter.data = nn.init.xavier_uniform_(parameter[:8].detach()).repeat(12, 1)[: len(parameter)]",
        "head diversity",
        "heads-alike",
    ),
    "encoder not trained": Bug("memory, tgt_mask", "memory.detach(), tgt_mask", "gradients", None, ("derivatives",)),
    "source not passed": Bug("model(src, tgt_in)", "model(src.flip(0), tgt_in)", "source in the loss"),
    "a use of the embedding detached": Bug("self.embed(tgt_in),", "self.embed(tgt_in).detach(),", "derivatives"),
    "own tokens masked": Bug(".triu(1)", ".triu(0)", "hidden tokens"),
    "encoder not in the optimizer": Bug("(model.parameters()", "(model.decoder.parameters()", "update size"),
    "softmax before the loss": Bug("self.output(states)", "self.output(states).softmax(dim=-1)", "logits"),
    "dropout always active": Bug("self.dropout(x)", "F.dropout(x, DROPOUT)", "forward pass"),
    "view instead of transpose": Bug(
        "return self.dropout(x)",
        "return self.dropout(x.view(x.shape[1], x.shape[0], -1).transpose(0, 1))",
        "rows of a batch",
    ),
    "source not read": Bug("memory, tgt_mask", "0 * memory, tgt_mask", "source order", None, ("gradients",)),
    "divided by zero": Bug("(states)", "(states / 0)", "forward pass"),
    "divided by the length": Bug("(states)", "(states / tgt_in.shape[1])", "PAD after the target"),
    "a minus sign too many": Bug("return F.cross_entropy", "return -F.cross_entropy", "loss sign"),
    "a token left out of the loss": Bug(
        "tgt[:, :-1], tgt[:, 1:]", "tgt[:, :-1], tgt[:, 1:].masked_fill(tgt[:, 1:] == 5, PAD)", "tokens in the loss"
    ),
    "a summed loss": Bug("ignore_index=PAD", "ignore_index=PAD, reduction='sum'", "initial loss"),
    "frozen output": Bug(
        "D_MODEL, NUM_TOKENS)\n        for", "D_MODEL, NUM_TOKENS).requires_grad_(False)\n        for", "gradients"
    ),
    "learning rate too low": Bug("lr=1e-3", "lr=1e-9", "update size"),
    "causal mask flipped": Bug(".triu(1)", ".tril(-1)", "causal leak"),
    "causal mask shifted": Bug(".triu(1)", ".triu(2)", "causal leak"),
    "no memory mask": Bug(", memory_key_padding_mask=is_pad", "", "PAD influence", "pad-attended-to"),
    "initial weights too large": Bug("xavier_uniform_", "normal_", "initial loss", None, ("attention entropy",)),
}


def edited(old: str, new: str) -> ModuleType:
    """The plain file as a module, with an edit in one place."""
    assert SOURCE.count(old) == 1, old
    module = ModuleType("edited")
    exec(compile(SOURCE.replace(old, new), "edited", "exec"), module.__dict__)  # noqa: S102 - of our own file
    return module


def diagnosed(module: ModuleType) -> Examination:
    torch.manual_seed(0)
    model = module.PlainTransformer()
    optimizer = module.make_optimizer(model)
    return diagnose(model, *module.make_batch(), **IDS, loss=module.training_loss, optimizer=optimizer)


def finding(examination: Examination, check: str) -> Finding:
    return next(each for each in examination.findings if each.check == check)


@pytest.mark.parametrize("name", BUGS)
def test_each_bug_put_in_by_hand_is_named(name: str):
    bug = BUGS[name]
    examination = diagnosed(edited(bug.old, bug.new))
    assert examination.bugs == ([bug.name] if bug.name else [])
    found = {each.check for each in examination.alarms}
    assert found == {bug.check, *bug.others}, [each.sentence for each in examination.alarms]


def test_the_correct_file_has_no_alarm():
    """And every check that is green can fail: each has a bug above that it finds, or a test of its own."""
    examination = diagnosed(plain)
    assert [each.sentence for each in examination.alarms] == []
    assert {each.check for each in examination.unchecked} == {
        "embedding scaling",
        "greedy decoding",
    }
    green = {each.check for each in examination.findings if each.light == "green"}
    named = {check for bug in BUGS.values() for check in (bug.check, *bug.others)}
    others = {
        "residual connections",
        "activation",
        "attention queries",
    }  # tests/teaching/test_path_checks
    assert green - named == others | {"attention rows", "score scaling"}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_may_be_turned_off_around_a_diagnosis(mode):
    model = plain.PlainTransformer()
    optimizer = plain.make_optimizer(model)
    with mode():
        batch = plain.make_batch()
        examination = diagnose(model, *batch, **IDS, loss=plain.training_loss, optimizer=optimizer)
    assert [each.sentence for each in examination.alarms] == []
    assert {each.check for each in examination.unchecked} == {"embedding scaling", "greedy decoding"}


def in_precision(model: nn.Module, precision: str, std: float | None, *batch, **settings) -> Examination:
    """Diagnose a model with these initial weights, in 32 bits, in 16 bits or under autocast."""
    initialized(model, std).to(torch.bfloat16 if precision == "bfloat16" else torch.float32)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
        return diagnose(model, *batch, **IDS, **settings)


PRECISIONS = [
    (precision, std)
    for precision in ("float32", "bfloat16", "autocast")
    for std in (None, 0.02, 0.2)  # Xavier's, BERT's, and one that is larger
]
PATHS = {  # where not both are checked
    "GRU with attention": ("gray", "gray"),
    "GRU without attention": ("gray", "gray"),
    "convolutions": ("green", "gray"),
}
SOME = [("float32", 0.02), ("bfloat16", None), ("autocast", 0.2)]  # each once
IN_TURN = [(style, [SOME[i % 3]]) for i, style in enumerate(model_styles.STYLES)]


@pytest.mark.parametrize(
    ("style", "cases"),
    [*IN_TURN, *(pytest.param(style, PRECISIONS, marks=pytest.mark.slow) for style in model_styles.STYLES)],
)
def test_correct_models_have_no_alarm_whatever_their_weights_and_precision(style: str, cases):
    for precision, std in cases:
        torch.manual_seed(0)
        model = model_styles.STYLES[style]()
        settings = {"loss": model_styles.loss_of, "optimizer": model_styles.optimizer_of(model)}
        examination = in_precision(model, precision, std, *model_styles.make_batch(), **settings)
        assert [each.sentence for each in examination.alarms] == [], (precision, std)
        assert finding(examination, "causal leak").light == finding(examination, "PAD influence").light == "green"
        paths = tuple(finding(examination, check).light for check in ("residual connections", "activation"))
        assert paths == PATHS.get(style, ("green", "green")), (precision, std)


@pytest.mark.parametrize("name", ["no causal mask", "no memory mask"])
def test_bugs_are_found_whatever_the_weights_and_the_precision(name: str):
    bug = BUGS[name]
    for precision, std in SOME[1:]:  # the first is that of the bugs above
        torch.manual_seed(0)
        examination = in_precision(edited(bug.old, bug.new).PlainTransformer(), precision, std, *plain.make_batch())
        assert {each.check for each in examination.failed} == {bug.check}, (precision, std)


@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_an_output_layer_that_is_zero_shows_nothing_of_what_is_read(bias: float):
    torch.manual_seed(0)
    model = plain.PlainTransformer()
    nn.init.zeros_(model.output.weight)
    nn.init.normal_(model.output.bias, std=bias)
    examination = diagnose(model, *plain.make_batch(), **IDS, loss=plain.training_loss)
    assert examination.failed == []
    for check in ("rows of a batch", "causal leak", "PAD influence", "PAD after the target", "source order"):
        assert finding(examination, check).light == "gray"


@pytest.mark.parametrize("logit", [-1e9, -torch.inf])
def test_a_token_that_is_never_predicted_hides_no_bug(logit: float):
    def diagnosed(module: ModuleType) -> Examination:
        torch.manual_seed(0)
        model = module.PlainTransformer()
        model.output.register_forward_hook(lambda _, args, logits: logits.index_fill(-1, torch.tensor([0, 1]), logit))
        return diagnose(model, *plain.make_batch(), **IDS, loss=plain.training_loss, decode=lambda src: src.flip(1))

    leak = BUGS["no causal mask"]
    assert [each.check for each in diagnosed(plain).failed] == ["greedy decoding"]
    assert diagnosed(edited(leak.old, leak.new)).bugs == ["no-causal-mask"]


@pytest.mark.parametrize(("name", "words"), [("no causal mask", "is missing"), ("causal mask shifted", "is shifted")])
def test_a_leak_is_described_alike_if_source_and_decoder_input_have_one_length(name: str, words: str):
    bug = BUGS[name]
    src, tgt = plain.make_batch()
    examination = diagnose(edited(bug.old, bug.new).PlainTransformer(), src, F.pad(tgt, (0, 1)), **IDS)
    assert words in finding(examination, "causal leak").sentence
    assert examination.bugs == ([bug.name] if bug.name else [])


def test_a_function_in_16_bits_is_not_compared():
    model = plain.PlainTransformer().bfloat16().eval()
    examination = diagnose(lambda src, tgt_in: model(src, tgt_in), *plain.make_batch(), **IDS)
    assert "16 bits" in finding(examination, "causal leak").sentence
    assert not examination.alarms


@pytest.mark.parametrize(
    ("old", "new", "light"),
    [
        ("x + self.positions[: ids.shape[1]]", "x + self.positions[: ids.shape[1]].bfloat16()", "green"),
        ("self.output(states)", "self.output(states.bfloat16().to(states.dtype))", "gray"),
        ("self.embed(tgt_in), memory,", "self.embed(tgt_in), memory.bfloat16().to(memory.dtype),", "gray"),
    ],
)
def test_a_part_in_16_bits_matters_if_it_rounds_what_the_weights_change(old: str, new: str, light: str):
    torch.manual_seed(0)
    examination = diagnose(edited(old, new).PlainTransformer(), *plain.make_batch(), **IDS)
    assert [each.sentence for each in examination.alarms] == []
    for check in ("rows of a batch", "causal leak", "PAD influence", "source order", "attention rows"):
        assert finding(examination, check).light == light
        assert light == "green" or "cannot be run without 16 bits (bfloat16)" in finding(examination, check).sentence


def test_a_trained_model_has_no_alarm_and_its_initial_loss_is_not_checked():
    torch.manual_seed(0)
    model = plain.PlainTransformer()
    optimizer = plain.make_optimizer(model)
    for step in range(30):
        optimizer.zero_grad()
        plain.training_loss(model, *plain.make_batch(seed=step)).backward()
        optimizer.step()
    examination = diagnose(model, *plain.make_batch(), **IDS, loss=plain.training_loss, optimizer=optimizer, step=30)
    assert [each.sentence for each in examination.alarms] == []
    assert finding(examination, "initial loss").light == "gray"


def derivatives(loss, model: nn.Module | None = None) -> Finding:
    torch.manual_seed(0)
    return finding(diagnose(model or plain.PlainTransformer(), *plain.make_batch(), **IDS, loss=loss), "derivatives")


def test_gradients_are_compared_with_the_loss_that_was_passed():
    def halved(forward, src, tgt):  # its gradients are a fifth of its derivatives
        loss = plain.training_loss(forward, src, tgt)
        return 0.2 * loss + 0.8 * loss.detach()

    def random(forward, src, tgt):
        return plain.training_loss(forward, src, tgt) * torch.rand(())

    def rounded(forward, src, tgt):  # too coarse to be differentiated by steps
        return plain.training_loss(lambda *ids: forward(*ids).float(), src, tgt)

    assert (derivatives(halved).light, round(derivatives(halved).figure, 2)) == ("amber", 0.8)
    assert derivatives(plain.training_loss).sentence == "Gradients are the derivatives of the loss."
    assert "differs from one call to the next" in derivatives(random).sentence
    assert derivatives(lambda: 0).light == "gray"
    for loss in (None, rounded):
        found = derivatives(loss)
        assert found.light == "green"
        assert found.sentence == "With cross-entropy in place of your loss: Gradients are the derivatives of the loss."


@pytest.mark.parametrize("bug", [None, "encoder not trained"])
def test_gradients_are_compared_by_layer_however_deep_it_is(bug: str | None):
    torch.manual_seed(0)
    wrapper = nn.Module()
    wrapper.model = (edited(BUGS[bug].old, BUGS[bug].new) if bug else plain).PlainTransformer()
    wrapper.forward = wrapper.model.forward
    found = derivatives(plain.training_loss, wrapper)
    assert found.light == ("amber" if bug else "green")
    assert not bug or "gradients of embedding, encoder.layers.0 are not the derivatives" in found.sentence


def test_an_embedding_whose_padding_is_not_trained_is_not_detached():
    reads_pad = BUGS["no padding mask"]
    model = edited(reads_pad.old, reads_pad.new).PlainTransformer()
    model.embedding.padding_idx = plain.PAD
    assert derivatives(plain.training_loss, model).light == "green"


class Adapted(nn.Linear):
    """A layer with an adapter of two matrices, as of LoRA, of which one is 0 before training."""

    def __init__(self, *, both: bool = False) -> None:
        super().__init__(plain.D_MODEL, plain.NUM_TOKENS)
        self.a = nn.Parameter(torch.zeros(2, plain.D_MODEL) if both else torch.randn(2, plain.D_MODEL))
        self.b = nn.Parameter(torch.zeros(plain.NUM_TOKENS, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + x @ self.a.mT @ self.b.mT


@pytest.mark.parametrize(
    ("layer", "light", "words"),
    [
        (lambda: Adapted(), "green", "Every parameter gets a gradient, 1 of them once matrices that are 0 now have"),
        (
            lambda: Adapted().requires_grad_(False),
            "amber",
            "Training does not change 4 parameters with requires_grad=False, the first is output.",
        ),
        (lambda: Adapted(both=True), "amber", "The gradient of 2 of 35 parameters is 0 now, the first is output.a."),
    ],
)
def test_a_gradient_that_is_0_until_the_first_update_is_not_missing(layer, light: str, words: str):
    torch.manual_seed(0)
    model = plain.PlainTransformer()
    model.output = layer()
    found = finding(diagnose(model, *plain.make_batch(), **IDS, loss=plain.training_loss), "gradients")
    assert found.light == light
    assert words in found.sentence
    assert not model.output.b.any()


def test_what_is_not_given_is_gray_with_a_reason():
    examination = diagnose(plain.PlainTransformer(), *plain.make_batch(), **IDS)
    by_check = {each.check: each for each in examination.findings}
    for check in ("target shift", "PAD in the loss", "logits"):
        assert by_check[check].light == "gray"
        assert "loss=" in by_check[check].sentence
    assert "optimizer=" in by_check["update size"].sentence
    assert "in place of your loss" in by_check["initial loss"].sentence


def test_attention_that_is_no_softmax_over_keys_is_found(monkeypatch):
    """PyTorch's own attention is broken here, where it returns weights; the fused kernel is not."""
    src, tgt = (rows[:4, :4] for rows in plain.make_batch())  # without PAD: a masked column has no softmax
    torch.manual_seed(0)
    model = plain.PlainTransformer()
    monkeypatch.setattr(F, "softmax", lambda scores, dim: scores.softmax(dim=-2))
    rows = finding(diagnose(model, src, tgt, **IDS), "attention rows")
    assert (rows.light, rows.bug) == ("red", "softmax-over-queries")


def test_scores_that_are_not_scaled_are_found(monkeypatch):
    torch.manual_seed(0)
    model = plain.PlainTransformer()
    monkeypatch.setattr(F, "math", SimpleNamespace(sqrt=lambda value: 1.0))
    scale = finding(diagnose(model, *plain.make_batch(), **IDS), "score scaling")
    assert (scale.light, scale.bug) == ("red", "no-score-scaling")


class Grouped(nn.Module):
    """Attention of four heads that share the keys and values of two; ``repeat`` says how, the rest how it is scaled."""

    def __init__(self, repeat: str = "interleaved", *, heads: int = 4, divisor: float | None = None) -> None:
        super().__init__()
        self.repeat, self.heads, self.size = repeat, heads, 32 // heads
        self.divisor = self.size**0.5 if divisor is None else divisor
        self.q, self.kv, self.o = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x, memory, mask):
        q, k, v = (y.unflatten(-1, (-1, self.size)).transpose(1, 2) for y in (self.q(x), *self.kv(memory).chunk(2, -1)))
        if self.repeat == "fused":
            z = F.scaled_dot_product_attention(q, k, v, mask, scale=1 / self.divisor, enable_gqa=True)
        else:
            expanded = [each[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2) for each in (k, v)]
            interleaved = [each.repeat_interleave(2, dim=1) for each in (k, v)]
            k, v = expanded if self.repeat == "expanded" else interleaved
            k = torch.cat([torch.empty(0, dtype=k.dtype), k]) if self.repeat == "cached" else k
            k = k * torch.ones_like(k) if self.repeat == "rotated" else k
            z = (q @ k.mT / self.divisor).masked_fill(~mask, -1e9).softmax(dim=-1) @ v
        return self.o(z.transpose(1, 2).flatten(2))


def scaling(encoder: Grouped, decoder: Grouped, cross: Grouped) -> Finding:
    torch.manual_seed(0)
    model = model_styles.FromScratch("matmul")
    model.encoder, model.decoder, model.cross = encoder, decoder, cross
    return finding(diagnose(model, *plain.make_batch(), **IDS), "score scaling")


@pytest.mark.parametrize("repeat", ["interleaved", "expanded", "cached", "fused"])
def test_the_scaling_is_measured_however_keys_are_repeated(repeat: str):
    assert scaling(Grouped(repeat), Grouped(repeat), Grouped(repeat)).light == "green"
    unscaled = scaling(Grouped(repeat), Grouped(repeat), Grouped(repeat, divisor=1))
    assert (unscaled.light, unscaled.bug) == ("red", "no-score-scaling")
    assert "In 1 of 3 attention modules" in unscaled.sentence
    assert "by 1.00, not 2.83." in unscaled.sentence


def test_the_scaling_of_every_call_is_judged_by_itself():
    assert scaling(Grouped(heads=2), Grouped(), Grouped()).light == "green"
    thrice = scaling(Grouped(divisor=3), Grouped(), Grouped(divisor=1))
    assert (thrice.light, thrice.bug) == ("red", None)
    assert "In 2 of 3 attention modules" in thrice.sentence
    by_size = scaling(Grouped(), Grouped(), Grouped(divisor=8))  # as in µP
    assert (by_size.light, by_size.bug) == ("amber", None)
    partly = scaling(Grouped(), Grouped(), Grouped("rotated", divisor=1))
    assert partly.sentence.endswith("which is √d_k. In 1 of 3 calls of attention that could not be measured.")


def test_uniform_attention_does_not_show_whether_heads_are_alike():
    torch.manual_seed(0)
    model = model_styles.FromScratch("matmul")
    for each in (model.encoder, model.decoder, model.cross):
        nn.init.zeros_(each.q.weight)
        nn.init.zeros_(each.q.bias)
    assert finding(diagnose(model, *plain.make_batch(), **IDS), "head diversity").light == "gray"


def test_layers_of_pytorch_may_have_heads_of_different_sizes():
    torch.manual_seed(0)
    model = plain.PlainTransformer()
    model.encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(32, 1, 64, batch_first=True), 1, enable_nested_tensor=False
    )
    assert finding(diagnose(model, *plain.make_batch(), **IDS), "score scaling").light == "green"


# --- models of other shapes ---------------------------------------------------------------------------------------


class SeqFirstGRU(nn.Module):
    """A recurrent model with dot-product attention; (S, B) and (T, B) in, (T, B, V) out."""

    def __init__(self, *, packed: bool = True) -> None:
        super().__init__()
        self.packed = packed
        self.embedding = nn.Embedding(plain.NUM_TOKENS, 16)
        self.encoder, self.decoder = nn.GRU(16, 32), nn.GRU(16, 32)
        self.output = nn.Linear(64, plain.NUM_TOKENS)

    def forward(self, src, tgt_in):
        lengths = (src != plain.PAD).sum(dim=0) if self.packed else torch.full(src.shape[1:], len(src))
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(src), lengths, enforce_sorted=False)
        states, final = self.encoder(packed)
        states, _ = nn.utils.rnn.pad_packed_sequence(states, total_length=len(src))
        queries, _ = self.decoder(self.embedding(tgt_in), final)
        scores = torch.einsum("tbd,sbd->bts", queries, states).masked_fill((src.T == plain.PAD)[:, None], -1e9)
        return self.output(torch.cat([queries, torch.einsum("bts,sbd->tbd", scores.softmax(-1), states)], dim=-1))


def seq_first_loss(forward, src, tgt):
    return F.cross_entropy(forward(src, tgt[:-1]).flatten(0, 1), tgt[1:].flatten(), ignore_index=plain.PAD)


@pytest.mark.parametrize(("packed", "alarms"), [(True, []), (False, ["PAD influence"])])
def test_a_recurrent_model_may_have_time_first(packed: bool, alarms: list[str]):
    torch.manual_seed(0)
    model, (src, tgt) = SeqFirstGRU(packed=packed), plain.make_batch()
    optimizer = torch.optim.Adam(model.parameters())
    settings = {"loss": seq_first_loss, "optimizer": optimizer, "batch_first": False}
    examination = diagnose(model, src.T, tgt.T, **IDS, **settings)
    assert [each.check for each in examination.alarms] == alarms
    assert finding(examination, "attention rows").light == "green"
    assert finding(examination, "target shift").light == "green"


def test_time_first_is_read_off_the_shapes_and_cannot_be_denied():
    model, (src, tgt) = SeqFirstGRU(), plain.make_batch()
    with pytest.warns(match="are read as"):
        diagnose(model, src.T, tgt.T, **IDS)
    with pytest.raises(InputError, match="pass batch_first=False"):
        diagnose(model, src.T, tgt.T, **IDS, batch_first=True)


class WithMasks(nn.Module):
    """``nn.Transformer`` as PyTorch's tutorial calls it: masks are arguments, and weights come with the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(plain.NUM_TOKENS, 32)
        self.positions = nn.Parameter(torch.randn(plain.MAX_LENGTH, 32))
        self.transformer = nn.Transformer(32, 4, 1, 1, 64, norm_first=True, batch_first=True)
        self.output = nn.Linear(32, plain.NUM_TOKENS)

    def forward(self, src, tgt, tgt_mask, src_padding_mask, tgt_padding_mask):
        src_embedded, tgt_embedded = (self.embedding(ids) + self.positions[: ids.shape[1]] for ids in (src, tgt))
        states = self.transformer(
            src_embedded,
            tgt_embedded,
            tgt_mask=tgt_mask,
            src_key_padding_mask=src_padding_mask,
            tgt_key_padding_mask=tgt_padding_mask,
            memory_key_padding_mask=src_padding_mask,
        )
        return self.output(states), None


def summed_loss(forward, src, tgt):
    return F.cross_entropy(
        forward(src, tgt[:, :-1])[0].flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=plain.PAD, reduction="sum"
    )


@pytest.mark.parametrize("causal", [True, False])
def test_a_function_may_add_the_masks(causal: bool):
    torch.manual_seed(0)
    model = WithMasks()

    def forward(src, tgt_in):
        mask = nn.Transformer.generate_square_subsequent_mask(tgt_in.shape[1])
        return model(src, tgt_in, mask if causal else None, src == plain.PAD, tgt_in == plain.PAD)

    examination = diagnose(forward, *plain.make_batch(), **IDS, loss=summed_loss, model=model)
    assert [each.check for each in examination.alarms if each.check != "causal leak"] == ["initial loss"]
    assert "a sum over 200 tokens" in finding(examination, "initial loss").sentence
    assert examination.bugs == ([] if causal else ["no-causal-mask"])
    assert {each.check for each in examination.findings if each.light == "gray"} == {
        *("update size", "embedding scaling", "greedy decoding"),
        *([] if causal else ["PAD after the target", "target order"]),
    }
    model.eval()  # without it, the function is random
    seen = diagnose(forward, *plain.make_batch(), **IDS)
    assert finding(seen, "gradients").light == finding(seen, "attention rows").light == "gray"
    assert finding(seen, "source order").light == "green"


def test_log_probabilities_fit_their_loss_and_no_other():
    torch.manual_seed(0)
    model = plain.PlainTransformer()

    def forward(src, tgt_in):
        return model(src, tgt_in).log_softmax(dim=-1)

    def nll(forward, src, tgt):
        return F.nll_loss(forward(src, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=plain.PAD)

    examination = diagnose(forward, *plain.make_batch(), **IDS, model=model, loss=nll)
    assert [each.sentence for each in examination.alarms] == []
    assert "log-probabilities" in finding(examination, "logits").sentence
    assert finding(diagnose(model, *plain.make_batch(), **IDS, loss=nll), "logits").light == "red"


def focal(logits, labels):
    each = F.cross_entropy(logits, labels, reduction="none")
    return ((1 - torch.exp(-each)) ** 2 * each).mean()


def smoothed(logits, labels):
    probabilities = F.one_hot(labels, plain.NUM_TOKENS) * 0.9 + 0.1 / plain.NUM_TOKENS
    return -(probabilities * (logits.softmax(dim=-1) + 1e-9).log()).sum(dim=-1).mean()


def contrastive(logits, labels):
    return F.cross_entropy(logits[:, labels], torch.arange(len(labels)))


TWICE = "if of wrong ones: it applies a softmax or sigmoid before its own softmax"


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda logits, labels: F.cross_entropy(logits.softmax(dim=-1), labels), TWICE),
        (lambda logits, labels: F.cross_entropy(logits.sigmoid(), labels, label_smoothing=0.1), TWICE),
        (lambda logits, labels: 3 * F.nll_loss(logits.softmax(dim=-1), labels), "minus the probability of the label"),
        (lambda logits, labels: F.cross_entropy(logits, labels, label_smoothing=0.1), ""),
        (lambda logits, labels: F.cross_entropy(logits, labels, torch.linspace(0.1, 3, plain.NUM_TOKENS)), ""),
        (lambda logits, labels: F.cross_entropy(logits, labels) + logits.logsumexp(dim=-1).square().mean(), ""),
        (lambda logits, labels: F.cross_entropy(logits, labels) + 50, ""),
        (lambda logits, labels: 1 - logits.softmax(dim=-1).gather(-1, labels[:, None]).mean(), ""),
        (focal, ""),
        (smoothed, ""),
        (contrastive, ""),
    ],
)
def test_a_softmax_in_the_loss_before_its_own_is_named_and_no_variant_of_cross_entropy(loss, words: str):
    def of_tokens(forward, src, tgt):
        logits, labels = forward(src, tgt[:, :-1]), tgt[:, 1:]
        return loss(logits[labels != plain.PAD], labels[labels != plain.PAD])

    torch.manual_seed(0)
    logits = finding(diagnose(plain.PlainTransformer(), *plain.make_batch(), **IDS, loss=of_tokens), "logits")
    assert logits.light == ("red" if words else "green")
    assert words in logits.sentence


def each_token_by_itself(forward, src, tgt):
    tgt_out = tgt[:, 1:]
    logits, is_token = forward(src, tgt[:, :-1]), tgt_out != plain.PAD
    labels = F.one_hot(tgt_out, plain.NUM_TOKENS).to(logits)
    return F.binary_cross_entropy_with_logits(logits[is_token], labels[is_token], reduction="sum") / is_token.sum()


def against_one_other(forward, src, tgt):
    logits, tgt_out = forward(src, tgt[:, :-1]), tgt[:, 1:]
    lead = logits.gather(-1, tgt_out[..., None]) - logits.gather(-1, (tgt_out[..., None] + 5) % plain.NUM_TOKENS)
    return -F.logsigmoid(lead[tgt_out != plain.PAD]).mean()


@pytest.mark.parametrize(
    ("loss", "failed", "light"),
    [
        (each_token_by_itself, [], "green"),
        (lambda *batch: -each_token_by_itself(*batch), ["loss sign"], "green"),
        (against_one_other, [], "gray"),  # both tokens have equal gradients
    ],
)
def test_labels_are_read_by_the_sign_of_the_gradient_or_not_at_all(loss, failed: list[str], light: str):
    torch.manual_seed(0)
    examination = diagnose(plain.PlainTransformer(), *plain.make_batch(), **IDS, loss=loss)
    assert [each.check for each in examination.failed] == failed
    for check in ("target shift", "EOS in the targets", "PAD in the loss"):
        assert finding(examination, check).light == light


@pytest.mark.parametrize(
    "reshaped",
    [
        lambda logits: logits.mT.reshape(logits.shape),  # (B, V, T), flattened as if it were (B, T, V)
        lambda logits: logits.reshape(logits.mT.shape).mT,  # (B, T, V), viewed as (B, V, T)
    ],
)
def test_a_loss_that_mixes_the_logits_of_positions_by_view_or_reshape_fails(reshaped):
    def loss(forward, src, tgt):
        logits = reshaped(forward(src, tgt[:, :-1]))
        return F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=plain.PAD)

    torch.manual_seed(0)
    examination = diagnose(plain.PlainTransformer(), *plain.make_batch(), **IDS, loss=loss)
    assert [each.check for each in examination.failed] == ["logits"]
    assert "calls view or reshape where it needs transpose" in finding(examination, "logits").sentence
    assert finding(examination, "tokens in the loss").light == "gray"


@pytest.mark.parametrize(("bug", "checks"), [(None, []), ("no-residual", ["residual connections"])])
def test_a_model_of_the_lab_is_checked_at_its_hook_points(tiny: Preset, bug: BugName | None, checks: list[str]):
    state = new_state(tiny.with_bug(bug))
    pairs = fixed_pairs(state.task, 16, split="validation")
    examination = diagnose(state.model, pairs.src, pairs.tgt, **IDS)
    assert [each.check for each in examination.alarms] == checks
    assert examination.bugs == ([bug] if bug else [])
    assert finding(examination, "embedding scaling").light == "green"


def test_a_trained_model_that_copies_what_it_reads_is_found_without_its_loss():
    one_hot = torch.eye(plain.NUM_TOKENS) * 9
    examination = diagnose(lambda src, tgt_in: one_hot[tgt_in], *plain.make_batch(), **IDS, step=500)
    assert examination.bugs == ["targets-not-shifted"]


class ByName(plain.PlainTransformer):
    """Called as Hugging Face's models are, with a dict as its result."""

    def forward(self, input_ids, attention_mask=None, decoder_input_ids=None, labels=None, decoder_attention_mask=None):
        hidden, unread = (None if each is None else each == 0 for each in (attention_mask, decoder_attention_mask))
        read = decoder_input_ids if labels is None else F.pad(labels[:, :-1], (1, 0), value=plain.BOS)
        later = torch.ones(read.shape[1], read.shape[1], dtype=torch.bool).triu(1)
        memory = self.encoder(self.embed(input_ids), src_key_padding_mask=hidden)
        keys = {"tgt_key_padding_mask": unread, "memory_key_padding_mask": hidden}
        states = self.decoder(self.embed(read), memory, tgt_mask=later, **keys)
        return {"logits": self.output(states)}


class Wrapper(nn.Module):
    """Passes what it is given to the module inside, as DistributedDataParallel, torch.compile and PEFT do."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)


@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: Wrapper(Wrapper(model))])
def test_a_model_may_be_called_by_the_names_of_its_arguments(wrap):
    torch.manual_seed(0)
    examination = diagnose(wrap(ByName()), *plain.make_batch(), **IDS)
    assert examination.ok
    assert {finding(examination, each).light for each in ("causal leak", "source order", "gradients")} == {"green"}
    assert " by part: " in (sentence := finding(examination, "gradients").sentence)
    assert "encoder.layers.0 " in sentence
    assert "module" not in sentence


CALLS = {  # of the model in the loss: the call, the checks that fail, and those that are not made
    "in another order": (
        lambda m, s, mask, t: m(attention_mask=mask, decoder_input_ids=t[:, :-1], input_ids=s),
        [],
        [],
    ),
    "by position": (lambda m, s, mask, t: m(s, mask, t[:, :-1]), [], []),
    "with labels": (lambda m, s, mask, t: m(s, mask, labels=t[:, 1:]), [], ["target shift"]),
    "without a mask": (lambda m, s, mask, t: m(s, decoder_input_ids=t[:, :-1]), ["PAD influence"], []),
    "with the mask inverted": (
        lambda m, s, mask, t: m(s, 1 - mask, t[:, :-1]),
        ["PAD influence", "source order", "hidden tokens"],
        [*(f"attention {each}" for each in ("rows", "queries", "entropy")), "score scaling", "head diversity"],
    ),
    "with the decoder's mask": (
        lambda m, s, mask, t: m(s, mask, t[:, :-1], decoder_attention_mask=t[:, :-1] != plain.PAD),
        [],
        [],
    ),
    "with a decoder's mask that hides EOS": (
        lambda m, s, mask, t: m(s, mask, t[:, :-1], decoder_attention_mask=t[:, :-1] != plain.EOS),
        ["hidden tokens"],
        [],
    ),
    "with a decoder's mask of something else": (
        lambda m, s, mask, t: m(s, mask, t[:, :-1], decoder_attention_mask=torch.ones_like(t[:, 1:]).cumsum(1) < 5),
        [],
        ["hidden tokens"],
    ),
    "with a mask of something else": (
        lambda m, s, mask, t: m(s, (torch.arange(s.shape[1]) < 5).long().expand_as(s), t[:, :-1]),
        [],
        ["PAD influence", "hidden tokens"],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_ids_and_mask_of_a_call_in_the_loss_are_known_by_their_names(name: str):
    call, failed, unchecked = CALLS[name]

    def loss(model, src, tgt):
        logits = call(model, src, (src != plain.PAD).long(), tgt)["logits"]
        return F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=plain.PAD)

    torch.manual_seed(0)
    examination = diagnose(Wrapper(ByName()), *plain.make_batch(), **IDS, loss=loss)
    assert [each.check for each in examination.failed] == failed
    assert examination.bugs == (["pad-attended-to"] if "PAD influence" in failed else [])
    others = ("embedding scaling", "greedy decoding", "update size")
    assert {each.check for each in examination.unchecked if each.check not in others} == set(unchecked)


@pytest.mark.parametrize(("shift", "forced", "light"), [(0, 0, "green"), (1, 0, "red"), (0, 8, "green"), (0, 1, "red")])
def test_a_decoder_with_a_cache_that_is_off_by_one_fails(shift: int, forced: int, light: str):
    """And one whose ``forced`` step writes EOS, unless that is the last step, where EOS ends what is too long."""
    torch.manual_seed(0)
    model = plain.PlainTransformer()

    def decode(src):
        read = torch.full((len(src), 1), plain.BOS)
        for step in range(8):
            known = read[:, max(0, step) * shift :]  # a step of a cache reads one token, here at position 0
            chosen = model(src, known)[:, -1:].argmax(dim=-1)
            read = torch.cat([read, torch.full_like(chosen, plain.EOS) if step + 1 == forced else chosen], dim=1)
        return read

    decoding = finding(diagnose(model, *plain.make_batch(), **IDS, decode=decode), "greedy decoding")
    assert decoding.light == light
    assert ("it may be forced" in decoding.sentence) == (forced == 8)


def test_two_ids_of_pad_are_read_off_or_passed():
    src, tgt = plain.make_batch()
    tgt = torch.where(tgt == 3, 4, tgt).masked_fill(tgt == plain.PAD, 3)

    def loss(forward, src, tgt):
        return F.cross_entropy(forward(src, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=3)

    torch.manual_seed(0)
    with pytest.warns(match="tgt_pad=3"):
        assert not diagnose(plain.PlainTransformer(), src, tgt, **IDS, loss=loss).alarms
    assert not diagnose(plain.PlainTransformer(), src, tgt, **IDS, loss=loss, tgt_pad=3).alarms


class Random(plain.PlainTransformer):
    """Adds noise to its logits."""

    def __init__(self, noise):
        super().__init__()
        self.noise = noise

    def forward(self, src, tgt_in):
        return super().forward(src, tgt_in) + self.noise()


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (random.random, "draws from Python's random"),
        (lambda: torch.randn(20), "draws from torch's random generator"),
        (lambda: F.dropout(torch.ones(20)), "dropout is active, dropout(p=0.5, training=True) is called"),
        (lambda: torch.randn(20, generator=GENERATOR), "a generator of its own"),
    ],
)
def test_the_cause_of_differing_calls_is_measured(noise, words: str):
    before = random.getstate()
    examination = diagnose(Random(noise), *plain.make_batch(), **IDS)
    assert [each.check for each in examination.failed] == ["forward pass"]
    assert words in examination.failed[0].sentence
    assert noise is not random.random or random.getstate() == before


def test_pad_that_reads_later_tokens_is_no_leak():
    """A padding mask of the target on the axis of the queries changes no logit that counts."""

    class WrongAxis(model_styles.FromScratch):
        def forward(self, src, tgt_in):
            may_read, keep = (src != plain.PAD)[:, None, None], (tgt_in != plain.PAD)[:, None, :, None]
            earlier = torch.ones(tgt_in.shape[1], tgt_in.shape[1]).tril().bool()
            memory = self.add(0, self.source(src), lambda x: self.encoder(x, x, may_read))
            y = self.target(tgt_in) + self.places(torch.arange(tgt_in.shape[1]))
            y = self.add(2, y, lambda z: self.decoder(z, z, earlier & keep))
            return self.output(self.add(3, y, lambda z: self.cross(z, memory, may_read)))

    leak = finding(diagnose(WrongAxis("matmul"), *plain.make_batch(), **IDS), "causal leak")
    assert leak.light == "amber"
    assert "No logit that counts changes" in leak.sentence


SECOND_HEAD = torch.arange(4).view(4, 1, 1) == 1


class Weighed(model_styles.Attention):
    """Attention whose weights are a function of scores and mask."""

    def __init__(self, weigh):
        super().__init__("matmul")
        self.weigh = weigh

    def forward(self, x, memory, mask):
        q, k, v = self.split(self.q(x)), self.split(self.k(memory)), self.split(self.v(memory))
        weights = self.weigh(q @ k.mT / 8**0.5, mask)
        return self.o((weights @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize(
    ("weigh", "leak", "pad", "bugs"),
    [
        (
            lambda scores, mask: scores.softmax(dim=-1).masked_fill(~mask, 0),
            "and none after it",
            "and none after it",
            [],
        ),
        (lambda scores, mask: (scores.softmax(dim=-1) * mask).clone(), "and none after it", "and none after it", []),
        (
            lambda scores, mask: scores.masked_fill(~mask, -8).softmax(dim=-1),
            "the causal mask is too weak",
            "the padding mask is too weak",
            [],
        ),
        (
            lambda scores, mask: scores.masked_fill(~mask, 1e-9).softmax(dim=-1),
            "the causal mask sets their scores to a number that is too high",
            "the padding mask is missing, or sets scores to a number that is too high",
            ["pad-attended-to"],
        ),
        (
            lambda scores, mask: scores.masked_fill(~mask, -1e9).softmax(dim=-1).softmax(dim=-1),
            "a softmax is applied to weights that are masked",
            "a softmax is applied to weights that are masked",
            [],
        ),
        (
            lambda scores, mask: (scores + 0 * mask).softmax(dim=-1),
            "the causal mask is missing",
            "the padding mask is missing.",
            ["no-causal-mask", "pad-attended-to"],
        ),
        (
            lambda scores, mask: scores.masked_fill(~mask ^ SECOND_HEAD, -1e9).softmax(dim=-1),
            "all from 1 of 4 heads. Check the causal mask",
            "all from 1 of the 4 heads of",
            [],
        ),
    ],
)
def test_a_mask_that_is_late_or_weak_or_of_one_head_is_not_called_missing(
    weigh, leak: str, pad: str, bugs: list[BugName]
):
    torch.manual_seed(0)
    model = model_styles.FromScratch("matmul")
    model.encoder, model.decoder, model.cross = (Weighed(weigh) for _ in range(3))
    examination = diagnose(model, *plain.make_batch(), **IDS)
    sentences = {each.check: each.sentence for each in examination.failed}
    assert set(sentences) == {"causal leak", "PAD influence"}
    assert leak in sentences["causal leak"]
    assert pad in sentences["PAD influence"]
    assert not any(" 0 %" in each for each in sentences.values())
    assert examination.bugs == bugs


def test_weights_that_are_masked_after_the_softmax_and_divided_by_their_sum_pass():
    def weigh(scores, mask):
        weights = scores.softmax(dim=-1) * mask
        return weights / weights.sum(dim=-1, keepdim=True)

    torch.manual_seed(0)
    model = model_styles.FromScratch("matmul")
    model.encoder, model.decoder, model.cross = (Weighed(weigh) for _ in range(3))
    examination = diagnose(model, *plain.make_batch(), **IDS)
    assert not examination.failed, examination


def test_attention_to_the_largest_scores_is_no_mask():
    def weigh(scores, mask):
        scores = scores.masked_fill(~mask, -torch.inf)
        return scores.masked_fill(scores < scores.topk(2).values[..., -1:], -torch.inf).softmax(dim=-1)

    torch.manual_seed(0)
    model = model_styles.FromScratch("matmul")
    model.decoder = Weighed(weigh)
    hidden = finding(diagnose(model, *plain.make_batch(), **IDS), "hidden tokens")
    assert hidden.light == "amber"
    assert "perhaps sparse attention" in hidden.sentence


@pytest.mark.parametrize(("most", "light"), [(plain.NUM_TOKENS, "amber"), (5, "red")])
def test_word_dropout_is_no_wrong_shift(most: int, light: str):
    """But several ids in place of the tokens before are one."""

    def loss(forward, src, tgt):
        tgt_in, labels = tgt[:, :-1], tgt[:, 1:]
        dropped = (torch.arange(tgt_in.numel()).view_as(tgt_in) % 7 == 0) & (tgt_in > plain.EOS)
        read = torch.where(dropped, 3 + tgt_in // most, tgt_in)
        return F.cross_entropy(forward(src, read).flatten(0, 1), labels.flatten(), ignore_index=plain.PAD)

    torch.manual_seed(0)
    shift = finding(diagnose(plain.PlainTransformer(), *plain.make_batch(), **IDS, loss=loss), "target shift")
    assert shift.light == light
    assert ("replaces 12 % of the tokens, as word dropout" in shift.sentence) == (light == "amber")


def test_a_change_to_infinity_is_words_and_no_number():
    """A softmax over the batch, of which PAD is hidden, has no token in a column of PAD."""

    class WrongAxis(model_styles.FromScratch):
        def forward(self, src, tgt_in):
            hidden = torch.zeros(src.shape).masked_fill(src == plain.PAD, -torch.inf)
            return super().forward(src, tgt_in) + hidden.softmax(dim=0).sum(dim=1)[:, None, None]

    examination = diagnose(WrongAxis("matmul"), *plain.make_batch(), **IDS)
    rows = finding(examination, "rows of a batch")
    assert "the other pairs of its batch, some becoming infinite or NaN. Possible causes" in rows.sentence
    data = json.loads(json.dumps(examination.as_data()), parse_constant=lambda name: pytest.fail(name))
    assert Examination.from_data(data).failed == [replace(each, figure=None) for each in examination.failed]


def test_one_standard_deviation_is_singular():
    assert [how_far(each) for each in (0.996, 1.04, 1.06)] == [
        ", by 1 standard deviation",
        ", by 1 standard deviation",
        ", by 1.1 standard deviations",
    ]


# --- what cannot be checked ---------------------------------------------------------------------------------------


def raising(src, tgt_in):
    raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (raising, "RuntimeError: mat1 and mat2"),
        (lambda src, tgt_in: None, "a NoneType; it must return logits (B, T, V)"),
        (lambda src, tgt_in: torch.zeros(2, 3), "a tensor (2, 3) float32"),
        (lambda src, tgt_in: torch.zeros(*tgt_in.T.shape, 20), "See batch_first"),
        (lambda src, tgt_in: torch.randn(*tgt_in.shape, 20), "two calls with the same input differ"),
        (lambda src, tgt_in, mask: None, "missing 1 required positional argument: 'mask'"),
    ],
)
def test_a_model_that_cannot_be_called_ends_no_examination(forward, words: str):
    examination = diagnose(forward, *plain.make_batch(), **IDS, loss=plain.training_loss)
    assert words in finding(examination, "forward pass").sentence
    assert examination.alarms == []
    green = {each.check for each in examination.findings if each.light == "green"}
    assert not green & {"causal leak", "PAD influence", "source order", "rows of a batch", "gradients"}


@pytest.mark.parametrize(
    ("side", "token", "words"),
    [
        (
            0,
            25,
            "index out of range in self; src has ids up to 25 in 10 columns and tgt has ids up to 19 in 10 columns",
        ),
        (1, -100, "tgt has -100, which is no id: pass it padded with the PAD that the model reads"),
    ],
)
def test_ids_for_which_a_table_has_no_row_are_named(side: int, token: int, words: str):
    batch = [
        each.masked_fill(each == plain.PAD, token) if at == side else each for at, each in enumerate(plain.make_batch())
    ]
    examination = diagnose(plain.PlainTransformer(), *batch, **IDS, src_pad=token if not side else None)
    assert words in finding(examination, "forward pass").sentence
    assert ".;" not in examination.diagnosis


class Relative(torch.optim.Adam):
    """Sets its own rate, as Adafactor of transformers does with ``lr=None``."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["lr"] = 1e-3
        super().step(closure)


def relative(parameters) -> Relative:
    optimizer = Relative(parameters)
    optimizer.param_groups[0]["lr"] = None
    return optimizer


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        (relative, "At the rate that it sets, an update changes"),
        (torch.optim.LBFGS, "the optimizer's step needs a closure"),
    ],
)
def test_optimizers_may_lack_a_rate_or_need_a_closure(optimizer, words: str):
    model = plain.PlainTransformer()
    used = optimizer(model.parameters())
    rate = used.param_groups[0]["lr"]
    examination = diagnose(model, *plain.make_batch(), **IDS, optimizer=used)
    assert words in finding(examination, "update size").sentence
    assert used.param_groups[0]["lr"] == rate


def test_a_training_may_have_several_optimizers():
    model = plain.PlainTransformer()
    matrices, others = ([each for each in model.parameters() if (each.ndim == 2) == is_2d] for is_2d in (True, False))
    both = [torch.optim.SGD(matrices, 1e-3, momentum=0.9), torch.optim.AdamW(others, 1e-3)]
    found = [
        finding(diagnose(model, *plain.make_batch(), **IDS, optimizer=each), "update size") for each in (both, both[0])
    ]
    assert [each.light for each in found] == ["green", "red"]
    assert found[1].sentence.endswith("If another optimizer has them, pass both in a list.")
    assert not any(each.state for each in both)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda forward, src, tgt: 3.0, "0 times"),
        (lambda forward, src, tgt: forward(src, tgt).sum().item(), "a float; it must return one number"),
        (lambda forward, src, tgt: forward(src), "TypeError"),
        (lambda forward, src, tgt: forward(src, tgt).detach().sum(), "it is computed under no_grad(), from detached"),
    ],
)
def test_a_loss_that_training_cannot_use_fails_and_ends_no_examination(loss, words: str):
    table = torch.randn(plain.NUM_TOKENS, plain.NUM_TOKENS)
    examination = diagnose(lambda src, tgt_in: table[tgt_in], *plain.make_batch(), **IDS, loss=loss)
    for check in ("target shift", "PAD in the loss", "logits"):
        assert finding(examination, check).light == "gray"
        assert words in finding(examination, check).sentence
    assert finding(examination, "causal leak").light == "green"
    assert finding(examination, "gradients").light == "red"


class WithGradients(plain.PlainTransformer):
    """Computes its logits with gradients in some modes only."""

    def __init__(self, *modes: bool) -> None:
        super().__init__()
        self.modes = modes

    def forward(self, src, tgt_in):
        with torch.set_grad_enabled(self.training in self.modes):
            return super().forward(src, tgt_in)


@pytest.mark.parametrize(
    ("model", "loss", "light", "words"),
    [
        (
            plain.PlainTransformer,
            lambda forward, src, tgt: forward(src, tgt).argmax(dim=-1).float().mean().requires_grad_(),
            "red",
            "No gradient reaches any of 33 parameters",
        ),
        (lambda: WithGradients(), plain.training_loss, "red", "No gradient reaches any of 33 parameters"),
        (lambda: WithGradients(True), plain.training_loss, "green", "Every parameter gets a gradient"),
        (
            plain.PlainTransformer,
            lambda forward, *batch: plain.training_loss(forward, *batch) + plain.training_loss(forward, *batch),
            "green",
            "Every parameter gets a gradient",
        ),
    ],
)
def test_gradients_that_reach_no_parameter_in_any_mode_fail(model, loss, light: str, words: str):
    torch.manual_seed(0)
    examination = diagnose(model(), *plain.make_batch(), **IDS, loss=loss)
    assert finding(examination, "gradients").light == light
    assert words in finding(examination, "gradients").sentence
    assert examination.ok == (light == "green")


def test_nothing_checked_is_not_called_a_model_without_bugs():
    examination = diagnose(raising, torch.tensor([[5]]), torch.tensor([[1, 5]]), pad=0, bos=1, eos=0)
    assert set(each.light for each in examination.findings) == {"gray"}
    assert "could not run the model: RuntimeError: mat1" in str(examination)
    assert repr(examination) == str(examination)  # as a notebook shows it
    assert not examination.ok
    assert not examination.failed


@pytest.mark.parametrize(
    ("src", "tgt", "words"),
    [
        (torch.zeros(3, dtype=torch.int64), torch.ones(1, 3, dtype=torch.int64), "src is a tensor (3,) int64"),
        (torch.zeros(1, 3), torch.ones(1, 3, dtype=torch.int64), "src is a tensor (1, 3) float32"),
        ([[1]], torch.ones(1, 3, dtype=torch.int64), "src is a list"),
        (np.ones((1, 3)), torch.ones(1, 3, dtype=torch.int64), "src is an ndarray"),
        (torch.ones(2, 3, dtype=torch.int64), torch.ones(1, 3, dtype=torch.int64), "src has 2 rows and tgt has 1"),
    ],
)
def test_pairs_that_are_no_ids_are_refused(src, tgt, words: str):
    with pytest.raises(InputError) as caught:
        diagnose(raising, src, tgt, **IDS)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["pad", "bos", "eos", "src_pad", "tgt_pad", "step"])
def test_numbers_may_be_of_any_type_but_text(name: str):
    for given in (np.int64(1), torch.tensor(1)):
        assert diagnose(plain.PlainTransformer(), *plain.make_batch(), **IDS | {name: given}).could_run
    with pytest.raises(InputError, match=f"{name}='1' must be a whole number"):
        diagnose(raising, *plain.make_batch(), **IDS | {name: "1"})


def test_what_is_no_optimizer_model_or_function_is_named():
    model = plain.PlainTransformer()
    schedule = torch.optim.lr_scheduler.ConstantLR(plain.make_optimizer(model))
    for name, given, kinds in (
        ("optimizer", schedule, "a ConstantLR; it must be an optimizer of PyTorch, or a list of them"),
        ("optimizer", [plain.make_optimizer(model), "adam"], "a str; it must be an optimizer of PyTorch"),
        ("model", model.state_dict(), "an OrderedDict; it must be an nn.Module"),
        ("loss", torch.tensor(1.0), r"a tensor \(\) float32; it must be a function"),
        ("decode", "greedy", "a str; it must be a function"),
    ):
        with pytest.raises(InputError, match=f"{name} is {kinds}"):
            diagnose(raising, *plain.make_batch(), **IDS, **{name: given})


def test_a_diagnosis_changes_nothing():
    torch.manual_seed(0)
    model = plain.PlainTransformer()
    optimizer, batch = plain.make_optimizer(model), plain.make_batch()
    model.train()
    model.encoder.eval()  # a part in another mode than the rest
    plain.training_loss(model, *batch).backward()
    optimizer.step()

    def everything() -> list[torch.Tensor]:
        states = [value for state in optimizer.state_dict()["state"].values() for value in state.values()]
        gradients = [each.grad for each in model.parameters()]
        return [each.clone() for each in (*model.state_dict().values(), *gradients, *states, torch.get_rng_state())]

    before, modes = everything(), [each.training for each in model.modules()]
    diagnose(model, *batch, **IDS, loss=plain.training_loss, optimizer=optimizer)
    assert all(torch.equal(*pair) for pair in zip(before, everything(), strict=True))
    assert [each.training for each in model.modules()] == modes
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("part", ["backward", "step", "step of a model that computes the loss"])
def test_a_loss_that_makes_a_training_step_is_refused_and_changes_nothing(steps: int, part: str):
    model, batch = plain.PlainTransformer(), plain.make_batch()
    optimizer = torch.optim.AdamW(model.parameters())

    def training_step(forward, src, tgt):
        loss = plain.training_loss(forward if part in ("backward", "step") else model.forward, src, tgt)
        loss.backward()
        if part != "backward":
            optimizer.step()
        return loss

    for _ in range(steps):
        training_step(model, *batch)

    def everything() -> list[torch.Tensor]:
        states = [value for state in optimizer.state_dict()["state"].values() for value in state.values()]
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        return [each.clone() for each in (*model.state_dict().values(), *gradients, *states)]

    before = everything()
    with pytest.raises(InputError, match="loss makes a training step"):
        diagnose(model, *batch, **IDS, loss=training_step, optimizer=optimizer)
    after = everything()
    assert len(after) == len(before)
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))
    if part != "backward":
        training_step(model, *batch)  # and training may go on


def test_an_interrupted_diagnosis_changes_nothing_either():
    """Wherever Ctrl+C is, and although the prompt keeps the exception with its frames."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 8), nn.Dropout(), nn.Linear(8, 20))
    ids, calls_left = torch.randint(3, 20, (4, 8)), 0

    def forward(read: torch.Tensor) -> torch.Tensor:
        nonlocal calls_left
        calls_left -= 1
        if calls_left == 0:
            raise KeyboardInterrupt
        return model(read)

    def loss(forward, ids):
        return F.cross_entropy(forward(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    diagnose(forward, None, ids, loss=loss, model=model)
    num_calls = -calls_left
    assert num_calls > 20
    before = [each.clone() for each in model.parameters()]
    for calls_left in range(1, num_calls, 2):  # noqa: B007 - forward counts it down
        with pytest.raises(KeyboardInterrupt) as kept:
            diagnose(forward, None, ids, loss=loss, model=model)
        assert kept.value.__traceback__ is not None
        assert all(each.training for each in model.modules())
        assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
        assert torch.zeros(1).dtype == torch.float32


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_waits_for_the_check_that_runs():
    """In the middle of a check it may leave PyTorch's stack of function modes as it must not be."""
    torch.manual_seed(0)
    model, ids = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20)), torch.randint(3, 20, (4, 8))
    calls = []

    def forward(read: torch.Tensor) -> torch.Tensor:
        calls.append("begun")
        if len(calls) == 19:
            signal.raise_signal(signal.SIGINT)
        logits = model(read)
        calls.append("ended")
        return logits

    with pytest.raises(KeyboardInterrupt):
        diagnose(forward, None, ids, model=model)
    assert calls[18:20] == ["begun", "ended"]
    interrupted = len(calls)
    diagnose(forward, None, ids, model=model)
    assert len(calls) - interrupted > interrupted  # it did not go on to the end
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
