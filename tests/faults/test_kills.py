"""A process is killed at any moment: no file is torn, nothing acknowledged is lost, and the run goes on as it was."""

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from core.runs import RunFolder
from core.runs.training_state import load_state
from core.storage.tensor_file import is_intact, load_weights, previous_path
from core.teaching.bugs import new_state
from tests.faults.children import processes, save_without_end, train_on
from tests.faults.fingerprints import fingerprint

SAVE_KILLS = 200
TRAINING_KILLS = 12  # of each family


def kill(process) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def heard(connection) -> list:
    """Everything that was said before the end of it."""
    said = []
    try:
        while True:
            said.append(connection.recv())
    except EOFError:
        return said


def leftovers(folder: RunFolder) -> list[str]:
    return [name for name in os.listdir(folder.path) if name.endswith(".tmp")]


def test_saving_is_killed(root, tiny, row):
    folder, dice, context = RunFolder.create(root, tiny, name="a"), random.Random(1), processes()
    acknowledged, torn, lost, temporaries, swept = {"best": 0, "last": 0}, 0, 0, 0, 0
    saves = 0
    model = new_state(tiny).model
    for _ in range(SAVE_KILLS):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=save_without_end, args=(root, theirs))
        process.start()
        theirs.close()
        assert ours.recv() == "ready"
        said = [ours.recv() for _ in range(dice.randrange(4))]
        time.sleep(dice.uniform(0.0, 0.03))
        kill(process)
        said += heard(ours)
        saves += len(said)
        acknowledged |= dict(said)
        for path in (folder.best, folder.last):
            torn += path.exists() and not is_intact(path)
            torn += previous_path(path).exists() and not is_intact(previous_path(path))
        if acknowledged["best"]:
            step = load_weights(folder.best, model)["step"]
            lost += not acknowledged["best"] <= step <= acknowledged["best"] + 1
            lost += not all((each == step).all() for each in model.state_dict().values())
            acknowledged["best"] = step  # what was found may not be lost either
        if acknowledged["last"]:
            step = load_state(folder.last, tiny).step
            lost += not acknowledged["last"] <= step <= acknowledged["last"] + 1
            acknowledged["last"] = step
        left = len(leftovers(folder))
        temporaries += left
        folder.lock().release()  # as whoever goes on with the run does first
        swept += left - len(leftovers(folder))
    assert (torn, lost, temporaries - swept) == (0, 0, 0)
    assert saves > SAVE_KILLS
    assert temporaries  # or it was never killed while it wrote
    found = f"0 torn, 0 of {saves} acknowledged saves lost, all {temporaries} temporaries swept"
    row("D1", "kill -9 while saving", f"{SAVE_KILLS} kills", found)


@pytest.fixture(params=["transformer", "gru"])
def preset(request, tiny, tiny_gru):
    chosen = {"transformer": tiny.with_changes({"model.dropout": 0.1}), "gru": tiny_gru}[request.param]
    return chosen.with_changes({"training.steps": 300, "training.evaluate_every": 10, "training.batch_size": 16})


def test_training_is_killed(root, preset, row):
    dice, context = random.Random(2), processes()
    for name in ("straight", "killed"):
        RunFolder.create(root, preset, name=name, status="stopped")
    ours, theirs = context.Pipe(duplex=False)
    straight = context.Process(target=train_on, args=(root, "straight", theirs))
    straight.start()
    ours.recv()
    began = time.perf_counter()
    straight.join()
    longest = (time.perf_counter() - began) / 6  # or it would be done before it was killed often
    killed = RunFolder(root, "killed")
    kills, steps = 0, []
    while killed.info().status != "finished":
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=train_on, args=(root, "killed", theirs), kwargs={"as_server": kills % 2})
        process.start()
        ours.recv()
        process.join(dice.uniform(0.0, longest) if kills < TRAINING_KILLS else None)
        if process.is_alive():
            kill(process)
            kills += 1
            assert killed.info().status == "interrupted"
            steps.append(load_state(killed.last, preset).step if killed.last.exists() else 0)
    assert fingerprint(killed) == fingerprint(RunFolder(root, "straight"))
    assert kills >= 10
    family = preset.model.family
    found = f"equal to the uninterrupted run bit for bit; resumed at {', '.join(map(str, steps))} of 300"
    row("R2", f"kill -9 while training, {family}", f"{kills} kills", found)
    shutil.rmtree(Path(root))
