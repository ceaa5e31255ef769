"""Export and import of packages (zip or folder); invalid packages leave no run."""

import json
import os
import resource
import struct
import time
import zipfile

import pytest
import yaml
from torch.testing import assert_close

from core.__main__ import main
from core.runs import RunFolder
from core.runs.export import CARD, VOCABULARY, WEIGHTS, package_files, write_zip
from core.runs.importing import import_run
from core.server import Runs
from core.server.limits import LAPTOP, PUBLIC
from core.storage.errors import LabError
from core.storage.tensor_file import CheckpointError


@pytest.fixture(scope="module")
def files(trained) -> dict[str, bytes]:
    return package_files(RunFolder(trained, "done"))


def zipped(path, files: dict[str, bytes]):
    write_zip(files, path)
    return path


@pytest.mark.parametrize("out", ["whole.zip", "whole"])
def test_an_exported_package_imports_with_the_same_model(trained, root, tmp_path, out):
    export = ["--checkpoints", str(trained), "export", "--run", "done", "--whole", "--out", str(tmp_path / out)]
    assert main(export) == 0
    assert main(["--checkpoints", str(root), "import", str(tmp_path / out), "--run", "theirs"]) == 0
    old, new = Runs(trained)["done"].trained(), Runs(root)["theirs"].trained()
    assert new.preset == old.preset
    assert_close(dict(new.model.state_dict()), dict(old.model.state_dict()), atol=0, rtol=0)
    assert main(export) == 2


@pytest.mark.parametrize("out", ["a.zip", "whole", "a.safetensors", "a.onnx"])
def test_an_export_that_does_not_fit_on_the_disk_leaves_nothing(trained, tmp_path, capsys, request, out):
    if out.endswith("onnx"):
        request.getfixturevalue("untraced")
    largest = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, largest[1]))
    try:
        arguments = ["export", "--run", "done", "--out", str(tmp_path / out), *(["--whole"] if out == "whole" else [])]
        assert main(["--checkpoints", str(trained), *arguments]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, largest)
    assert f"--out={tmp_path / out} cannot be written: File too large" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_own_pairs_are_part_of_the_package(own: RunFolder, root, tmp_path):
    package = zipped(tmp_path / "own.zip", package_files(own))
    folder = import_run(root, package, name="theirs")
    assert (folder.path / "pairs.tsv").read_bytes() == (own.path / "pairs.tsv").read_bytes()
    assert Runs(root)["theirs"].trained().task.references(list("103")) == [["5", "x"]]


def test_a_package_with_missing_or_wrong_pairs_is_refused(own: RunFolder, root, tmp_path):
    files = package_files(own)
    for pairs, message in (
        (None, "the file with these pairs is missing"),
        (files["pairs.tsv"] + b"1\t2\n", "pairs.tsv holds other pairs"),
        (b"no pair\n", "pairs file, line 1: it is not a pair"),
        (b"a\tb\n\xff\tb\n", "pairs file, line 2: byte 0xFF"),
        (b"a\tb\tlearn\n", "pairs file, line 1: it is not a pair"),
        (b"", "is empty"),
    ):
        given = {name: content for name, content in files.items() if name != "pairs.tsv"}
        given |= {} if pairs is None else {"pairs.tsv": pairs}
        package = zipped(tmp_path / "other.zip", given)
        with pytest.raises(LabError, match=message):
            import_run(root, package)
    assert not root.exists() or os.listdir(root) == []


def test_the_model_card_and_vocabulary_describe_the_run(files, trained):
    card = files[CARD].decode()
    front, _, body = card.removeprefix("---\n").partition("\n---\n")
    assert yaml.safe_load(front) == {
        "library_name": "attention-lab",
        "tags": ["attention-lab", "seq2seq", "transformer"],
    }
    preset, info = RunFolder(trained, "done").read_preset(), RunFolder(trained, "done").read_info()
    assert f"{info.parameters:,} parameters" in body
    assert preset.description in body
    tokens = json.loads(files[VOCABULARY])
    task = Runs(trained)["done"].trained().task
    assert (tokens["source"], tokens["target"]) == (list(task.src_vocab.tokens), list(task.tgt_vocab.tokens))


