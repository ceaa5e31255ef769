"""``lab.watch``: a run of a training by one's own loop, whole at every moment, and without effect on the training."""

import json
import math
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks import model_styles as styles
from core import lab
from core.config import ConfigError, parse_preset, preset_to_yaml, read_preset
from core.runs import RunError, Runs
from core.runs.watching.folders import with_interval
from core.runs.watching.pace import SHARE, Pace, round_interval
from core.storage.errors import InputError
from tests.runs.watching.loops import BATCH, NAMES, OPTIONS, made, update
from tests.support.windowed import Windowed

REPOSITORY = Path(__file__).resolve().parents[3]


def trained(root, steps=12, style="nn.Transformer", **options):
    model, optimizer = made(style)
    with lab.watch(
        model, BATCH, name="mine", root=root, optimizer=optimizer, **OPTIONS | {"every": 5} | options
    ) as watch:
        for number in range(steps):
            watch.step(update(model, optimizer, number))
    return model, Runs(root)["mine"]


@pytest.mark.usefixtures("every_norm")
def test_the_run_has_curves_heads_predictions_and_health(tmp_path):
    model, run = trained(tmp_path)
    assert (run.info.status, run.info.step, run.progress.steps, run.title) == ("finished", 12, None, "mine")
    assert run.info.parameters == sum(each.numel() for each in model.parameters())
    points, evaluations = run.history.points(), run.history.evaluations()
    assert points["step"] == list(range(1, 13))
    assert all(0 < each < 10 for each in points["loss"] + points["gradient_norm"])
    assert set(points["learning_rate"]) == {0.003}
    assert evaluations["step"] == [0, 5, 10, 12]
    assert evaluations["exact_match"] == [None] * 4  # nothing is decoded
    snapshots = run.replay.snapshots()
    assert [each.step for each in snapshots] == [0, 5, 10, 12]
    src, tgt_in, tgt_out = BATCH
    with torch.no_grad():
        logits = model.eval()(src, tgt_in)
    is_token = tgt_out != styles.PAD
    accuracy = (logits.argmax(-1) == tgt_out)[is_token].float().mean().item()
    loss = nn.functional.cross_entropy(logits[is_token], tgt_out[is_token]).item()
    assert evaluations["token_accuracy"][-1] == pytest.approx(accuracy, abs=1e-5)
    assert evaluations["validation_loss"][-1] == pytest.approx(loss, abs=1e-4)
    assert [(each.measure, each.value) for each in run.info.figures] == [("token_accuracy", pytest.approx(accuracy))]
    for row, (given, output) in enumerate(zip(snapshots[-1].inputs, snapshots[-1].outputs, strict=True)):
        length = int(is_token[row].sum())
        assert given.source == tuple(NAMES[each] for each in src[row].tolist() if each)
        assert given.answer == tuple(NAMES[each] for each in tgt_out[row, :length].tolist())
        assert output.read == tuple(NAMES[each] for each in tgt_in[row, :length].tolist())
        assert output.tokens == tuple(NAMES[each] for each in logits[row, :length].argmax(-1).tolist())
        heads = lab.attention(model, src, tgt_in[:, :length], pair=row, pad=styles.PAD)
        for block, maps in output.maps.items():
            weights = torch.tensor(maps.array()) / 255
            for head in range(styles.HEADS):
                expected = torch.tensor(heads[f"{block}.1.{head + 1}"].to_numpy())
                assert torch.allclose(weights[0, head], expected, atol=0.003), (block, head)
    health = snapshots[-1].health
    assert {"source", "target", "transformer", "output"} == set(health.gradient_norm)
    assert all(0 < share < 1 for heads in health.heads.entropy_share.values() for share in heads[0])
    assert health.heads.change.keys() == {"encoder", "decoder", "cross"}
    assert not health.heads.output_share


