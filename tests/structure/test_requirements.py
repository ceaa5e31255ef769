"""The installed versions: one set of pins for all uses, within the ranges of the package and of a Space."""

import re
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
SPACE_EXTRAS = ("oauth", "mcp")  # what a Space installs Gradio with
PYTHONS = ("3.11", "3.12", "3.13")


def pins(name: str) -> dict[str, Requirement]:
    """Return the lines of a requirements file by package, without other files that it includes."""
    lines = [line.partition("#")[0].strip() for line in (REPOSITORY / name).read_text().splitlines()]
    parsed = [Requirement(line) for line in lines if line and not line.startswith("-")]
    return {each.name: each for each in parsed}


def version_of(pin: Requirement) -> str:
    """Return the version of a pin, which must name one and no range."""
    (specifier,) = pin.specifier
    assert specifier.operator == "==", pin
    return specifier.version


def ranges() -> dict[str, Requirement]:
    """Return the ranges of the package and of its extras."""
    lines = [*PACKAGE["dependencies"], *(line for extra in PACKAGE["optional-dependencies"].values() for line in extra)]
    return {each.name: each for each in map(Requirement, lines)}


def test_each_pin_lies_in_the_range_of_the_package_and_each_range_has_a_pin():
    pinned = pins("requirements.txt") | pins("requirements-extras.txt")
    assert pinned.keys() == ranges().keys()
    assert [name for name, pin in pinned.items() if version_of(pin) not in ranges()[name].specifier] == []
    assert {name: pin.extras for name, pin in pinned.items()} == {name: each.extras for name, each in ranges().items()}


def test_gradio_and_pytorch_are_pinned_without_known_vulnerabilities():
    pinned = pins("requirements.txt")
    assert version_of(pinned["gradio"]) in SpecifierSet(">=6.31")
    assert version_of(pinned["torch"]) in SpecifierSet(">=2.10")


def test_a_range_ends_before_the_next_incompatible_version():
    """So that a new major version of a package breaks no installation."""
    assert [name for name, each in ranges().items() if {s.operator for s in each.specifier} != {">=", "<"}] == []


def test_tests_and_linters_are_pinned_too():
    extras = pins("requirements-extras.txt")
    assert [
        str(pin) for pin in pins("requirements-dev.txt").values() if not pin.specifier and pin.name not in extras
    ] == []
    assert {"-r requirements.txt", "-c requirements-extras.txt"} <= set(
        (REPOSITORY / "requirements-dev.txt").read_text().splitlines()
    )


def test_the_pins_suit_what_gradio_asks_for_on_a_space():
    """A Space installs them in one command with gradio[oauth,mcp]; pip then refuses contradictions."""
    asked = [Requirement(line) for line in requires("gradio")]
    environments = [{"extra": extra, "python_version": python} for extra in ("", *SPACE_EXTRAS) for python in PYTHONS]
    applying = [each for each in asked if not each.marker or any(each.marker.evaluate(env) for env in environments)]
    pinned = pins("requirements.txt")
    assert {"pydantic", "mcp"} <= {each.name for each in applying}
    shared = [each for each in applying if each.name in pinned]
    assert [str(each) for each in shared if version_of(pinned[each.name]) not in each.specifier] == []


def space_command() -> list[str]:
    """Return what pip installs in a Space, by the front matter of the README."""
    settings = yaml.safe_load((REPOSITORY / "README.md").read_text().split("---")[1])
    gradio = f"gradio[{','.join(SPACE_EXTRAS)}]=={settings['sdk_version']}"
    return ["-r", str(REPOSITORY / "requirements.txt"), gradio, "uvicorn>=0.14.0", "websockets", "spaces"]


def interpreter(version: str) -> str | None:
    """Return a Python of this version, from the PATH or of pyenv."""
    candidates = [f"python{version}", *sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))]
    for candidate in candidates:
        try:
            found = subprocess.run([candidate, "-V"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            continue
        if re.match(rf"Python {re.escape(version)}\.", found):
            return candidate
    return None


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_pip_resolves_what_a_space_installs(version: str, tmp_path: Path):
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    command = [tmp_path / "venv" / "bin" / "python", "-m", "pip", "install", "--dry-run", *space_command()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