def test_zips_of_the_same_run_are_identical(files, tmp_path):
    one, other = (zipped(tmp_path / name, files).read_bytes() for name in ("one.zip", "other.zip"))
    assert one == other


def test_a_zip_bomb_is_refused_at_the_size_limit(files, root, tmp_path):
    package = zipped(tmp_path / "bomb.zip", files | {WEIGHTS: b"\0" * 50_000_000})
    assert package.stat().st_size < 200_000
    with pytest.raises(CheckpointError, match=r"model.safetensors has more than 1,000,000 bytes"):
        import_run(root, package, max_bytes=1_000_000)


def test_paths_outside_the_package_are_ignored(files, root, tmp_path):
    package = zipped(tmp_path / "out.zip", files | {"../../evil": b"x", "/evil": b"x"})
    folder = import_run(root, package)
    assert sorted(os.listdir(folder.path)) == ["best.safetensors", "preset.yaml", "run.json"]
    assert not list(tmp_path.parent.rglob("evil"))


def with_directory(files: dict[str, bytes], path, *, copies: int, zip64: bool = False, comment: bytes = b""):
    """Write a zip whose directory has many entries, however few it says that it has."""
    content = zipped(path, files).read_bytes()
    *_, entries, size, start, _ = struct.unpack("<4s4H2LH", content[-22:])
    directory = content[start:-22] * copies
    large = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, entries, entries, len(directory), start)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, start + len(directory), 1)
    size = 2**32 - 1 if zip64 else len(directory)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, entries, entries, size, start, len(comment))
    path.write_bytes(content[:start] + directory + (large + locator if zip64 else b"") + end + comment)
    return path


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        ({}, "the maximum is 1,000 files"),
        ({"zip64": True}, "Zip64 format"),
        ({"comment": b"x"}, "end with its directory"),
    ],
)
def test_a_zip_with_too_many_entries_is_refused_before_its_directory_is_read(files, root, tmp_path, ending, message):
    package = with_directory(files, tmp_path / "many.zip", copies=180_000, **ending)  # 900,000 entries, 50 MB
    started = time.perf_counter()
    with pytest.raises(CheckpointError, match=message):
        import_run(root, package)
    assert time.perf_counter() - started < 0.5
    assert import_run(root, with_directory(files, tmp_path / "few.zip", copies=1), name="few").exists()


def test_other_zips_folders_and_damaged_packages_are_refused(files, root, tmp_path):
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as file:
        file.writestr("data.pkl", b"x")
    (tmp_path / "folder").mkdir()
    damaged = bytearray(zipped(tmp_path / "whole.zip", files).read_bytes())
    damaged[200:260] = bytes(60)
    (tmp_path / "damaged.zip").write_bytes(damaged)
    for name, message in (
        ("model.pt", "a zip archive, such as PyTorch's .pt files"),
        ("folder", f"the package has no {WEIGHTS}"),
        ("damaged.zip", "cannot be read"),
    ):
        with pytest.raises(CheckpointError, match=message):
            import_run(root, tmp_path / name)
    assert not root.exists() or os.listdir(root) == []


def test_imports_on_the_server_respect_its_limits(own: RunFolder, root, tmp_path):
    package = zipped(tmp_path / "own.zip", package_files(own))
    runs = Runs(root, limits=LAPTOP.model_copy(update={"max_pairs": 59}))
    with pytest.raises(LabError, match="the data has more than 59 pairs"):
        runs.import_file(package, max_bytes=10_000_000)
    assert list(runs) == []
    name = Runs(root, limits=PUBLIC).import_file(package, max_bytes=10_000_000, owner="anna")
    assert runs.ownership(name).owner == "anna"
