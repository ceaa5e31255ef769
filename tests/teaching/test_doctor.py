"""The doctor: names what is wrong by what a model does, and finds nothing in a good one."""

import json

import pytest
import torch
from torch import nn

from core.__main__ import main
from core.config import load_preset
from core.config.bugs import BUG_FAMILIES
from core.models.attention import MultiHeadAttention
from core.runs import RunError
from core.runs.load import SavedRuns
from core.runs.training_state import training_state_of
from core.teaching.bugs import new_state
from core.teaching.doctor import examine_preset, examine_state, run_checks
from core.teaching.doctor.finding import Examination, Finding
from core.teaching.doctor.subject import Subject
from core.training.history import History
from core.training.loop import StepEvent

CASES = [(bug, family) for bug, families in BUG_FAMILIES.items() for family in families]
QUICK = ["tiny", "digits-reversal", "digits-reversal-decoder-only", "pattern-completion", "digits-reversal-gru"]
GOOD = [(name, seed) for name in QUICK for seed in range(3)] + [("psalms", 0)]  # which takes seconds to be read


@pytest.fixture(scope="module")
def of_family(tiny, tiny_gru):
    decoder_only = tiny.with_changes({"model.family": "decoder-only"})
    return {"transformer": tiny, "decoder-only": decoder_only, "gru": tiny_gru}


def finding(examination: Examination, check: str) -> Finding:
    return next(each for each in examination.findings if each.check == check)


@pytest.mark.parametrize("steps", [0, 6])
@pytest.mark.parametrize(("bug", "family"), CASES)
def test_every_bug_is_named_and_no_other(bug, family, steps, of_family):
    assert examine_preset(of_family[family].with_bug(bug), steps=steps).bugs == [bug]


@pytest.mark.parametrize(("bug", "family"), CASES)
def test_the_preset_s_word_for_it_is_not_needed(bug, family, of_family):
    state = new_state(of_family[family].with_bug(bug))
    state.preset = state.preset.model_copy(update={"bug": None, "name": "innocent", "description": "fine"})
    assert examine_state("innocent", state, None).bugs == [bug]


@pytest.mark.parametrize("family", ["transformer", "decoder-only", "gru"])
def test_a_good_model_gets_green_lights_only(family, of_family):
    examination = examine_preset(of_family[family])
    assert examination.bugs == []
    assert [each.sentence for each in examination.alarms] == []


@pytest.mark.parametrize(("name", "seed"), GOOD)
def test_good_presets_raise_no_alarm(name, seed):
    assert examine_preset(load_preset(name).with_changes({"training.seed": seed})).alarms == []


@pytest.mark.parametrize("choice", ["norm=pre", "tie_embeddings=all", "positions=alibi", "positions=learned"])
def test_other_good_choices_raise_no_alarm(tiny, choice):
    key, value = choice.split("=")
    assert examine_preset(tiny.with_changes({f"model.{key}": value})).alarms == []


def test_a_model_that_does_not_hear_its_source_is_not_said_to_lack_positions(tiny):
    state = new_state(tiny)
    state.model.src_embedding.register_forward_hook(lambda _, args, given: torch.zeros_like(given))
    order = finding(examine_state("it", state, None), "order of the source")
    assert (order.light, order.bug) == ("red", None)


def test_examining_changes_nothing(tiny):
    state = new_state(tiny)
    before, drawn = [each.clone() for each in state.model.parameters()], state.generator.get_state()
    state.model.train()
    examine_state("it", state, None)
    assert torch.equal(state.generator.get_state(), drawn)
    assert state.model.training
    assert all(torch.equal(*pair) for pair in zip(before, state.model.parameters(), strict=True))
    assert all(each.grad is None for each in state.model.parameters())
    assert not any(each._forward_hooks for each in state.model.modules())


def test_a_mask_that_somebody_else_left_out_is_missed(tiny, monkeypatch):
    monkeypatch.setattr("core.models.transformer.causal_mask", lambda *args, **kwargs: None)
    assert examine_preset(tiny).bugs == ["no-causal-mask"]


def test_weights_that_are_no_softmax_are_noticed(tiny, monkeypatch):
    def squared(query, key, mask, bias=None):
        scores = (query @ key.transpose(-2, -1)).square() + 0.1
        scores = scores if mask is None else scores * mask
        return scores / scores.sum(dim=-1, keepdim=True)

    monkeypatch.setattr("core.models.attention.attention_weights", squared)
    examination = examine_preset(tiny)
    assert finding(examination, "scale of the scores").light == "amber"
    assert examination.bugs == []


