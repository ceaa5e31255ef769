"""The choice of a device, moving a run to another one, and tensors that stay on it.

There is no GPU here: ``tests.support.fake_device`` imitates one.
"""

import logging
from dataclasses import astuple
from itertools import islice

import pytest
import torch
from pandas.testing import assert_frame_equal
from torch.testing import assert_close

from core.__main__ import main
from core.config import load_preset, preset_names
from core.generation import GREEDY, Beam, Sample
from core.interpret.health import HealthTaker
from core.interpret.inspection import inspect
from core.interpret.snapshots import SnapshotTaker
from core.reports.report.measurements import measure
from core.runs import RunFolder
from core.runs.estimate import estimate_training_time
from core.runs.load import build_run
from core.runs.training_state import clone_weights, load_state, resume_state
from core.server import Runs
from core.server.access import VisitorRuns
from core.server.inference_priority import InferencePriority
from core.server.live import LiveRun
from core.storage.errors import InputError
from core.storage.tensor_file import read_tensors
from core.tasks import FreshBatches, FreshByLength, build_task, fixed_pairs
from core.tasks.pairs import PairTask
from core.teaching.bugs import new_state
from core.training.checkpoint import save_state
from core.training.devices import best_device, device_named
from core.training.loop import EndEvent, EvaluationEvent, train
from tests.support.command_output import last_json
from tests.support.fake_device import FakeCudaTensor, fake_gpu
from tests.support.run_helpers import wait_for_status

OPTIONS = {
    "dropout": {"model.dropout": 0.1},
    "epochs by length": {"training.training_sequences": 20, "training.group_by_length": True},
    "fresh by length": {"training.group_by_length": True, "training.gradient_accumulation_steps": 2},
    "half forced": {"training.teacher_forcing_ratio": 0.5, "training.label_smoothing": 0.1},
    "adam by hand": {"training.optimizer": "adam-by-hand"},
    "muon": {"training.optimizer": "muon", "training.muon_learning_rate": 0.02},
    "weight decay": {"training.optimizer": "adamw", "training.weight_decay": 0.1},
}
IN_DEFAULT_SUITE = (
    ("transformer", "dropout"),
    ("gru", "half forced"),
    ("decoder-only", "epochs by length"),
    ("encoder-only", "dropout"),
)
FAMILIES = ["transformer", "transformer, alibi", "transformer, tied", "decoder-only", "encoder-only", "gru"]


@pytest.fixture
def preset_of(tiny, tiny_gru):
    others = {"model.norm": "pre", "model.activation": "gelu"}
    tiny, tiny_gru = (each.with_changes({"model.max_seq_len": 8}) for each in (tiny, tiny_gru))
    return {
        "transformer": tiny,
        "transformer, alibi": tiny.with_changes(others | {"model.positions": "alibi"}),
        "transformer, tied": tiny.with_changes(others | {"model.positions": "learned", "model.tie_embeddings": "all"}),
        "decoder-only": tiny.with_changes({"model.family": "decoder-only"}),
        "encoder-only": tiny.with_changes({"model.family": "encoder-only"}),
        "gru": tiny_gru.with_changes({"model.dropout": 0.0}),
    }.__getitem__


def set_available(monkeypatch, *kinds: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in kinds)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in kinds)


@pytest.mark.parametrize(
    ("kinds", "best"), [(("cuda", "mps"), "cuda"), (("cuda",), "cuda"), (("mps",), "mps"), ((), "cpu")]
)
def test_the_best_device_is_cuda_then_mps_then_the_cpu(monkeypatch, kinds, best):
    set_available(monkeypatch, *kinds)
    assert best_device() == device_named("auto") == best
    for kind in (*kinds, "cpu"):
        assert device_named(kind) == kind


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_an_absent_device_is_refused_by_name(monkeypatch, kind):
    set_available(monkeypatch)
    with pytest.raises(InputError, match=f"device='{kind}': PyTorch finds no such device"):
        device_named(kind)


def test_the_command_line_refuses_an_absent_device_before_it_creates_a_run(monkeypatch, root, capsys):
    set_available(monkeypatch)
    command = ["--checkpoints", str(root), "train", "--preset", "tiny", "--run", "a", "--set", "training.steps=2"]
    command += ["--set", "training.warmup_steps=1", "--set", "training.validation_sequences=8"]
    assert main([*command, "--device", "cuda"]) == 2
    assert capsys.readouterr().err.startswith("error: device='cuda': PyTorch finds no such device")
    assert not root.exists()
    assert main([*command, "--device", "cpu"]) == 0
    assert "device" not in (root / "a/preset.yaml").read_text()
    assert main([*command, "--run", "b", "--json"]) == 0  # auto
    said = last_json(capsys.readouterr().out)
    assert said["status"] == "finished"


