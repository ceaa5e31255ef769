"""Security rules of the source code and minimum versions of dependencies."""

import re
from pathlib import Path

from tests.structure import test_structure as structure

REPOSITORY = Path(__file__).resolve().parents[2]


def test_nothing_is_unpickled_or_evaluated():
    structure.test_nothing_is_unpickled_or_evaluated()


def test_dependencies_are_recent_enough():
    text = (REPOSITORY / "requirements.txt").read_text()
    pins = re.findall(r"^(\w+)(?:\[.*\])?==([\d.]+)", text, re.MULTILINE)
    versions = {name: tuple(map(int, version.split("."))) for name, version in pins}
    assert versions["gradio"] >= (6, 31)
    assert versions["torch"] >= (2, 10)
    served = "".join(path.read_text() for path in structure.sources("ui")) + (REPOSITORY / "app.py").read_text()
    assert "allowed_paths" not in served or "allowed_paths=[]" in served
