"""A damaged package is refused as damaged: never with a traceback, nor as if the server could not write."""

import random
import struct

import pytest

from core.runs import RunFolder
from core.runs.export import WEIGHTS, export_package, write_zip
from core.runs.folder import PAIRS
from core.server import Runs
from core.storage.errors import LabError
from core.storage.tensor_file import CheckpointError
from tests.faults.damage import mutated

NOT_ITS_FAULT = ("cannot be imported", "This is a bug", "writable")


@pytest.fixture
def package(trained, tmp_path) -> bytes:
    path = tmp_path / "run.zip"
    export_package(RunFolder(trained, "done"), path)
    return path.read_bytes()


def refusal(runs: Runs, path, data: bytes) -> str:
    """Import a package; return why it is refused, or "" if the damage is not in what is read."""
    path.write_bytes(data)
    message = ""
    try:
        runs.delete(runs.import_file(path, max_bytes=10_000_000))
    except LabError as error:
        message = str(error)
    assert not any(words in message for words in NOT_ITS_FAULT), message
    assert len(message) < 1_000
    return message


def structure(data: bytes) -> list[int]:
    """Return the positions of the zip's own fields: the first local header, the directory, and the end record."""
    *_, start, _ = struct.unpack("<4s4H2LH", data[-22:])
    return [*range(4, 48), *range(start, len(data))]


def test_no_byte_of_a_zips_fields_crashes_the_import(root, tmp_path):
    path = tmp_path / "run.zip"
    write_zip({WEIGHTS: b"no weights" * 9, "preset.yaml": b"tiny", PAIRS: b"a\tb\n" * 9}, path)  # refused after the zip
    package, runs, reasons = path.read_bytes(), Runs(root), []
    for position in structure(package):
        for value in {0, 255, package[position] ^ 1, package[position] ^ 128} - {package[position]}:
            changed = bytearray(package)
            changed[position] = value
            reasons.append(refusal(runs, path, bytes(changed)))
    assert len(reasons) > 500
    assert all(reasons)
    assert sum("zip archive that" in each for each in reasons) > 100


def test_random_damage_never_crashes_the_import(package: bytes, root, tmp_path):
    runs, rng = Runs(root), random.Random(0)
    reasons = [refusal(runs, tmp_path / "changed.zip", mutated(package, rng)) for _ in range(400)]
    assert sum(map(bool, reasons)) > 200


@pytest.mark.parametrize(("method", "name"), [(12, "bzip2"), (14, "LZMA"), (99, "AES")])
def test_other_compressions_are_refused_by_name(package: bytes, root, tmp_path, method: int, name: str):
    *_, start, _ = struct.unpack("<4s4H2LH", package[-22:])
    changed = bytearray(package)
    changed[start + 10 : start + 12] = struct.pack("<H", method)
    (tmp_path / "changed.zip").write_bytes(changed)
    with pytest.raises(CheckpointError, match="must be stored or deflated"):
        Runs(root).import_file(tmp_path / "changed.zip", max_bytes=10_000_000)
