"""A Space from nothing: its pip command and variables, a user without a home, a disk that is read-only but for /tmp."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect, sync_playwright

from tests.browser.chromium import CHROMIUM, FLAGS, choose_preset, new_context, open_tab
from tests.structure.test_requirements import space_command
from tests.ui.test_space import HOST, VARIABLES, check_log

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS_TO_ANSWER = 60  # on a machine that does other work too
# In a mount namespace of its own: nobody has uid 1000, and nothing but a new /tmp can be written to.
CONFINED = """
set -e
grep -v ':1000:' /etc/passwd > {folder}/passwd
mount --bind {folder}/passwd /etc/passwd
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mount --bind / / && mount -o remount,ro,bind /
cd {folder}/space
exec setpriv --reuid 1000 --regid 1000 --clear-groups env -i {variables} {folder}/venv/bin/python app.py
"""


def can_confine() -> bool:
    """Whether this user may mount, and let another one run Python."""
    python = Path(sys.executable).resolve()
    probe = ["unshare", "-m", "bash", "-c", f"mount -t tmpfs tmpfs /dev/shm && setpriv --reuid 1000 {python} -V"]
    return (
        shutil.which("unshare") is not None and subprocess.run(probe, check=False, capture_output=True).returncode == 0
    )


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")
@pytest.mark.skipif(not can_confine(), reason="needs root rights, and the commands unshare and setpriv")
def test_a_space_from_nothing_answers_trains_and_decodes_without_an_error():
    folder = Path("/opt") / f"attention-lab-space-{os.getpid()}"  # not in /tmp, which the Space mounts again
    folder.mkdir()
    try:
        subprocess.run([sys.executable, "-m", "venv", "--copies", folder / "venv"], check=True)
        subprocess.run([folder / "venv/bin/pip", "install", "-q", *space_command()], check=True)
        ignored = shutil.ignore_patterns(".git", "tests", "__pycache__", ".venv")
        shutil.copytree(REPOSITORY, folder / "space", ignore=ignored)
        check_space(folder)
    finally:
        shutil.rmtree(folder)


def check_space(folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = VARIABLES | {"GRADIO_SERVER_PORT": str(port)}
    written = " ".join(f"'{name}={value}'" for name, value in variables.items())
    script = CONFINED.format(folder=folder, variables=written)
    log, started = folder / "log", time.monotonic()
    with log.open("w") as file:
        space = subprocess.Popen(["unshare", "-m", "bash", "-c", script], stdout=file, stderr=file)
    try:
        while not answers(port):
            assert space.poll() is None, log.read_text()
            assert time.monotonic() - started < SECONDS_TO_ANSWER, log.read_text()
            time.sleep(0.1)
        assert use(port) == []
        check_log(log)
    finally:
        space.terminate()
        space.wait()


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/", headers={"host": HOST}, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def use(port: int) -> list[str]:
    """Train and decode in a browser, and return what its console reports."""
    problems: list[str] = []
    with sync_playwright() as playwright:
        rules = f"--host-resolver-rules=MAP {HOST} 127.0.0.1"
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, rules])
        page = new_context(browser).new_page()
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        awake = {"json": {"runtime": {"stage": "RUNNING"}, "id": "me/lab"}}
        awake["headers"] = {"access-control-allow-origin": "*"}
        page.route("https://huggingface.co/**", lambda route: route.fulfill(**awake))
        page.goto(f"http://{HOST}:{port}/")
        expect(page.locator("#bench-view .answer")).to_have_count(4, timeout=60_000)
        choose_preset(page, "tiny", timeout=60_000)
        page.get_by_role("button", name="Train", exact=True).click()
        expect(page.locator("#run-bar .run .title")).to_contain_text("tiny", timeout=60_000)
        expect(page.locator("#run-bar .status")).to_contain_text("finished", timeout=120_000)
        open_tab(page, "Decode")
        page.get_by_role("textbox", name="Input").fill("4 8 2")
        page.keyboard.press("Enter")
        expect(page.locator("#answer .verdict")).to_have_text("✓ correct", timeout=60_000)
        browser.close()
    return problems