# --- another device ---------------------------------------------------------------------------------------------


def test_the_fake_device_refuses_what_a_real_one_would(monkeypatch):
    with fake_gpu(monkeypatch):
        there = torch.zeros(3, device="cuda:0")
        assert isinstance(there, FakeCudaTensor)
        assert (there + 1).sum().item() == 3
        assert type((there + 1).cpu()) is torch.Tensor
        with pytest.raises(RuntimeError, match="found one on the CPU"):
            there + torch.ones(3)
        with pytest.raises(TypeError, match="can't convert"):
            there.numpy()


@pytest.mark.parametrize(
    ("family", "option"),
    [
        pytest.param(family, option, marks=() if (family, option) in IN_DEFAULT_SUITE else pytest.mark.slow)
        for family in ("transformer", "gru", "decoder-only", "encoder-only")
        for option in OPTIONS
    ],
)
def test_a_run_stays_on_its_device(preset_of, family, option, monkeypatch, tmp_path):
    preset = preset_of(family).with_changes(OPTIONS[option] | {"training.steps": 4})
    with fake_gpu(monkeypatch):
        state = new_state(preset, device="cuda")
        list(islice(train(state), 3))
        save_state(tmp_path / "last.safetensors", state)
        state = load_state(tmp_path / "last.safetensors", preset, device="cuda")
        assert list(train(state))[-1] == EndEvent(4, "finished")
        moments = [each for values in state.optimizer.state.values() for each in values.values() if each.ndim]
        assert all(isinstance(each, FakeCudaTensor) for each in (*state.model.parameters(), *moments))


def test_every_kind_of_task_draws_its_data_on_the_device(monkeypatch):
    tasks = {preset.task.family: preset.task for preset in map(load_preset, preset_names())}
    for like_modular in ("cogs", "pcfg", "pronunciations", "translation"):  # large tables, which PairTask draws from
        assert isinstance(build_task(tasks.pop(like_modular)), PairTask)
    assert len(tasks) > 10
    with fake_gpu(monkeypatch):
        for config in tasks.values():
            task = build_task(config)
            for batches in (FreshBatches(task, 4), FreshByLength(task, 4, seed=0, device="cuda:0")):
                batch = batches.at(1, torch.Generator("cuda").manual_seed(0))
                assert isinstance(batch.src, FakeCudaTensor), config.family
                assert isinstance(batch.tgt, FakeCudaTensor), config.family


@pytest.mark.parametrize("family", FAMILIES)
def test_every_strategy_decodes_the_same_on_another_device(preset_of, family, monkeypatch):
    strategies = (GREEDY, Beam(beam_size=3, n_best=2), Sample(seed=1, top_k=5, top_p=0.9))

    def decode(device: str) -> list:
        state = new_state(preset_of(family), device=device)
        state.model.eval()
        return [inspect(state.model, state.task, "4 8 2", strategy=each, prefix="2").output for each in strategies]

    expected = decode("cpu")
    with fake_gpu(monkeypatch):
        assert decode("cuda") == expected


@pytest.mark.parametrize("family", ["transformer, alibi", "gru"])
def test_scores_and_reports_are_the_same_from_another_device(preset_of, family, monkeypatch):
    def measured_on(device: str) -> tuple:
        state = new_state(preset_of(family), device=device)
        state.model.eval()
        masses = [score.attention_mass for score in inspect(state.model, state.task, "4 8 2").scores]
        return masses, measure(
            state.model, state.task, fixed_pairs(state.task, 6, split="test", device=str(state.generator.device))
        )

    masses, report = measured_on("cpu")
    with fake_gpu(monkeypatch):
        masses_there, report_there = measured_on("cuda")
    assert masses_there == pytest.approx(masses, abs=1e-6)
    assert astuple(report_there.evaluation)[:-1] == pytest.approx(astuple(report.evaluation)[:-1])  # no metrics
    assert_frame_equal(report_there.sequences, report.sequences, rtol=1e-4)
    assert_frame_equal(report_there.steps, report.steps, rtol=1e-4)


