"""Trainings by Lightning, transformers and accelerate are watched as those of a plain loop."""

import sys

import pytest
import torch

from benchmarks import model_styles as styles
from core import lab
from core.runs import Runs
from core.storage.errors import InputError, UnavailableError
from tests.runs.watching.loops import BATCH, OPTIONS, made


@pytest.mark.usefixtures("every_norm")
@pytest.mark.parametrize("accumulate", [1, 2])
def test_lightning(tmp_path, accumulate):
    pytest.importorskip("lightning")
    from tests.runs.watching.lightning_loop import fit

    module = fit(tmp_path, steps=8, accumulate=accumulate)
    assert module.training
    run = Runs(tmp_path)["mine"]
    points = run.history.points()
    assert (run.info.status, run.info.step, points["step"]) == ("finished", 8, list(range(1, 9)))
    assert set(points["learning_rate"]) == {0.003}
    assert all(0 < each < 10 for each in points["loss"] + points["gradient_norm"])
    assert [each.step for each in run.replay.snapshots()] == [0, 5, 8]


def test_an_exception_in_lightning_marks_the_run_failed(tmp_path, monkeypatch):
    pytest.importorskip("lightning")
    from tests.runs.watching import lightning_loop

    monkeypatch.setattr(lightning_loop.Module, "training_step", lambda self, batch, index: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lightning_loop.fit(tmp_path, steps=8)
    assert Runs(tmp_path)["mine"].info.status == "failed"


@pytest.mark.usefixtures("every_norm")
def test_transformers(tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from tests.runs.watching.transformers_loop import train

    train(tmp_path, steps=8, every=2)
    run = Runs(tmp_path)["mine"]
    points = run.history.points()
    assert (run.info.status, run.info.step, points["step"]) == ("finished", 8, [2, 4, 6, 8])
    assert all(0 < each < 20 for each in points["loss"] + points["gradient_norm"])
    assert points["learning_rate"][0] > points["learning_rate"][-1] > 0
    assert run.history.evaluations()["step"] == [0, 5, 8]
    assert run.replay.snapshots()[-1].outputs[0].maps.keys() == {"encoder", "decoder", "cross"}


def test_accelerate(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model, optimizer = made()
    unprepared = model
    model, optimizer = accelerator.prepare(model, optimizer)
    with lab.watch(accelerator.unwrap_model(model), BATCH, name="mine", root=tmp_path, **OPTIONS) as watch:
        for number in range(3):
            loss = styles.loss_of(model, *styles.make_batch(8, seed=number))
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            watch.step(loss)
    run = Runs(tmp_path)["mine"]
    assert run.history.points()["step"] == [1, 2, 3]
    assert run.preset.task.module == type(unprepared).__name__


def test_other_processes_watch_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    with lab.watch(made()[0], BATCH, name="mine", root=tmp_path, **OPTIONS) as watch:
        watch.step(1.0)
        assert watch.diagnose(bos=1, eos=2) is None
    assert not (tmp_path / "mine").exists()


def test_models_of_distributed_training_are_unwrapped_or_refused(tmp_path):
    model, _ = made()
    with lab.watch(torch.nn.DataParallel(model), BATCH, name="mine", root=tmp_path, **OPTIONS) as watch:
        watch.step(1.0)
    assert Runs(tmp_path)["mine"].preset.task.module == "TorchTransformer"
    model.output.__class__ = type("FSDPLinear", (torch.nn.Linear,), {})  # as fully_shard names it
    with pytest.raises(InputError, match="sharded by FSDP"):
        lab.watch(model, BATCH, name="other", root=tmp_path, **OPTIONS)
    with pytest.raises(InputError, match="sharded by FSDP"):
        lab.diagnose(model, *BATCH[:2], pad=0, bos=1, eos=2)


@pytest.mark.parametrize("package", ["lightning", "transformers"])
def test_a_missing_package_is_named(tmp_path, monkeypatch, package):
    for name in (package, f"{package}.pytorch"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"core.runs.watching.{package}_callback", raising=False)
    watch = lab.watch(made()[0], BATCH, name="mine", root=tmp_path, **OPTIONS)
    with pytest.raises(UnavailableError, match=f"needs the package {package}: pip install {package}"):
        getattr(watch, package)()
    watch.close()
