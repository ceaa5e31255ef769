"""The doctor: finds bugs by what a model does, and none in a correct model."""

import json

import pytest
import torch
from torch import nn

from core.__main__ import main
from core.config import BUG_FAMILIES, BugName, Preset, load_preset
from core.config.counting import percent
from core.evaluation.accuracy import Evaluation
from core.evaluation.translation_quality import TranslationQuality
from core.models.attention import MultiHeadAttention
from core.models.hooks import hook_names, hooks
from core.runs import RunError
from core.runs.run import Runs
from core.runs.training_state import training_state_of
from core.teaching.bugs import new_state
from core.teaching.doctor import examine_preset, examine_state, run_checks
from core.teaching.doctor.finding import Examination, Finding
from core.teaching.doctor.learning_checks import judge_update, update_fraction
from core.teaching.doctor.subject import Subject
from core.training.history import History
from core.training.loop import StepEvent

CASES = [(bug, family) for bug, families in BUG_FAMILIES.items() for family in families]
FIRST_AND_LAST = [(bug, each) for bug, families in BUG_FAMILIES.items() for each in sorted({families[0], families[-1]})]
OTHERS = [pytest.param(*case, marks=pytest.mark.slow) for case in CASES if case not in FIRST_AND_LAST]
GOOD = (
    *("tiny", "digits-reversal", "digits-reversal-decoder-only", "pattern-completion", "digits-reversal-gru"),
    "masked-digits",
)


@pytest.fixture(scope="module")
def families(tiny: Preset, tiny_gru: Preset) -> dict[str, Preset]:
    """A small preset of each model family."""
    return {
        "transformer": tiny,
        "decoder-only": tiny.with_changes({"model.family": "decoder-only"}),
        "encoder-only": tiny.with_changes({"model.family": "encoder-only"}),
        "gru": tiny_gru,
    }


def finding(examination: Examination, check: str) -> Finding:
    return next(each for each in examination.findings if each.check == check)


def examine(state, name: str = "it") -> Examination:
    return examine_state(name, state, None)


def test_a_model_that_is_meant_not_to_scale_its_embeddings_is_not_blamed(tiny):
    changes = {"model.scale_embeddings": False, "model.positions": "learned"}
    assert finding(examine(new_state(tiny.with_changes(changes))), "embedding scaling").light == "gray"


@pytest.mark.parametrize(("bug", "family"), [*FIRST_AND_LAST, *OTHERS])
def test_every_bug_is_found_untrained_without_reading_the_preset(bug: BugName, family: str, families):
    state = new_state(families[family].with_bug(bug))
    state.preset = state.preset.model_copy(update={"bug": None, "name": "innocent", "description": "fine"})
    assert examine(state).bugs == [bug]


@pytest.mark.parametrize("bug", ["heads-alike", "learning-rate-too-high"])
def test_bugs_are_found_after_some_updates(bug: BugName, families):
    assert examine_preset(families["transformer"].with_bug(bug), steps=6).bugs == [bug]


@pytest.mark.slow
@pytest.mark.parametrize(("bug", "family"), CASES)
def test_every_bug_is_found_after_some_updates_in_every_family(bug: BugName, family: str, families):
    assert examine_preset(families[family].with_bug(bug), steps=6).bugs == [bug]


@pytest.mark.parametrize("family", ["decoder-only", "encoder-only"])  # the others are below
def test_a_correct_model_of_each_family_passes_all_checks(families, family):
    examination = examine_preset(families[family])
    assert [each.sentence for each in examination.alarms] == []


@pytest.mark.parametrize("name", GOOD[2:])
def test_good_presets_pass_all_checks(name):
    assert examine_preset(load_preset(name)).alarms == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), [(name, seed) for name in GOOD for seed in (1, 2)] + [("psalms", 0)])
