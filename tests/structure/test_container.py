"""The Dockerfile: the pinned PyTorch, and a user without root rights."""

from pathlib import Path


def test_the_container_has_the_pinned_pytorch_and_no_root_user():
    root = Path(__file__).resolve().parents[2]
    dockerfile = (root / "Dockerfile").read_text()
    pinned = next(line for line in (root / "requirements.txt").read_text().splitlines() if line.startswith("torch=="))
    assert f'"{pinned}+cpu"' in dockerfile
    users = [line.split()[1] for line in dockerfile.splitlines() if line.startswith("USER ")]
    assert users == ["lab"]
    assert "exec python app.py" in dockerfile
