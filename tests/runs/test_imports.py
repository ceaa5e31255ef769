"""Export and import of a run as one weight file; untrusted files are refused without leaving a run."""

import io
import json
import os

import pytest
import torch
from torch.testing import assert_close

from core.__main__ import main
from core.config import preset_to_yaml
from core.runs import RunError, RunFolder, check_resumable
from core.runs.importing import MAX_IMPORT_BYTES, import_weights
from core.server import Runs
from core.storage.tensor_file import FORMAT, CheckpointError, deserialize, read_header, read_tensors, serialize


@pytest.fixture
def best(trained) -> bytes:
    """The best weights of a finished run, as a file."""
    return RunFolder(trained, "done").best.read_bytes()


def parts(data: bytes) -> tuple[dict, dict]:
    file = io.BytesIO(data)
    header = read_header(file, "x")
    return deserialize(header, file.read(), "x"), header.facts


def refused(root, data: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        import_weights(root, bytes(data))
    assert not root.exists() or os.listdir(root) == []


def test_exported_weights_import_as_a_run_with_the_same_model(trained, root, tmp_path, capsys):
    out = tmp_path / "mine.safetensors"
    assert main(["--checkpoints", str(trained), "export", "--run", "done", "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["bytes"] == out.stat().st_size
    assert main(["--checkpoints", str(root), "import", str(out), "--run", "theirs", "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    old, new = Runs(trained)["done"].trained(), Runs(root)["theirs"].trained()
    assert said == {"run": "theirs", "parameters": Runs(trained)["done"].info.parameters, "step": old.step}
    assert new.preset == old.preset
    assert new.step == old.step
    assert_close(dict(new.model.state_dict()), dict(old.model.state_dict()), atol=0, rtol=0)


def test_best_weights_import_directly_as_a_finished_run(root, best):
    folder = import_weights(root, best)
    info = folder.read_info()
    assert (info.status, info.step, info.best_step) == ("finished", parts(best)[1]["step"], parts(best)[1]["step"])
    assert info.message.startswith("imported from a file")
    with pytest.raises(RunError, match="has finished"):
        check_resumable(folder)
    assert sorted(os.listdir(folder.path)) == ["best.safetensors", "preset.yaml", "run.json"]
    assert read_tensors(folder.best)[1] == parts(best)[1]


def test_unknown_metadata_are_not_imported(root, best):
    tensors, facts = parts(best)
    folder = import_weights(root, bytes(serialize(tensors, facts | {"more": "<script>"})), name="a")
    assert b"<script>" not in folder.best.read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": -1}, "step=-1 should be greater than or equal to 0"),
        ({"step": "7"}, "step='7' should be a valid integer"),
        ({"step": True}, "step=True should be a valid integer"),
        ({"validation_loss": float("nan")}, "validation_loss=nan should be a finite number"),
        ({"exact_match": 2.0}, "exact_match=2.0 should be less than or equal to 1"),
        ({"preset": 7}, "preset=7 should be a valid string"),
        ({"preset": "a" * 70_000}, "should have at most 65536 characters"),
        ({"preset": "&a [*a]"}, "its preset is not valid: anchors and aliases are not allowed"),
        ({"preset": "model: 1"}, "its preset is not valid"),
    ],
)
def test_metadata_are_validated(root, best, change, message):
    tensors, facts = parts(best)
    refused(root, serialize(tensors, facts | change), message)


def test_tensors_must_be_those_of_the_model_and_finite(root, best, tiny):
    tensors, facts = parts(best)
    name = "output.bias"
    short = {key: value for key, value in tensors.items() if key != name}
    missing = r"tensor 'output\.bias' is missing; in the model of its preset it is F32 \(13,\)"
    refused(root, serialize(short, facts), missing)
    refused(root, serialize(tensors | {"more": torch.ones(2)}, facts), r"tensor 'more' is F32 \(2,\); .* is missing")
    refused(root, serialize(tensors | {name: torch.ones(3)}, facts), r"tensor 'output\.bias' is F32 \(3,\)")
    refused(root, serialize(tensors | {name: torch.ones(13, dtype=torch.float64)}, facts), r"is F64 \(13,\)")
    for value in (float("nan"), float("inf")):
        refused(root, serialize(tensors | {name: torch.full((13,), value)}, facts), "has values that are not finite")
    huge = preset_to_yaml(tiny.with_changes({"model.d_model": 1024, "model.num_encoder_layers": 12}))
    refused(root, serialize(tensors, facts | {"preset": huge}), "in the model of its preset it is")


def test_a_training_state_is_refused(root, trained):
    refused(root, RunFolder(trained, "done").last.read_bytes(), "only weights can be imported")


@pytest.mark.parametrize("suffix", [".pt", ".safetensors", ""])
def test_the_content_of_a_file_decides_not_its_name(root, tmp_path, best, suffix):
    path = tmp_path / f"file{suffix}"
    path.write_bytes(best)
    import_weights(root, path, name="good")
    torch.save({"a": torch.ones(2)}, path)
    with pytest.raises(CheckpointError, match=r"^file.* is a zip archive, such as PyTorch's \.pt files"):
        import_weights(root, path)
    assert os.listdir(root) == ["good"]


def test_large_and_missing_files_are_refused(root, tmp_path, capsys):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(MAX_IMPORT_BYTES + 1)
    with pytest.raises(CheckpointError, match="large has 67,108,865 bytes; the limit is 67,108,864"):
        import_weights(root, path)
    assert main(["--checkpoints", str(root), "import", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err == "error: nothing cannot be read: there is no such file\n"
    assert main(["--checkpoints", str(root), "import", str(tmp_path)]) == 2


def test_a_taken_or_invalid_name_is_refused(root, best):
    import_weights(root, best, name="a")
    for name in ("a", "../b"):
        with pytest.raises(RunError):
            import_weights(root, best, name=name)
    assert os.listdir(root) == ["a"]


def test_a_full_disk_leaves_no_run(root, best, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        import_weights(root, best)
    assert os.listdir(root) == []


def test_export_refuses_existing_files_and_runs_without_weights(trained, tmp_path, tiny, root, capsys):
    (tmp_path / "x").write_text("mine")
    assert main(["--checkpoints", str(trained), "export", "--run", "done", "--out", str(tmp_path / "x")]) == 2
    assert (tmp_path / "x").read_text() == "mine"
    RunFolder.create(root, tiny, name="new")
    assert main(["--checkpoints", str(root), "export", "--run", "new", "--out", str(tmp_path / "y")]) == 2
    nowhere = str(tmp_path / "no" / "folder")
    assert main(["--checkpoints", str(trained), "export", "--run", "done", "--out", nowhere]) == 2
    for other in ("page.html", "model.tar"):
        assert main(["--checkpoints", str(trained), "export", "--run", "done", "--out", str(tmp_path / other)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[3].endswith("page.html must end with .safetensors, .zip or .onnx; --html writes a page")
    assert said[4].endswith("model.tar must end with .safetensors, .zip or .onnx")
    assert ["exists already" in said[0], "has no weights yet" in said[1], "cannot be written" in said[2]] == [True] * 3


def test_the_file_contains_its_format_version(best):
    assert FORMAT.encode() in best[:10_000]