def test_where_measuring_it_takes_long_the_gradient_norm_has_gaps_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr("core.runs.watching.watch.NORM_SHARE", 1e-9)
    monkeypatch.setattr("core.runs.watching.pace.MEASURED_SECONDS", 0.0)
    _, run = trained(tmp_path)
    points = run.history.points()
    assert [each is None for each in points["gradient_norm"]] == [False] * 6 + [True] * 6
    assert points["step"] == list(range(1, 13))
    assert None not in points["loss"] + points["learning_rate"]


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_the_learning_rate_is_the_one_that_the_update_used_wherever_the_schedule_steps(tmp_path, is_wrapped: bool):
    model, optimizer = made()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    given = SimpleNamespace(optimizer=optimizer) if is_wrapped else optimizer  # as accelerate does
    if is_wrapped:
        given.param_groups = optimizer.param_groups
    with lab.watch(model, BATCH, name="mine", root=tmp_path, optimizer=given, **OPTIONS) as watch:
        for number in range(3):
            loss = update(model, optimizer, number)
            schedule.step()
            watch.step(loss)
    rates = Runs(tmp_path)["mine"].history.points()["learning_rate"]
    assert rates == pytest.approx([0.003, 0.0015, 0.001])
    assert not optimizer._optimizer_step_pre_hooks  # closing takes it away


def test_watching_changes_nothing_of_the_training(tmp_path):
    plain, optimizer = made()
    expected = [update(plain, optimizer, number).item() for number in range(12)]
    model, run = trained(tmp_path)
    assert run.history.points()["loss"] == pytest.approx(expected, rel=1e-5)
    for one, other in zip(plain.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_what_needs_a_model_of_the_lab_is_refused_in_a_sentence(tmp_path):
    _, run = trained(tmp_path, 1)
    for refused in (run.trained, run.task, lambda: run.training().__enter__()):
        with pytest.raises(ValueError, match=r"trained by your own program, which lab\.watch records"):
            refused()
    with pytest.raises(ConfigError, match="must both be 'watched' or neither"):
        parse_preset(run.preset.model_dump() | {"model": {"family": "gru"}})
    text = preset_to_yaml(run.preset)
    assert read_preset(text, name="x") == run.preset
    assert "batch_size" not in text  # that of the user's own loop is not known
    assert text.endswith("training:\n  evaluate_every: 5  # steps between evaluations\n")
    assert with_interval(read_preset(text, name="x"), 20) == run.preset.with_changes({"training.evaluate_every": 20})
    assert "batch_size" not in preset_to_yaml(with_interval(read_preset(text, name="x"), 20))


def test_a_run_of_that_name_is_continued_or_refused(tmp_path):
    _, run = trained(tmp_path)
    before = run.history.points()["loss"]
    model, _ = made()
    with pytest.raises(RunError, match=r"run='mine' exists already, with 12 steps; pass resume=True to go on with it"):
        lab.watch(model, BATCH, name="mine", root=tmp_path, **OPTIONS)
    with pytest.raises(RunError, match="there is no such run"):
        lab.watch(model, BATCH, name="other", root=tmp_path, resume=True, **OPTIONS)
    with lab.watch(model, BATCH, name="mine", root=tmp_path, resume=True, step=7, **OPTIONS) as watch:
        assert watch.last_step == 7
        watch.step(0.25)
        for again in (False, True):
            with pytest.raises(
                RunError, match=r"still watched by this program, at step 8; call close\(\) of that watch"
            ):
                lab.watch(model, BATCH, name="mine", root=tmp_path, resume=again, **OPTIONS)
    run = Runs(tmp_path)["mine"]
    assert run.history.points()["step"] == list(range(1, 9))
    assert run.history.points()["loss"] == [*before[:7], 0.25]
    assert [each.step for each in run.replay.snapshots()] == [0, 5, 8]
    assert run.info.step == 8
    assert len(run.info.provenance) == 2
    shorter = tuple(each[:2] for each in BATCH)
    with pytest.warns(UserWarning, match="the watched pairs have changed"):
        lab.watch(model, shorter, name="mine", root=tmp_path, resume=True, **OPTIONS).close()
    assert [each.step for each in Runs(tmp_path)["mine"].replay.snapshots()] == [8]


def test_an_exception_marks_the_run_failed_and_ctrl_c_stopped(tmp_path):
    model, _ = made()
    for name, error, status, message in (
        ("a", ZeroDivisionError("by 0"), "failed", "ZeroDivisionError: by 0"),
        ("b", AssertionError(), "failed", "AssertionError"),
        ("c", KeyboardInterrupt(), "stopped", "interrupted by Ctrl+C"),
    ):
        watch = lab.watch(model, BATCH, name=name, root=tmp_path, **OPTIONS)
        watch.step(1.0)
        with pytest.raises(type(error)), watch:
            raise error
        info = Runs(tmp_path)[name].info
        assert (info.status, info.step, info.message) == (status, 1, message)


@pytest.mark.slow
@pytest.mark.parametrize("program", ["watch.step(2.0)", "watch.step(2.0); 1 / 0"])
def test_a_program_that_ends_without_close_has_everything_written(tmp_path, program):
    code = (
        "from core import lab; from tests.runs.watching.loops import *; "
        f"watch = lab.watch(made()[0], BATCH, name='mine', root={str(tmp_path)!r}, **OPTIONS); {program}"
    )
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, check=False)
    run = Runs(tmp_path)["mine"]
    assert run.history.points()["loss"] == [2.0]
    expected = ("failed", "ZeroDivisionError: division by zero") if "1 / 0" in program else ("finished", "")
    assert (run.info.status, run.info.message) == expected