def test_a_scale_that_is_neither_right_nor_missing_is_told_and_not_named(tiny):
    state = new_state(tiny)
    for module in state.model.modules():
        if isinstance(module, MultiHeadAttention):
            module.w_q.register_forward_hook(lambda _, args, query: query / 2)
    scale = finding(examine_state("it", state, None), "scale of the scores")
    assert (scale.light, scale.bug) == ("red", None)
    assert scale.figure == pytest.approx(2 * 8**0.5, rel=1e-3)


@pytest.mark.parametrize(("drift", "bugs"), [(1e-4, ["heads-alike"]), (1.0, [])])
def test_heads_that_began_alike_are_named_also_when_rounding_has_moved_them(tiny, drift, bugs):
    state = new_state(tiny.with_bug("heads-alike"))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in state.model.parameters():
            parameter += drift * torch.randn(parameter.shape, generator=generator)
    assert examine_state("it", state, None).bugs == bugs


def test_a_parameter_without_a_gradient_is_pointed_at(tiny):
    state = new_state(tiny)
    layer = state.model.decoder_layers[0]
    layer.feed_forward.narrow.register_forward_hook(lambda _, args, given: given.detach())
    told = finding(examine_state("it", state, None), "gradients")
    assert told.light == "amber"
    assert "decoder_layers.0.feed_forward.widen.weight" in told.sentence


def test_a_first_loss_far_from_chance_is_odd(tiny):
    state = new_state(tiny)
    nn.init.normal_(state.model.output.weight, std=3.0)
    assert finding(examine_state("it", state, None), "loss before training").light == "amber"


def curve(preset, losses) -> Finding:
    state, history = new_state(preset), History(len(losses))
    for step, loss in enumerate(losses, start=1):
        history.add(StepEvent(step, loss, 0.1, 1.0, 1.0))
    return run_checks.loss_curve(Subject(state, history))


@pytest.mark.parametrize(
    ("losses", "light", "said"),
    [
        ([2.5 * 0.97**step for step in range(300)], "green", "from 2.19 to 0.00"),
        ([1.7 + 3 * 0.85**step for step in range(150)], "green", "to 1.70."),  # falls from high up
        ([2.6, *[15 * 0.8**step for step in range(300)]], "amber", "rose to 15.00"),
        ([2.6] * 20 + [4.5] + [0.02] * 300, "green", "to 0.02."),  # one batch of another kind
        ([2.6] * 300, "red", "flat"),
        ([2.5 * 0.97**step + 2 * (step % 20 == 0) for step in range(300)], "amber", "spikes"),
        ([1.0 + 0.5 * (-1) ** step for step in range(300)], "amber", "swings"),
        ([2.6] * 20, "green", "Too early"),
    ],
)
def test_a_loss_curve_is_told_in_words(tiny, losses, light, said):
    found = curve(tiny, losses)
    assert found.light == light
    assert said in found.sentence


def test_a_model_that_cannot_write_what_it_predicts_is_told(tiny, scripted, monkeypatch):
    state = new_state(tiny)
    subject = Subject(state, None)
    figures = iter([(0.99, 0.1), (0.99, 0.95), (0.5, 0.0)])

    def evaluated(model, pairs):
        accuracy, exact = next(figures)
        return type("Figures", (), {"token_accuracy": accuracy, "exact_match": exact})

    monkeypatch.setattr(run_checks, "evaluate", evaluated)
    assert [run_checks.gap(subject).light for _ in range(3)] == ["red", "green", "green"]


def test_a_run_is_examined_by_its_best_weights(trained):
    runs = SavedRuns(trained)
    examination = examine_state("done", training_state_of(runs.loaded("done")), runs.history("done"))
    assert examination.step > 0
    assert {"curve of the loss", "teacher-forced against free-running"} <= {each.check for each in examination.findings}
    with pytest.raises(RunError):
        runs.loaded("nobody")


def test_the_command_tells_what_it_found(trained, capsys):
    assert main(["--checkpoints", str(trained), "doctor", "--run", "done", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["bugs"] == []
    assert all(each["sentence"] for each in told["findings"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "one of --run"),
        (["--run", "a", "--preset", "tiny"], "one of --run"),
        (["--preset", "tiny", "--steps", "-1"], "--steps=-1"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(options, said, capsys):
    assert main(["doctor", *options]) == 2
    assert said in capsys.readouterr().err