def test_good_presets_pass_all_checks_with_other_seeds(name, seed):
    assert examine_preset(load_preset(name).with_changes({"training.seed": seed})).alarms == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("norm", "pre"),
        ("tie_embeddings", "all"),
        ("positions", "alibi"),
        ("positions", "learned"),
        ("positions", "vo-rope"),
    ],
)
def test_other_model_options_pass_all_checks(tiny, key, value):
    assert examine_preset(tiny.with_changes({f"model.{key}": value})).alarms == []


@pytest.mark.parametrize("bug", [None, "no-causal-mask"])
def test_a_token_that_an_imported_model_masks_hides_nothing(tiny, bug: BugName | None):
    state = new_state(tiny.with_bug(bug))
    state.model.output.register_forward_hook(lambda _, args, logits: logits.index_fill(-1, torch.tensor([1]), -1e9))
    examination = examine(state)
    assert [each.check for each in examination.alarms] == (["causal leak"] if bug else [])


def test_a_model_that_ignores_its_source_is_not_said_to_lack_positions(tiny):
    state = new_state(tiny)
    state.model.src_embedding.register_forward_hook(lambda _, args, output: torch.zeros_like(output))
    order = finding(examine(state), "source order")
    assert (order.light, order.bug) == ("red", None)


def test_an_examination_changes_nothing(tiny):
    state = new_state(tiny)
    weights, random_state = [each.clone() for each in state.model.parameters()], state.generator.get_state()
    state.model.train()
    examine(state)
    assert torch.equal(state.generator.get_state(), random_state)
    assert state.model.training
    assert all(torch.equal(*pair) for pair in zip(weights, state.model.parameters(), strict=True))
    assert all(each.grad is None for each in state.model.parameters())
    assert not any(each._forward_hooks for each in state.model.modules())


def test_an_examination_reads_nothing_of_other_calls(tiny):
    """Hooks of an enclosing call still run, and see a usual forward pass."""
    state, calls = new_state(tiny), []
    with hooks(dict.fromkeys(hook_names(state.model), lambda x: calls.append(x.shape))):
        assert examine(state).alarms == []
    assert calls


def test_a_missing_mask_is_found_whatever_removed_it(tiny, monkeypatch):
    monkeypatch.setattr("core.models.transformer.causal_mask", lambda *args, **kwargs: None)
    assert examine_preset(tiny).bugs == ["no-causal-mask"]


def test_weights_that_are_no_softmax_get_a_warning(tiny, monkeypatch):
    def squared(scores, mask):
        scores = scores.square() + 0.1
        scores = scores if mask is None else scores * mask
        return scores / scores.sum(dim=-1, keepdim=True)

    monkeypatch.setattr("core.models.attention.masked_softmax", squared)
    state = new_state(tiny)
    attentions = [each for each in state.model.modules() if isinstance(each, MultiHeadAttention)]
    for attention in attentions:  # or the fused kernel would compute a softmax when nothing reads the weights
        attention.hook_pattern.permanent = lambda pattern: pattern
    examination = examine(state)
    assert finding(examination, "score scaling").light == "amber"
    assert examination.bugs == []


def test_a_wrong_but_present_scale_is_reported_without_naming_a_bug(tiny):
    state = new_state(tiny)
    for module in state.model.modules():
        if isinstance(module, MultiHeadAttention):
            module.hook_attn_scores.permanent = lambda scores: scores / 2
    scale = finding(examine(state), "score scaling")
    assert (scale.light, scale.bug) == ("red", None)
    assert scale.figure == pytest.approx(2 * 8**0.5, rel=1e-3)


def test_misreported_attention_of_another_kind_is_reported_without_naming_a_bug(tiny):
    class Uniform:
        pattern = property(lambda _: torch.full((8, 2, 6, 7), 1 / 7), lambda *_: None)

    state = new_state(tiny.with_bug("self-plotted-as-cross"))
    for layer in state.model.decoder_layers:
        layer.cross_attention.hook_pattern.latest = Uniform()
    examination = examine(state)
    assert finding(examination, "reported attention").light == "red"
    assert examination.bugs == []


