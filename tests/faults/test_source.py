"""What the source may not contain, and what is relied on; the same is part of the default suite."""

import re
from pathlib import Path

from tests.structure import test_structure as structure

REPOSITORY = Path(__file__).resolve().parents[2]


def test_nothing_is_unpickled_or_evaluated(row):
    paths = [*structure.sources("core", "ui"), REPOSITORY / "app.py"]
    for path in paths:
        structure.test_nothing_is_unpickled_or_evaluated(path)
    row("S8", "pickle, eval, exec, torch.load, other YAML loaders", f"{len(paths)} files", "none")


def test_what_is_relied_on_is_new_enough(row):
    text = (REPOSITORY / "requirements.txt").read_text()
    versions = {name: tuple(map(int, version.split("."))) for name, version in re.findall(r"(\w+)==([\d.]+)", text)}
    assert versions["gradio"] >= (6, 31)
    assert versions["torch"] >= (2, 10)
    served = "".join(path.read_text() for path in structure.sources("ui")) + (REPOSITORY / "app.py").read_text()
    assert "allowed_paths" not in served or "allowed_paths=[]" in served
    row("S8", "Gradio and PyTorch without known holes", f"{len(versions)} pinned", "Gradio ≥ 6.31, PyTorch ≥ 2.10")