class Language(nn.Module):
    """A language model that returns probabilities, with two layers of a different number of heads if ``uneven``."""

    def __init__(self, *, uneven=False):
        super().__init__()
        self.table, self.heads = nn.Embedding(20, 16), (2, 4) if uneven else (2, 2)

    def forward(self, ids):
        x = self.table(ids)
        for heads in self.heads:
            q = x.unflatten(-1, (heads, -1)).transpose(1, 2)
            x = x + nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).flatten(2)
        return (x @ self.table.weight.T).softmax(-1)


def test_a_language_model_shows_the_beginnings_that_fit(tmp_path):
    ids = torch.arange(600).reshape(2, 300) % 17 + 3
    model = Language()
    watch = lab.watch(model, (ids[:, :-1], ids[:, 1:]), name="lm", root=tmp_path, src_vocab=NAMES)
    watch.step(math.nan)
    watch.close()
    run = Runs(tmp_path)["lm"]
    snapshot = run.replay.snapshots()[-1]
    assert [len(each.tokens) for each in snapshot.outputs] == [55, 55]  # 4 maps of 55² in a quarter of 50,000
    assert snapshot.outputs[0].maps.keys() == {"decoder"}
    assert snapshot.inputs[0].source == ()
    likely = model(ids[:, :-1]).gather(-1, ids[:, 1:, None]).clamp(min=1e-30)  # it returns probabilities
    assert run.history.evaluations()["validation_loss"][0] == pytest.approx(-likely.log().mean().item(), rel=1e-4)
    assert run.history.points()["step"] == []
    assert run.info.message == "the loss is nan at step 1"
    with pytest.raises(InputError, match=r"shape \(2, 1, 20\) for ids of .*Pass a function that returns those of all"):
        lab.watch(lambda given: model(given)[:, -1:], (ids[:, :-1], ids[:, 1:]), root=tmp_path, model=model)


@pytest.mark.parametrize("ignored", [False, True], ids=["", "the last target of a row does not count"])
def test_a_language_model_is_diagnosed_on_its_sequences(tmp_path, ignored):
    ids = torch.arange(40).reshape(4, 10) % 17 + 3
    targets = ids[:, 1:].clone()
    targets[0, -1] = -100 if ignored else targets[0, -1]
    read = []

    def loss(forward, given):
        read.append(given)
        return nn.functional.nll_loss(forward(given[:, :-1]).log().flatten(0, 1), given[:, 1:].flatten())

    with lab.watch(Language(), (ids[:, :-1], targets), name="lm", root=tmp_path) as watch:
        lights = {each.check: each.light for each in watch.diagnose(loss=loss).findings}
        assert torch.equal(read[0], ids[:, :-1] if ignored else ids)
        assert lights["causal leak"] == lights["target shift"] == "green"
        watch.diagnose(eos=19)
    assert Runs(tmp_path)["lm"].info.status == "finished"


