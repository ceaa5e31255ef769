"""Which device is taken, that a run goes on on another one, and that nothing is left on the CPU by accident.

There is no GPU here: ``tests.support.fake_device`` imitates one.
"""

import json
import logging
from dataclasses import astuple
from itertools import islice

import pytest
import torch
from pandas.testing import assert_frame_equal
from torch.testing import assert_close

from core.__main__ import main
from core.config import load_preset, preset_names
from core.generation import Beam, Sample
from core.interpret.inspection import inspect
from core.reports.report.measurements import measure
from core.runs.training_state import clone_weights, load_state
from core.storage.errors import InputError
from core.tasks import FreshBatches, FreshByLength, build_task, fixed_pairs
from core.teaching.bugs import new_state
from core.training.checkpoint import save_state
from core.training.devices import best_device, device_named
from core.training.loop import EndEvent, EvaluationEvent, train
from tests.support.fake_device import FakeCudaTensor, fake_gpu

OPTIONS = {
    "plain": {},
    "dropout": {"model.dropout": 0.1},
    "epochs by length": {"training.training_sequences": 20, "training.group_by_length": True},
    "fresh by length": {"training.group_by_length": True, "training.gradient_accumulation_steps": 2},
    "own choices": {"training.teacher_forcing_ratio": 0.5, "training.label_smoothing": 0.1},
    "by hand": {"training.optimizer": "adam-by-hand"},
    "muon": {"training.optimizer": "muon", "training.muon_learning_rate": 0.02},
    "decay": {"training.optimizer": "adamw", "training.weight_decay": 0.1},
}
FAMILIES = ["transformer", "transformer, alibi", "transformer, tied", "decoder-only", "gru"]


@pytest.fixture
def preset_of(tiny, tiny_gru):
    others = {"model.norm": "pre", "model.activation": "gelu"}
    return {
        "transformer": tiny,
        "transformer, alibi": tiny.with_changes(others | {"model.positions": "alibi"}),
        "transformer, tied": tiny.with_changes(others | {"model.positions": "learned", "model.tie_embeddings": "all"}),
        "decoder-only": tiny.with_changes({"model.family": "decoder-only", "model.max_seq_len": 32}),
        "gru": tiny_gru.with_changes({"model.dropout": 0.0}),
    }.__getitem__


def has(monkeypatch, *kinds: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in kinds)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in kinds)


@pytest.mark.parametrize(
    ("kinds", "best"), [(("cuda", "mps"), "cuda"), (("cuda",), "cuda"), (("mps",), "mps"), ((), "cpu")]
)
def test_the_best_device_is_cuda_then_mps_then_the_cpu(monkeypatch, kinds, best):
    has(monkeypatch, *kinds)
    assert best_device() == device_named("auto") == best
    for kind in (*kinds, "cpu"):
        assert device_named(kind) == kind


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused_by_name(monkeypatch, kind):
    has(monkeypatch)
    with pytest.raises(InputError, match=f"--device={kind}: PyTorch finds no such device"):
        device_named(kind)


def test_the_command_line_takes_a_device_and_refuses_before_it_makes_a_run(monkeypatch, root, capsys):
    has(monkeypatch)
    command = ["--checkpoints", str(root), "train", "--preset", "tiny", "--run", "a", "--set", "training.steps=40"]
    command += ["--set", "training.validation_sequences=8"]
    assert main([*command, "--device", "cuda"]) == 2
    assert capsys.readouterr().err.startswith("error: --device=cuda: PyTorch finds no such device")
    assert not root.exists()
    assert main([*command, "--device", "cpu"]) == 0
    assert "device" not in (root / "a/preset.yaml").read_text()
    assert main([*command[:-4], "--run", "b", *command[-4:], "--json"]) == 0  # auto
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["status"] == "finished"


# --- another device ---------------------------------------------------------------------------------------------


def test_the_pretended_device_refuses_what_a_real_one_would(monkeypatch):
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
    "options",
    [pytest.param(each, id=name, marks=() if name == "plain" else pytest.mark.slow) for name, each in OPTIONS.items()],
)
@pytest.mark.parametrize("family", ["transformer", "gru", "decoder-only"])
def test_a_run_stays_on_its_device(preset_of, family, options, monkeypatch, tmp_path):
    preset = preset_of(family).with_changes(options)
    with fake_gpu(monkeypatch):
        state = new_state(preset, device="cuda")
        list(islice(train(state), 4))
        save_state(tmp_path / "last.safetensors", state)
        state = load_state(tmp_path / "last.safetensors", preset, device="cuda")
        assert list(train(state))[-1] == EndEvent(8, "finished")
        moments = [each for values in state.optimizer.state.values() for each in values.values() if each.ndim]
        assert all(isinstance(each, FakeCudaTensor) for each in (*state.model.parameters(), *moments))


