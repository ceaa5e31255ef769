"""The page on a Space of the Hugging Face Hub: a process with its variables and those of ZeroGPU."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
import torch
from gradio_client import Client

import app
from core.runs import DEFAULT_ROOT
from ui.serving.space import is_zero_gpu, prepare_space

REPOSITORY = Path(__file__).resolve().parents[2]
HOST = "me-lab.hf.space"
VARIABLES = {
    "PATH": os.defpath,
    "SYSTEM": "spaces",
    "SPACE_ID": "me/lab",
    "SPACE_HOST": HOST,
    "SPACE_AUTHOR_NAME": "me",
    "SPACE_REPO_NAME": "lab",
    "GRADIO_SERVER_NAME": "0.0.0.0",  # noqa: S104 - as there
    "PYTHONUNBUFFERED": "1",
    "PYTHONWARNINGS": "ignore:Error while reading infos from Nvidia",  # of ``spaces``: this machine has no GPU
}


@pytest.fixture
def reports() -> Iterator[tuple[str, list[str]]]:
    """A stand-in for ZeroGPU's own server: its address, and the paths that were requested."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name that http.server calls
            self.rfile.read(int(self.headers.get("content-length") or 0))
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", paths
    server.shutdown()
    server.server_close()


@pytest.fixture
def zero_gpu(reports: tuple[str, list[str]], tmp_path: Path) -> dict[str, str]:
    """The variables of a Space with ZeroGPU."""
    return VARIABLES | {
        "SPACES_ZERO_GPU": "true",
        "SPACES_ZERO_DEVICE_API_URL": reports[0],
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
    }


@pytest.fixture
def space(zero_gpu: dict[str, str], tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """``app.py``, started with nothing but a Space's variables: its address and its log."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path / "log"
    command = [sys.executable, str(REPOSITORY / "app.py"), "--checkpoints", str(tmp_path / "runs")]
    environment = zero_gpu | {"GRADIO_SERVER_PORT": str(port)}
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=file, stderr=file)
    try:
        deadline = time.monotonic() + 120
        while "Attention Lab: http" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/", log
    finally:
        process.kill()
        process.wait()


def check_log(log: Path) -> None:
    """Check that nothing went wrong: no traceback, and no record above a warning."""
    lines = log.read_text().splitlines()
    records = [json.loads(line) for line in lines if line.startswith("{")]
    assert [record for record in records if record["level"] in ("error", "critical")] == []
    assert [line for line in lines if "Traceback" in line or "Error" in line] == []


def test_a_space_with_zero_gpu_is_public_trains_and_decodes_and_logs_no_error(
    space: tuple[str, Path], reports: tuple[str, list[str]]
):
    """Without a function decorated with ``spaces.GPU`` nothing would be reported, and ZeroGPU would end the Space.

    The training shows that PyTorch was left alone: in the emulated GPU of ``spaces``, optimizers fail.
    """
    address, log = space
    assert reports[1] == ["/startup-report"]
    page = httpx.get(address, headers={"host": HOST})
    assert page.status_code == 200
    config = httpx.get(f"{address}config", headers={"host": HOST}).json()
    assert config["space_id"] is None  # or Gradio puts its bar, with fonts of another host, over the page
    assert "attention-lab-visitor" in page.headers["set-cookie"]
    client = Client(address, verbose=False)
    run = client.predict("tiny", {"training.steps": 8, "training.warmup_steps": 5}, api_name="/train")["run"]
    deadline = time.monotonic() + 120
    while (progress := client.predict(run, -1, api_name="/progress"))["status"] != "finished":
        assert progress["status"] in ("queued", "training"), progress
        assert time.monotonic() < deadline, progress
        time.sleep(0.5)
    assert client.predict(run, "4 8 2", api_name="/decode")["output"]
    check_log(log)


def test_elsewhere_nothing_is_prepared():
    environment = {"SYSTEM": "Linux", "SPACE_ID": "me/lab"}
    prepare_space(environment)
    assert environment == {"SYSTEM": "Linux", "SPACE_ID": "me/lab"}
    assert not is_zero_gpu(environment)
    assert sys.modules["torch"] is torch


def test_zero_gpu_without_its_package_is_explained(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setitem(sys.modules, "spaces", None)
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    monkeypatch.setattr("sys.argv", ["app.py"])
    for name in ("raise_file_limit", "log_to_stderr", "sys.setswitchinterval", "torch.set_num_threads"):
        monkeypatch.setattr(f"app.{name}", lambda *_, **__: None)
    with pytest.raises(SystemExit):
        app.main()
    assert "ZeroGPU needs the package spaces: pip install spaces" in capsys.readouterr().err
    assert sys.modules["torch"] is torch


# --- where runs are kept ---------------------------------------------------------------------------------------


@pytest.fixture
def cannot_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the project's folder of runs be read-only."""
    check = app.check_folder
    monkeypatch.setattr("app.check_folder", lambda root: "read-only" if root == DEFAULT_ROOT else check(root))


def test_where_the_projects_folder_is_read_only_runs_are_kept_in_a_temporary_one(
    cannot_write: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    root = app.folder_of_runs(None)
    assert root.parent == tmp_path
    assert root.stat().st_mode & 0o777 == 0o700  # of nobody else
    assert f"runs are kept in {root}" in caplog.text
    assert app.folder_of_runs(None) != root  # a name that nobody else can have taken


def test_a_folder_that_was_named_is_used_even_if_it_is_read_only(cannot_write: None, caplog: pytest.LogCaptureFixture):
    assert app.folder_of_runs(DEFAULT_ROOT) == DEFAULT_ROOT
    assert "read-only" in caplog.text


def test_without_any_folder_to_write_to_runs_can_still_be_looked_at(
    cannot_write: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def nowhere(**_: str) -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.mkdtemp", nowhere)
    assert app.folder_of_runs(None) == DEFAULT_ROOT
    assert "read-only" in caplog.text
