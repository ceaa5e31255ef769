"""Deployment to a Space, against a local server with the API of the Hugging Face Hub."""

import json
import shutil
import subprocess

import pytest

from core.__main__ import main
from core.runs.hub import HubError
from core.runs.hub_space import (
    HARDWARE,
    REPOSITORY,
    SpaceFile,
    check_space,
    deploy,
    deploy_site,
    site_files,
    space_files,
)
from core.storage.errors import InputError

SPACE = "me/lab"
SHIPPED = {"checkpoints/digits-reversal-shipped/best.safetensors", "checkpoints/translate-en-de-shipped/run.json"}


@pytest.fixture
def program(tmp_path):
    """A checkout of a very small program, with what a Space needs and with what must not be uploaded."""
    root = tmp_path / "program"
    for name in (
        "app.py",
        "requirements.txt",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / name, root / name)
    texts = {
        "core/models/attention.py": "attention",
        "core/runs/space.gitattributes": "*.png filter=lfs",
        "ui/page.py": "page",
        "ui/__pycache__/page.pyc": "compiled",
        "ui/.secret": "secret",
        "presets/tiny.yaml": "preset",
        "docs/tour.md": "tour",
        "tests/test_page.py": "test",
        "checkpoints/mine/run.json": json.dumps({"status": "finished"}),
        ".env": "HF_TOKEN=hf_mine",
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    shipped = root / "checkpoints" / "digits-reversal-shipped"
    shutil.copytree(REPOSITORY / "checkpoints" / shipped.name, shipped)
    for name in (".lock", "best.safetensors.previous"):
        (shipped / name).write_bytes(b"left behind")
    (root / "ui" / "passwords").symlink_to("/etc/passwd")
    return root


def contents(files: list[SpaceFile]) -> dict[str, bytes]:
    return {file.name: file.path.read_bytes() for file in files}


def test_a_space_has_the_program_and_the_shipped_runs_and_nothing_else(program):
    names = {file.name for file in space_files(program)}
    assert {"app.py", "core/models/attention.py", "ui/page.py", "presets/tiny.yaml", ".gitattributes"} <= names
    assert "checkpoints/digits-reversal-shipped/best.safetensors" in names
    unwanted = ("secret", "pyc", "tests/", "mine", ".env", ".lock", "previous", "passwords")
    assert [name for name in names if any(part in name for part in unwanted)] == []


def test_this_checkout_is_uploaded_whole(hub, capsys):
    """What the page, the commands and the links of the README need is there, each byte as it is here."""
    assert main(["deploy", SPACE, "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    sent, files = hub.files[f"spaces/{SPACE}"], space_files()
    assert sent == contents(files)
    assert {name for name in sent if not name.startswith(("core/", "ui/", "presets/", "docs/"))} >= SHIPPED
    tracked = subprocess.run(
        ["git", "ls-files", "core", "ui", "presets"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert sent.keys() >= {name for name in tracked.stdout.split() if (REPOSITORY / name).exists()}
    assert said["created"] is True
    assert hub.created[f"spaces/{SPACE}"] == {
        "name": "lab", "organization": "me", "type": "space", "sdk": "gradio", "hardware": "zero-a10g",
        "visibility": "public",
    }  # fmt: skip
    assert hub.commits[f"spaces/{SPACE}"] == 1


def test_large_file_storage_covers_every_binary_file_of_the_space():
    attributes = (REPOSITORY / "core/runs/space.gitattributes").read_text().splitlines()
    suffixes = {line.split()[0].removeprefix("*") for line in attributes if "filter=lfs" in line}
    assert {file.path.suffix for file in space_files() if file.is_binary} == suffixes


def test_an_update_deletes_what_the_new_version_lacks_and_keeps_the_hardware(hub, program):
    first = deploy(space_files(program), SPACE, hardware="cpu", private=True)
    assert first.is_new
    assert hub.private[f"spaces/{SPACE}"] is True
    hub.files[f"spaces/{SPACE}"]["notes.txt"] = b"the owner's"
    (program / "ui" / "page.py").rename(program / "ui" / "whole_page.py")
    again = deploy(space_files(program), SPACE)
    assert (again.is_new, again.deleted) == (False, ("ui/page.py",))
    assert hub.files[f"spaces/{SPACE}"] == contents(space_files(program)) | {"notes.txt": b"the owner's"}
    assert hub.hardware[f"spaces/{SPACE}"] == "cpu-basic"
    deploy(space_files(program), SPACE, hardware="cpu-upgrade")
    assert hub.hardware[f"spaces/{SPACE}"] == "cpu-upgrade"


def test_interrupted_anywhere_the_space_is_as_it_was_and_repeating_finishes_it(hub, program):
    """Each request of an update is refused in turn."""
    deploy(space_files(program), SPACE)
    old = dict(hub.files[f"spaces/{SPACE}"])
    (program / "app.py").write_text("new")
    (program / "docs" / "picture.png").write_bytes(b"\0new")
    hub.requests.clear()
    deploy(space_files(program), f"{SPACE}-2")
    steps = {path.replace("lab-2", "lab") for _, path in hub.requests} - {"/api/repos/create"}
    assert len(steps) >= 5
    for step in sorted(steps):
        hub.stored.clear()
        hub.refusals = {step: 403}
        with pytest.raises(HubError, match=r"403|while uploading"):
            deploy(space_files(program), SPACE)
        assert hub.files[f"spaces/{SPACE}"] == old, step
    hub.refusals = {}
    deploy(space_files(program), SPACE)
    assert hub.files[f"spaces/{SPACE}"] == contents(space_files(program))


def test_a_creation_that_was_interrupted_is_finished_by_the_same_command(hub, program):
    hub.refusals = {f"/api/spaces/{SPACE}/commit/main": 403}
    with pytest.raises(HubError):
        deploy(space_files(program), SPACE)
    assert hub.files[f"spaces/{SPACE}"] == {".gitattributes": b""}
    hub.refusals = {}
    deploy(space_files(program), SPACE)
    assert hub.files[f"spaces/{SPACE}"] == contents(space_files(program))


def test_where_the_hub_refuses_the_hardware_no_file_has_changed(hub, program):
    deploy(space_files(program), SPACE)
    old = dict(hub.files[f"spaces/{SPACE}"])
    (program / "app.py").write_text("new")
    hub.refusals = {f"/api/spaces/{SPACE}/hardware": 402}
    with pytest.raises(HubError, match="asks for payment"):
        deploy(space_files(program), SPACE, hardware="cpu-upgrade")
    assert hub.files[f"spaces/{SPACE}"] == old


def test_a_new_space_is_checked_for_the_hardware_that_it_gets(hub, program):
    text = (program / "README.md").read_text()
    (program / "README.md").write_text(text.replace("3.12.12", "3.13"))
    with pytest.raises(InputError, match="for --hardware zero"):
        deploy(space_files(program), SPACE)
    assert hub.files == {}
    deploy(space_files(program), SPACE, hardware="cpu")
    assert not deploy(space_files(program), SPACE).is_new  # on the hardware that it has, which has that Python


def test_a_commit_made_during_the_upload_is_not_overwritten(hub, program, monkeypatch):
    deploy(space_files(program), SPACE)
    monkeypatch.setattr(hub, "sha", lambda repo: "f" * 40 if hub.requests[-1][1].endswith("/main") else "e" * 40)
    with pytest.raises(HubError, match="a commit has happened since"):
        deploy(space_files(program), SPACE)


def test_a_space_of_another_program_is_not_overwritten(hub, program):
    hub.files["spaces/me/chat"] = {"app.py": b"chat", "README.md": b"", ".gitattributes": b""}
    with pytest.raises(InputError, match=r"'me/chat' holds another program \(app.py\)"):
        deploy(space_files(program), "me/chat")
    assert hub.files["spaces/me/chat"]["app.py"] == b"chat"


def test_where_a_plan_is_needed_the_message_says_what_each_hardware_costs(hub, program):
    hub.refusals = {"/api/repos/create": 402}
    with pytest.raises(HubError) as error:
        deploy(space_files(program), SPACE, hardware="cpu")
    assert all(each.costs in str(error.value) for each in HARDWARE.values())


@pytest.mark.parametrize("hardware", HARDWARE)
def test_a_dry_run_prints_every_file_and_the_costs_and_sends_nothing(hub, hardware, capsys):
    assert main(["deploy", SPACE, "--hardware", hardware, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert hub.requests == []
    assert [line.split()[1] for line in lines[:-3]] == [file.name for file in space_files()]
    assert [int(line.split()[0].replace(",", "")) for line in lines[:-3]] == [file.size for file in space_files()]
    assert lines[-2] == HARDWARE[hardware].costs


BAD_SETTINGS = {
    "title: Attention Lab": ("title:", "title"),
    "colorFrom: blue": ("colorFrom: teal", "colorFrom='teal'"),
    "sdk: gradio": ("sdk: streamlit", "sdk='streamlit'"),
    "sdk_version: 6.31.0": ("sdk_version: 6.30.0", "must be the version in requirements.txt"),
    'python_version: "3.12.12"': ('python_version: "3.11"', "must be 3.10.13 or 3.12.12 for --hardware zero"),
    "app_file: app.py": ("app_file: main.py", "app_file='main.py' must be a file of the Space"),
    "short_description: Train": ("short_description: Train and train and train", "at most 60 characters"),
    "---\ntitle": ("title", "must begin with the settings"),
}


@pytest.mark.parametrize("old", BAD_SETTINGS)
def test_settings_that_the_hub_would_refuse_are_refused_before_anything_is_sent(hub, program, old):
    new, message = BAD_SETTINGS[old]
    text = (program / "README.md").read_text()
    assert old in text
    (program / "README.md").write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        deploy(space_files(program), SPACE, hardware="zero")
    assert hub.requests == []


@pytest.mark.parametrize("name", ["lab", "me/lab.git", "me/a--b", "me/..", "me/lab-", "https://x/y"])
def test_a_name_that_the_hub_allows_for_no_space_is_refused(hub, program, name):
    with pytest.raises(InputError, match="must look like user/name"):
        check_space(name, space_files(program), "zero")


def test_a_folder_that_is_no_checkout_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"has no app\.py"):
        space_files(tmp_path)


def test_a_site_is_uploaded_to_a_static_space_and_replaced(hub, tmp_path):
    site = tmp_path / "site"
    for name in ("index.html", "site.json", "labs/index.json.gz", "graphs/old.onnx.gz"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(name)
    files = site_files(site, tmp_path / "README.md")
    assert "sdk: static" in (tmp_path / "README.md").read_text()
    done = deploy_site(files, SPACE)
    assert done.is_new
    assert hub.files[f"spaces/{SPACE}"] == contents(files) | {".gitattributes": b""}
    (site / "graphs/old.onnx.gz").rename(site / "graphs/new.onnx.gz")
    done = deploy_site(site_files(site, tmp_path / "README.md"), SPACE)
    assert (done.is_new, done.deleted) == (False, ("graphs/old.onnx.gz",))


def test_a_site_does_not_replace_the_program(hub, program, tmp_path):
    deploy(space_files(program), SPACE)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("site")
    with pytest.raises(InputError, match="holds another program"):
        deploy_site(site_files(tmp_path / "site", tmp_path / "README.md"), SPACE)