@pytest.mark.parametrize(
    ("model", "batch", "note"),
    [
        (styles.Recurrent(attends=False), BATCH, "no heads: no softmax whose weights have the shape"),
        (Windowed(), BATCH, "no heads of encoder: other calls have other shapes, softmax"),
        (
            Language(uneven=True),
            (BATCH[1], BATCH[2]),
            r"no heads of the decoder: its layers have weights of shape \(2, ",
        ),
    ],
)
def test_a_model_without_heads_to_draw_has_the_rest_and_says_why(tmp_path, model, batch, note):
    with pytest.warns(UserWarning, match=note) as warned:
        watch = lab.watch(model, batch, name="mine", root=tmp_path, pad=0)
    assert warned[0].filename == __file__
    with watch:
        watch.step(1.0)
    run = Runs(tmp_path)["mine"]
    assert re.match(note, run.info.message)
    assert run.history.evaluations()["step"] == [0, 1]
    assert [len(each.outputs) for each in run.replay.snapshots()] == [4, 4]


def test_an_evaluation_that_fails_later_does_not_end_the_training(tmp_path):
    model, _ = made()
    watch = lab.watch(lambda *ids: model(*ids), BATCH, name="mine", root=tmp_path, every=1, model=model, **OPTIONS)
    model.output = nn.Linear(3, 3)
    with pytest.warns(UserWarning, match="could not be evaluated at step 1 .RuntimeError"):
        watch.step(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        watch.step(1.0)
        watch.close()
    assert Runs(tmp_path)["mine"].history.points()["step"] == [1, 2]


def test_a_full_disk_does_not_end_the_training(tmp_path, monkeypatch):
    model, _ = made()
    watch = lab.watch(model, BATCH, name="mine", root=tmp_path, every=1, **OPTIONS)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("core.storage.atomic.os.replace", full)
        patched.setattr("core.runs.watching.watch.SECONDS_BETWEEN_FLUSHES", 0.0)
        with pytest.warns(UserWarning, match="could not be written"):
            watch.step(1.0)
    watch.step(2.0)
    watch.close()
    assert Runs(tmp_path)["mine"].history.points()["loss"] == [1.0, 2.0]


def test_findings_are_kept_with_the_run(tmp_path):
    model, optimizer = made()
    with lab.watch(model, BATCH, name="mine", root=tmp_path, **OPTIONS) as watch:
        found = watch.diagnose(bos=1, eos=2, loss=styles.loss_of, optimizer=optimizer)
    assert found.ok
    assert Runs(tmp_path)["mine"].examination.findings == found.findings
    file = tmp_path / "mine/doctor.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"findings": [{"light": "blue"}]}))
    with pytest.raises(RunError, match=r"doctor\.json is damaged"):
        _ = Runs(tmp_path)["mine"].examination


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((BATCH[0],), "batch is 1 tensors; it must be"),
        (
            (BATCH[0], BATCH[1], BATCH[2][:, 1:]),
            r"tgt_in is \(6, 9\) and tgt_out is \(6, 8\); they must have one shape",
        ),
        ((BATCH[0][:2], *BATCH[1:]), "src has 2, tgt_in has 6, tgt_out has 6 rows"),
        ((BATCH[0], BATCH[1], BATCH[2] * 0), "the targets of batch are PAD only"),
        ((BATCH[0], BATCH[1].float(), BATCH[2]), "tgt_in is a tensor .* float32"),
        (
            BATCH[1:],
            "batch is 2 tensors, .* does not fit its arguments .*; it must be .src, tgt_in, tgt_out",
        ),
    ],
)
def test_a_wrong_batch_is_refused_before_there_is_a_folder(tmp_path, batch, message):
    with pytest.raises(InputError, match=message):
        lab.watch(made()[0], batch, name="mine", root=tmp_path, **OPTIONS)
    for field, value in (("every", 1.5), ("steps", "5"), ("step", [1]), ("pad", "0")):
        with pytest.raises(InputError, match=rf"{field}={re.escape(repr(value))} must be a whole number"):
            lab.watch(made()[0], BATCH, name="mine", root=tmp_path, **OPTIONS | {field: value})
    with pytest.raises(InputError, match="must return logits"):
        lab.watch(lambda src, tgt_in: src, BATCH, name="mine", root=tmp_path, **OPTIONS)
    assert list(tmp_path.iterdir()) == []