@pytest.mark.parametrize("name", preset_names())
def test_every_task_draws_its_data_on_the_device(name, monkeypatch):
    with fake_gpu(monkeypatch):
        task = build_task(load_preset(name).task)
        for batches in (FreshBatches(task, 4), FreshByLength(task, 4, seed=0, device="cuda:0")):
            batch = batches.at(1, torch.Generator("cuda").manual_seed(0))
            assert isinstance(batch.src, FakeCudaTensor)
            assert isinstance(batch.tgt, FakeCudaTensor)


@pytest.mark.parametrize("strategy", [Beam(beam_size=3, n_best=2), Sample(seed=1, top_k=5, top_p=0.9)], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_strategy_decodes_on_another_device(preset_of, family, strategy, monkeypatch):
    here = new_state(preset_of(family))
    here.model.eval()
    expected = inspect(here.model, here.task, "4 8 2", strategy=strategy, prefix="2")
    with fake_gpu(monkeypatch):
        there = new_state(preset_of(family), device="cuda")
        there.model.eval()
        seen = inspect(there.model, there.task, "4 8 2", strategy=strategy, prefix="2")
    assert seen.output == expected.output


@pytest.mark.parametrize("family", FAMILIES)
def test_decoding_scores_and_reports_are_the_same_from_another_device(preset_of, family, monkeypatch):
    preset = preset_of(family)
    here = new_state(preset)
    here.model.eval()
    seen, pairs = inspect(here.model, here.task, "4 8 2"), fixed_pairs(here.task, 40, split="test")
    measured = measure(here.model, here.task, pairs)
    with fake_gpu(monkeypatch):
        there = new_state(preset, device="cuda")
        there.model.eval()
        shares = [score.attention_mass for score in inspect(there.model, there.task, "4 8 2").scores]
        again = measure(there.model, there.task, fixed_pairs(there.task, 40, split="test", device="cuda:0"))
    assert shares == pytest.approx([score.attention_mass for score in seen.scores], abs=1e-6)
    assert astuple(again.evaluation) == pytest.approx(astuple(measured.evaluation))
    assert_frame_equal(again.sequences, measured.sequences, rtol=1e-4)
    assert_frame_equal(again.steps, measured.steps, rtol=1e-4)


def test_the_same_seed_starts_from_the_same_weights_and_data_everywhere(tiny, monkeypatch):
    preset = tiny.with_changes({"training.training_sequences": 20, "training.seed": 3})
    here = new_state(preset)
    first = next(train(here))
    with fake_gpu(monkeypatch):
        there = new_state(preset, device="cuda")
        weights = {name: tensor.cpu() for name, tensor in clone_weights(there.model).items()}
        also_first = next(train(there))
    assert astuple(also_first.evaluation) == pytest.approx(astuple(first.evaluation))  # kernels round as they like
    assert_close(weights, dict(here.model.state_dict()), atol=0, rtol=0)
    assert isinstance(first, EvaluationEvent)


def test_a_run_goes_on_on_another_device_with_its_randomness_begun_anew(tiny, monkeypatch, tmp_path, caplog):
    preset, path = tiny.with_changes({"model.dropout": 0.2}), tmp_path / "last.safetensors"
    with fake_gpu(monkeypatch):
        state = new_state(preset, device="cuda")
        list(islice(train(state), 4))
        save_state(path, state)
        moments = {name: state.optimizer.state[each]["exp_avg"].cpu() for name, each in state.model.named_parameters()}
    with caplog.at_level(logging.WARNING):
        loaded, again = load_state(path, preset), load_state(path, preset)
    assert "saved on cuda, continued on cpu: random numbers are drawn anew, from seed 0 and step 3" in caplog.text
    assert torch.equal(loaded.generator.get_state(), again.generator.get_state())
    assert loaded.step == 3
    for name, parameter in loaded.model.named_parameters():
        assert torch.equal(loaded.optimizer.state[parameter]["exp_avg"], moments[name])
    assert list(train(loaded))[-1] == EndEvent(8, "finished")


def test_on_the_same_device_nothing_is_said_and_nothing_begun_anew(tiny, tmp_path, caplog):
    state = new_state(tiny)
    list(islice(train(state), 4))
    save_state(tmp_path / "last.safetensors", state)
    assert torch.equal(
        load_state(tmp_path / "last.safetensors", tiny).generator.get_state(), state.generator.get_state()
    )
    assert not caplog.text