@pytest.mark.parametrize(("drift", "bugs"), [(1e-4, ["heads-alike"]), (1.0, [])])
def test_identical_heads_are_found_although_rounding_has_moved_them(tiny, drift, bugs):
    state = new_state(tiny.with_bug("heads-alike"))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in state.model.parameters():
            parameter += drift * torch.randn(parameter.shape, generator=generator)
    assert examine(state).bugs == bugs


def test_a_parameter_without_a_gradient_is_named(tiny):
    state = new_state(tiny)
    layer = state.model.decoder_layers[0]
    layer.feed_forward.narrow.register_forward_hook(lambda _, args, output: output.detach())
    gradients = finding(examine(state), "gradients")
    assert gradients.light == "amber"
    assert "decoder_layers.0.feed_forward.widen.weight" in gradients.sentence


def test_an_initial_loss_far_from_guessing_gets_a_warning(tiny):
    state = new_state(tiny)
    nn.init.normal_(state.model.output.weight, std=3.0)
    assert finding(examine(state), "initial loss").light == "amber"


def check_curve(preset: Preset, losses: list[float]) -> Finding:
    state, history = new_state(preset), History()
    for step, loss in enumerate(losses, start=1):
        history.add(StepEvent(step, loss, 0.1, 1.0, 1.0))
    return run_checks.check_loss_curve(Subject(state, history))


@pytest.mark.parametrize(
    ("losses", "light", "words"),
    [
        ([2.5 * 0.97**step for step in range(300)], "green", "from 2.19 to 0.00"),
        ([1.7 + 3 * 0.85**step for step in range(150)], "green", "to 1.70."),  # falls from a high start
        ([2.6, *[15 * 0.8**step for step in range(300)]], "amber", "rose to 15.00"),
        ([2.6] * 20 + [4.5] + [0.02] * 300, "green", "to 0.02."),  # one unusual batch
        ([2.6] * 300, "red", "no better than guessing"),
        ([2.5 * 0.97**step + 2 * (step % 20 == 0) for step in range(300)], "amber", "spikes"),
        ([1.0 + 0.5 * (-1) ** step for step in range(300)], "amber", "still varies"),
        ([2.6] * 20, "gray", "too early to judge"),
    ],
)
def test_a_loss_curve_is_judged_and_described(tiny, losses, light, words):
    result = check_curve(tiny, losses)
    assert result.light == light
    assert words in result.sentence


def test_a_model_that_only_predicts_given_answers_fails(tiny, monkeypatch):
    state = new_state(tiny)
    subject = Subject(state, None)
    figures = iter([(0.99, 0.1), (0.99, 0.95), (0.5, 0.0)])

    def evaluated(model, pairs, task=None, outputs=None):
        accuracy, exact = next(figures)
        return type("Figures", (), {"token_accuracy": accuracy, "exact_match": exact})

    monkeypatch.setattr(run_checks, "evaluate", evaluated)
    assert [run_checks.check_free_running_gap(subject).light for _ in range(3)] == ["red", "green", "green"]


def test_a_large_embedding_does_not_hide_an_excessive_update():
    embedding, others = torch.randn(10_000, 64), [0.1 * torch.randn(64, 64) for _ in range(4)]
    seen = embedding.clone()
    seen[:100] += 0.3  # the rows of a batch
    fraction = update_fraction([embedding, *others], [seen, *(each + 0.3 for each in others)])
    assert fraction == pytest.approx(3, rel=0.05)


def test_an_update_of_a_matrix_that_was_zero_has_no_relative_size():
    zero, one = torch.zeros(4, 4), torch.ones(4, 4)
    assert update_fraction([zero, zero, one], [one, one, 1.5 * one]) == pytest.approx(0.5)
    assert update_fraction([zero, one], [zero, one]) == 0
    assert judge_update(update_fraction([zero, one], [one, one]), "").light == "gray"


def figures(exact: float, bleu: float | None = None) -> Evaluation:
    return Evaluation(sequences=200, loss=2.0, token_accuracy=0.277, exact_match=exact, bleu=bleu)