def test_steps_must_not_go_back_and_a_loss_is_one_number(tmp_path):
    watch = lab.watch(made()[0], BATCH, name="mine", root=tmp_path, **OPTIONS)
    watch.step(step=8)
    watch.step(0.5, step=8, learning_rate=0.1, gradient_norm=2.0)
    with pytest.raises(InputError, match="step=7 must not be below 8"):
        watch.step(0.5, step=7)
    with pytest.raises(InputError, match=r"loss is a tensor \(2,\) float32; it must be one number"):
        watch.step(torch.ones(2))
    watch.close()
    points = Runs(tmp_path)["mine"].history.points()
    assert points == {"step": [8], "loss": [0.5], "learning_rate": [0.1], "gradient_norm": [2.0]}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("loss", torch.ones(2), r"loss is a tensor \(2,\) float32; it must be one number"),
        ("step", 2.5, r"step=2\.5 must be a whole number"),
        ("step", torch.ones(2), r"step=tensor\(\[1., 1.\]\) must be a whole number"),
        ("step", 10**12, "step=1000000000000 must be from 0 to 1,000,000,000"),
        ("learning_rate", [0.1], r"learning_rate=\[0\.1\] must be one number"),
        ("gradient_norm", torch.ones(2), r"gradient_norm is a tensor \(2,\) float32; it must be one number"),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_passed_and_the_run_goes_on(tmp_path, field, value, message):
    watch = lab.watch(made()[0], BATCH, name="mine", root=tmp_path, **OPTIONS)
    with pytest.raises(InputError, match=message):
        watch.step(**{"loss": 1.0} | {field: value})
    with pytest.raises(InputError, match="status='done' is not one of finished, stopped, failed"):
        watch.close("done")
    watch.step(0.5)
    watch.step(torch.tensor(0.25), step=np.int64(2), learning_rate=torch.tensor([0.5]), gradient_norm=np.float32(2))
    watch.step(0.125, step=torch.tensor(3), learning_rate=math.inf, gradient_norm=math.inf)
    watch.close()
    run = Runs(tmp_path)["mine"]
    assert (run.info.status, run.info.step) == ("finished", 3)
    assert run.history.points() == {
        "step": [1, 2, 3],
        "loss": [0.5, 0.25, 0.125],
        "learning_rate": [None, 0.5, None],
        "gradient_norm": [None, 2.0, None],
    }


@pytest.mark.filterwarnings("error")
def test_a_warning_that_is_made_an_exception_comes_after_everything_is_written(tmp_path):
    watch = lab.watch(made()[0], BATCH, name="mine", root=tmp_path, **OPTIONS)
    watch.step(math.nan)
    with pytest.raises(UserWarning, match="the loss is nan at step 1"):
        watch.close()
    info = Runs(tmp_path)["mine"].info
    assert (info.status, info.message) == ("finished", "the loss is nan at step 1")
    with pytest.raises(UserWarning, match="no heads"):
        lab.watch(styles.Recurrent(attends=False), BATCH, name="other", root=tmp_path, pad=0)
    assert list(Runs(tmp_path)) == ["mine"]