@pytest.mark.parametrize("family", ["transformer, alibi", "decoder-only", "encoder-only", "gru"])
def test_health_is_the_same_from_another_device_and_across_a_save(preset_of, family, monkeypatch, tmp_path):
    def measured_on(device: str) -> list:
        state = new_state(preset_of(family), device=device)
        taker = HealthTaker(state.task, state.model, SnapshotTaker(state.task, state.model).pairs)
        first, state.snapshot_rows = taker.measure(state.model, {})
        save_state(tmp_path / "last.safetensors", state)
        state = load_state(tmp_path / "last.safetensors", preset_of(family), device=device)
        second, _ = taker.measure(state.model, state.snapshot_rows)
        return [first, second]

    here = measured_on("cpu")
    with fake_gpu(monkeypatch):
        there = measured_on("cuda")
    for one, other in zip(here, there, strict=True):
        assert other.entropy.keys() == one.entropy.keys()
        for block in one.entropy:
            assert other.entropy[block][0] == pytest.approx(one.entropy[block][0], abs=1e-5)
            assert other.distance[block][0] == pytest.approx(one.distance[block][0], abs=1e-4)
        assert other.layer_rms == pytest.approx(one.layer_rms, rel=1e-4)
        assert {value for of in other.change.values() for layer in of for value in layer} <= {0.0}
    assert there[1].change.keys() == there[1].entropy.keys()


def test_a_seed_gives_the_same_initial_weights_and_data_on_every_device(tiny, monkeypatch):
    preset = tiny.with_changes({"training.training_sequences": 20, "training.seed": 3})
    here = new_state(preset)
    first = next(train(here))
    with fake_gpu(monkeypatch):
        there = new_state(preset, device="cuda")
        weights = {name: tensor.cpu() for name, tensor in clone_weights(there.model).items()}
        first_there = next(train(there))
    assert astuple(first_there.evaluation)[:-1] == pytest.approx(
        astuple(first.evaluation)[:-1]
    )  # kernels round differently
    assert_close(weights, dict(here.model.state_dict()), atol=0, rtol=0)
    assert isinstance(first, EvaluationEvent)


def test_a_run_resumed_on_another_device_seeds_its_generator_anew(tiny, monkeypatch, tmp_path, caplog):
    preset, path = tiny.with_changes({"model.dropout": 0.2}), tmp_path / "last.safetensors"
    with fake_gpu(monkeypatch):
        state = new_state(preset, device="cuda")
        list(islice(train(state), 4))
        save_state(path, state)
        moments = {name: state.optimizer.state[each]["exp_avg"].cpu() for name, each in state.model.named_parameters()}
    with caplog.at_level(logging.WARNING):
        loaded, again = load_state(path, preset), load_state(path, preset)
    assert "saved on cuda, continued on cpu: the random generator was reseeded from seed 0 and step 3" in caplog.text
    assert torch.equal(loaded.generator.get_state(), again.generator.get_state())
    assert loaded.step == 3
    for name, parameter in loaded.model.named_parameters():
        assert torch.equal(loaded.optimizer.state[parameter]["exp_avg"], moments[name])
    assert list(train(loaded))[-1] == EndEvent(8, "finished")


def test_a_run_of_the_page_trains_on_the_gpu_and_is_decoded_on_the_cpu_meanwhile(tiny, root, monkeypatch):
    preset = tiny.with_changes({"training.steps": 4, "training.evaluate_every": 2})
    folder = RunFolder.create(root, preset, name="on-gpu")
    live = LiveRun(folder, preset, folder.lock())
    with fake_gpu(monkeypatch):
        live.train(1, "cuda", InferencePriority())
    assert live.info.status == "finished"
    assert read_tensors(folder.last)[1]["device"] == "cuda"
    assert [(each.device, each.gpu) for each in live.info.provenance] == [("cuda", "Imitated GPU")]
    assert live.replay.snapshots()
    step, weights = live.latest_weights()
    assert not any(isinstance(each, FakeCudaTensor) for each in weights.values())
    loaded = build_run(folder, preset, weights, kind="latest", step=step)
    assert inspect(loaded.model, loaded.task, "4 2").steps


def test_the_training_time_is_measured_on_the_device(tiny, monkeypatch):
    waits = []
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: waits.append(None))
    with fake_gpu(monkeypatch):
        measured = estimate_training_time(tiny, device="cuda")
    assert 0 < measured.low < measured.high
    assert len(waits) > 10  # the clock is read when the device has done its work


def test_the_page_trains_on_the_device_it_is_given(root, tiny, monkeypatch):
    devices = []

    def resume(folder, preset, *, device):
        devices.append(device)
        return resume_state(folder)

    monkeypatch.setattr("core.runs.training.resume_state", resume)
    runs = Runs(root, device="cuda")
    assert VisitorRuns(runs).device == "cuda"
    name = runs.start(tiny.with_changes({"training.steps": 2}))
    wait_for_status(runs, name, "finished")
    runs.close()
    assert devices == ["cuda"]
