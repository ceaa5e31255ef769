"""Runs are reproducible bit for bit: repeated, and resumed after any interruption."""

from pathlib import Path

import pytest

from core.config import Preset, load_preset, preset_names
from core.runs import RunFolder
from core.storage.tensor_file import read_tensors, write_tensors
from core.teaching.bugs import new_state
from core.training import loop as training
from core.training.loop import StepEvent
from tests.faults.children import processes, train_on
from tests.faults.fingerprints import fingerprint
from tests.support.trainings import train_run

SMALL = {
    "training.steps": 6,
    "training.batch_size": 4,
    "training.tokens_per_batch": 0,  # the batch size counts, also of presets with a budget
    "training.warmup_steps": 2,
    "training.evaluate_every": 3,
    "training.validation_sequences": 4,
    "training.learning_rate": 0.01,
    "training.schedule": "linear",
    "training.decay_power": 1.0,  # of the schedule of a preset
}


@pytest.fixture
def often(monkeypatch) -> None:
    monkeypatch.setattr("core.runs.recorder.MIN_SECONDS_BETWEEN_SAVES", 0.0)


@pytest.fixture(params=["transformer", "gru"])
def preset(request, tiny, tiny_gru) -> Preset:
    """Just over two epochs of a fixed training set, two batches per update, with dropout."""
    chosen = {"transformer": tiny.with_changes({"model.dropout": 0.1}), "gru": tiny_gru}[request.param]
    changes = {
        "training.training_sequences": 64,
        "training.gradient_accumulation_steps": 2,
        "training.optimizer": "adamw",
    }
    return chosen.with_changes(changes | {"training.steps": 12, "training.evaluate_every": 4})


@pytest.fixture
def straight(root, preset, often) -> dict[str, str]:
    """The fingerprint of the uninterrupted run."""
    folder = RunFolder.create(root, preset, name="straight")
    train_run(folder)
    return fingerprint(folder)


def test_the_same_seed_gives_the_same_run_in_two_processes(root):
    families: dict[str, Preset] = {}
    for name in preset_names():
        preset = load_preset(name)
        families.setdefault(f"{preset.task.family}, {preset.model.family}", preset)
    context = processes()
    for number, (family, preset) in enumerate(families.items()):
        small = preset.with_changes({"training.training_sequences": min(32, preset.training.training_sequences)})
        small = small.with_changes(SMALL)
        folders = [RunFolder.create(root, small, name=f"a{number}-{each}", status="stopped") for each in range(2)]
        for folder in folders:
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=train_on, args=(root, folder.name, sender))
            process.start()
            receiver.recv()
            process.join()
        one, other = (fingerprint(folder) for folder in folders)
        assert one == other, family


def without(part: str, tensors: dict, facts: dict, preset: Preset) -> tuple[dict, dict]:
    """Return a checkpoint with one part reset to its initial value."""
    if part == "optimizer":
        return {name: each for name, each in tensors.items() if not name.startswith("optimizer.")}, facts
    if part == "optimizer's count of steps":
        return {name: each * (0 if name.endswith(".step") else 1) for name, each in tensors.items()}, facts
    if part == "generator":
        return tensors | {"generator": new_state(preset).generator.get_state()}, facts
    if part == "weights":
        fresh = {f"model.{name}": each for name, each in new_state(preset).model.state_dict().items()}
        return tensors | fresh, facts
    fresh = new_state(preset)
    forgotten = {"last_evaluation": None} if part == "last_evaluation" else {part: getattr(fresh, part)}
    return tensors, facts | forgotten


PARTS = ["weights", "optimizer", "optimizer's count of steps", "generator", "step", "best_loss", "best_step"]
PARTS += ["sequences_seen", "evaluated_step"]


@pytest.mark.usefixtures("often")
def test_resuming_needs_every_part_of_the_checkpoint(root, preset):
    """Includes a run with a rising loss: only there does the best loss matter."""
    restless = {"training.learning_rate": 1.0, "training.schedule": "constant", "training.warmup_steps": 0}
    needed = set()
    for kind, chosen in {"learns": preset, "restless": preset.with_changes(restless)}.items():
        straight = RunFolder.create(root, chosen, name=kind)
        train_run(straight)
        for number, part in enumerate([None, *PARTS]):
            folder = RunFolder.create(root, chosen, name=f"{kind}-{number}")
            train_run(folder, stop_after=7)
            tensors, facts = read_tensors(folder.last)
            if part:
                write_tensors(folder.last, *without(part, tensors, facts, chosen))
            train_run(folder)
            if fingerprint(folder) != fingerprint(straight):
                assert part
                needed.add(part)
    assert needed == set(PARTS)


class Killed(BaseException):
    """Simulates the end of the process: no handler runs, nothing is saved."""


def test_a_run_interrupted_at_any_point_resumes_bit_for_bit(root, preset, straight, monkeypatch):  # noqa: C901 - one scenario
    """An epoch is 4 updates of 2 batches of 8 sequences; evaluations are after steps 0, 4, 8 and 12."""
    losses, evaluate = training._weighted_losses, training.evaluate

    def die_in(step: int, where: str) -> None:
        def dying_losses(state, parts):
            for number, loss in enumerate(losses(state, parts)):
                if where == "mid-accumulation" and state.step + 1 == step and number == 1:
                    raise Killed
                yield loss

        def dying_evaluate(model, validation, **options):
            if where == "evaluation" and die_in.step == step:
                evaluate(model, validation[:3], **options)
                raise Killed
            return evaluate(model, validation, **options)

        monkeypatch.setattr(training, "_weighted_losses", dying_losses)
        monkeypatch.setattr(training, "evaluate", dying_evaluate)

    grid = [(step, where) for where in ("after the step", "mid-accumulation") for step in (1, 3, 4, 5, 7, 8, 9, 11, 12)]
    grid += [(step, "evaluation") for step in (0, 4, 8, 12)]
    for step, where in grid:
        folder = RunFolder.create(root, preset, name=f"a{step}-{where.replace(' ', '-')}")
        die_in.step = 0
        die_in(step, where)

        def watch(event, step=step, where=where) -> None:
            if isinstance(event, StepEvent):
                die_in.step = event.step
                if where == "after the step" and event.step == step:
                    raise Killed

        with pytest.raises(Killed):
            train_run(folder, on_event=watch)
        monkeypatch.setattr(training, "_weighted_losses", losses)
        monkeypatch.setattr(training, "evaluate", evaluate)
        train_run(folder)
        assert fingerprint(folder) == straight, (step, where)


def test_a_run_writes_exactly_the_documented_tensor_files(root, preset, straight):
    names = sorted(path.name for path in Path(root / "straight").iterdir() if path.suffix == ".safetensors")
    stems = ("best.previous", "best", "last.previous", "last", "replay", "weights-by-step")
    assert names == [f"{stem}.safetensors" for stem in stems]