def test_a_training_of_more_than_a_million_updates_is_continued(tmp_path):
    model, _ = made()
    with lab.watch(model, BATCH, name="mine", root=tmp_path, step=1_500_000, **OPTIONS) as watch:
        watch.step(1.0)
    with lab.watch(model, BATCH, name="mine", root=tmp_path, resume=True, **OPTIONS) as watch:
        assert watch.last_step == 1_500_001
    assert [each.step for each in Runs(tmp_path)["mine"].info.provenance] == [1_500_000, 1_500_001]


def test_the_interval_costs_the_share_that_it_may(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    pace = Pace(None, is_fixed=False)
    pace.cost, evaluated = 0.1, 0
    for step in range(1, 5_001):
        now[0] += 0.1 if step > 1 else 5.0  # the first update allocates memory
        pace.begin()
        if pace.is_due(step):
            now[0] += 0.1
            pace.evaluated(0.1)
            evaluated += 1
        pace.end()
    assert pace.every == 100
    assert evaluated == 50
    assert evaluated * pace.cost <= SHARE * now[0]
    assert [round_interval(each) for each in (0.2, 1, 1.1, 2.1, 30, 99, 1e9)] == [1, 1, 2, 5, 50, 100, 100_000]


@pytest.mark.slow
def test_a_killed_program_leaves_a_run_that_can_be_opened_and_continued(tmp_path):
    command = [sys.executable, "-m", "tests.runs.watching.loops", "--root", str(tmp_path)]
    program = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout.readline() == "watching mine from step 0\n"
        run = Runs(tmp_path)["mine"]
        deadline = time.monotonic() + 60
        while len(run.replay.snapshots()) < 3 and time.monotonic() < deadline:  # read while it is written
            assert run.info.status == "training"
            time.sleep(0.05)
    finally:
        program.kill()
        program.wait()
    run = Runs(tmp_path)["mine"]
    assert run.info.status == "interrupted"
    assert run.info.message.startswith("its process ended before training did")
    steps = run.history.points()["step"]
    assert steps == list(range(1, len(steps) + 1))
    assert not run.history.damage
    again = subprocess.run(
        [*command, "--resume", "--steps", str(steps[-1] + 5)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    first = int(again.stdout.split()[-1])
    assert first <= steps[-1]
    run = Runs(tmp_path)["mine"]
    assert (run.info.status, run.info.step) == ("finished", steps[-1] + 5)
    assert run.history.points()["step"] == list(range(1, steps[-1] + 6))


@pytest.mark.slow
def test_watching_costs_at_most_three_percent_of_the_processor_time(tmp_path, monkeypatch, capsys):
    paused, real = [0.0], time.perf_counter  # the watch does not see the time of the loops without it
    monkeypatch.setattr("core.runs.watching.pace.time", SimpleNamespace(perf_counter=lambda: real() - paused[0]))
    torch.set_num_threads(1)
    (plain, for_plain), (watched, for_watched) = made(), made()
    seconds = {"plain": 0.0, "watched": 0.0}
    with lab.watch(watched, BATCH, name="mine", root=tmp_path, optimizer=for_watched, **OPTIONS) as watch:
        for number in range(4_000):
            kind = ("plain", "watched")[number // 20 % 2]
            model, optimizer = (watched, for_watched) if kind == "watched" else (plain, for_plain)
            began, started = real(), time.process_time()
            loss = update(model, optimizer, number)
            if kind == "watched":
                watch.step(loss)
            seconds[kind] += time.process_time() - started
            paused[0] += real() - began if kind == "plain" else 0.0
    share = seconds["watched"] / seconds["plain"] - 1
    with capsys.disabled():
        evaluations = len(Runs(tmp_path)["mine"].history.evaluations()["step"])
        print(f"\nwatch: {share:+.1%} of {seconds['plain']:.1f} s in 2,000 updates, {evaluations} evaluations")
    assert share <= 0.03