@pytest.mark.parametrize(("exact", "light"), [(0.005, "amber"), (0.49, "amber"), (0.5, "green"), (1.0, "green")])
def test_a_run_that_answers_wrongly_does_not_do_its_task(tiny, exact, light):
    result = run_checks.check_task(Subject(new_state(tiny), None), figures(exact))
    assert result.light == light
    assert f" {percent(exact)} are right, after 0 of 8 updates" in result.sentence


@pytest.mark.parametrize(
    ("bleu", "copying", "light"), [(4.0, 1.0, "amber"), (15.0, 20.0, "amber"), (25.0, 20.0, "green")]
)
def test_a_translation_is_compared_with_its_sources(tiny, monkeypatch, bleu, copying, light):
    quality = TranslationQuality(bleu=copying, chrf=0.0, bleu_signature="", chrf_signature="", bleu_name="BLEU")
    monkeypatch.setattr(run_checks, "copying_quality", lambda task, pairs: quality)
    result = run_checks.check_task(Subject(new_state(tiny), None), figures(0.0, bleu))
    assert result.light == light
    assert f"BLEU {bleu:.1f}" in result.sentence


def test_a_run_of_few_updates_is_not_all_green(tiny):
    assert finding(examine_preset(tiny, steps=8), "task").light == "amber"


def test_what_was_not_checked_is_gray_and_says_why(families):
    for family, missing in (
        ("transformer", set()),
        ("gru", {"score scaling", "head diversity", "residual connections"}),
    ):
        examination = examine_preset(families[family])
        trained = {"task", "produced tokens", "free-running gap", "loss curve"}
        assert {each.check for each in examination.unchecked} == missing | trained
        for each in examination.findings:
            assert (each.light == "gray") == each.sentence.startswith("Not checked: ")
        assert [each.sentence for each in examination.alarms] == []
        assert f"{len(examination.unchecked)} not made" in str(examination)


def test_pairs_that_depend_on_their_batch_are_found(tiny):
    state = new_state(tiny)
    state.model.output.hook_logits.permanent = lambda logits: logits - logits.mean(dim=0)
    assert finding(examine(state), "rows of a batch").light == "red"


def test_a_run_whose_calls_differ_fails_for_that_alone(tiny):
    state = new_state(tiny)
    state.model.output.hook_logits.permanent = lambda logits: logits + torch.rand(logits.shape)
    examination = examine(state)
    assert [each.check for each in examination.failed] == ["forward pass"]
    assert "torch's random generator" in examination.failed[0].sentence
    assert finding(examination, "causal leak").light == "gray"


def test_a_gradient_that_is_not_finite_is_found(tiny):
    state = new_state(tiny)
    state.model.decoder_layers[0].feed_forward.narrow.weight.register_hook(lambda gradient: gradient / 0)
    gradients = finding(examine(state), "gradients")
    assert gradients.light == "red"
    assert "decoder_layers.0.feed_forward.narrow.weight" in gradients.sentence


def test_a_run_is_examined_by_its_best_weights(trained):
    runs = Runs(trained)
    examination = examine_state("done", training_state_of(runs["done"].trained()), runs["done"].history)
    assert examination.step > 0
    assert {"loss curve", "free-running gap"} <= {each.check for each in examination.findings}
    with pytest.raises(RunError):
        runs["nobody"].trained()


def test_the_command_prints_its_findings(trained, capsys):
    assert main(["--checkpoints", str(trained), "doctor", "--run", "done", "--json"]) == 0
    data = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert data["bugs"] == []
    assert all(each["sentence"] for each in data["findings"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "one of --run"),
        (["--run", "a", "--preset", "tiny"], "one of --run"),
        (["--preset", "tiny", "--steps", "-1"], "--steps=-1"),
    ],
)
def test_the_command_refuses_contradictory_options(options, message, capsys):
    assert main(["doctor", *options]) == 2
    assert message in capsys.readouterr().err
