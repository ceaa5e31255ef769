"""Randomly damaged checkpoints are always detected, and the previous file is used instead."""

import io
import json
import random

from safetensors import SafetensorError
from safetensors.torch import load, save

from core.runs import RunFolder, load_run
from core.runs.training_state import resume_state
from core.storage.tensor_file import CheckpointError, deserialize, previous_path, read_header, read_tensors
from tests.support.trainings import train_run

MUTATIONS = 4_000
CONTROLS = 400


def flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def set_byte(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] = rng.randrange(256)


def zero(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.choice((16, 512, 4096)))
    data[start:end] = bytes(end - start)


def swap(data: bytearray, rng: random.Random) -> None:
    size = rng.choice((1, 4, 64))
    one, other = rng.randrange(len(data) - size), rng.randrange(len(data) - size)
    data[one : one + size], data[other : other + size] = data[other : other + size], data[one : one + size]


def cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def remove(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.choice((1, 4, 100))]


def insert(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    data[start:start] = rng.randbytes(rng.choice((1, 4, 100)))


def in_header(data: bytearray, rng: random.Random) -> None:
    end = min(len(data), 8 + int.from_bytes(data[:8], "little"))
    data[rng.randrange(8, max(9, end))] = rng.randrange(32, 127)


KINDS = (flip, flip, flip, set_byte, zero, swap, cut, remove, insert, in_header)


def mutated(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 3))):
        if len(changed) > 200:
            rng.choice(KINDS)(changed, rng)
    return bytes(changed)


def equal(one, other) -> bool:
    """Whether tensors (bit for bit) and metadata are equal."""
    (tensors, facts), (others, other_facts) = one, other
    return (
        json.dumps(facts, sort_keys=True) == json.dumps(other_facts, sort_keys=True)
        and tensors.keys() == others.keys()
        and all(tensors[name].numpy().tobytes() == others[name].numpy().tobytes() for name in tensors)
    )


def read(data: bytes):
    file = io.BytesIO(data)
    header = read_header(file, "x")
    return deserialize(header, file.read(), "x"), header.facts


def read_without_checksum(data: bytes):
    """Read a plain safetensors file, which has no checksum."""
    try:
        return load(data), {}
    except (SafetensorError, ValueError, KeyError, RuntimeError, OverflowError) as error:
        raise CheckpointError(str(error)) from error


def outcomes(data: bytes, rng: random.Random, count: int, read=read) -> tuple[int, int, int]:
    """Count the damaged copies that are refused, read unchanged, and read with different content."""
    original, refused, unchanged, different = read(data), 0, 0, 0
    for _ in range(count):
        changed = mutated(data, rng)
        try:
            result = read(changed)
        except CheckpointError:
            refused += 1
        else:
            unchanged += equal(result, original)
            different += not equal(result, original)
    return refused, unchanged, different


def finished_run(root, preset) -> RunFolder:
    folder = RunFolder.create(root, preset, name="a")
    train_run(folder, stop_after=3)
    train_run(folder, stop_after=8)
    return folder


def test_randomly_damaged_checkpoints_are_refused(root, tiny, row):
    folder = finished_run(root, tiny)
    total = [0, 0, 0]
    files = (folder.best, folder.last, folder.replay_file, previous_path(folder.last), folder.weights_by_step_file)
    for number, path in enumerate(files):
        counts = outcomes(path.read_bytes(), random.Random(number), MUTATIONS // len(files))
        total = [sum(each) for each in zip(total, counts, strict=True)]
    tensors, _ = read_tensors(folder.best)
    *_, missed = outcomes(save(tensors), random.Random(5), CONTROLS, read_without_checksum)
    assert missed > CONTROLS / 4  # otherwise the mutations would prove nothing
    refused, unchanged, different = total
    assert different == 0
    assert refused + unchanged == MUTATIONS
    result = (
        f"{refused} refused, {unchanged} unchanged, 0 silently different; without the checksum {missed} of {CONTROLS}"
    )
    row("D4", "damaged at random", f"{MUTATIONS} files", result)


def test_damaged_best_and_last_fall_back_to_the_previous_files(root, tiny, row):
    folder, rng = finished_run(root, tiny), random.Random(6)
    files = {path: path.read_bytes() for path in (folder.best, folder.last)}
    fell_back = 0
    for _ in range(300):
        for path, data in files.items():
            path.write_bytes(mutated(data, rng))
        state, loaded = resume_state(folder), load_run(folder.path)
        assert state.step == (3 if "is used" in state.notice else 8)
        assert loaded.step in (0, 4, 8)
        fell_back += "is used" in state.notice
    assert fell_back > 250
    assert "; the previous file is used instead" in folder.read_info().message
    row(
        "D4",
        "best and last damaged, run opened",
        "300 times",
        f"{fell_back} continued from the previous file and reported it",
    )
