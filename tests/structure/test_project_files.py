"""The files that GitHub and editors read: they parse, call what exists, and agree with the program."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

import core

REPOSITORY = Path(__file__).resolve().parents[2]
HOSTED = sorted((REPOSITORY / ".github").rglob("*.yml"))
WORKFLOWS = [path for path in HOSTED if path.parent.name == "workflows"]
FORMS = [path for path in HOSTED if path.parent.name == "ISSUE_TEMPLATE"]


def name(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", WORKFLOWS, ids=name)
def test_a_workflow_has_read_access_only(path: Path):
    assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}


def test_both_scripts_of_the_project_have_a_workflow():
    called = {line.split()[-1] for path in WORKFLOWS for line in path.read_text().splitlines() if "run: bash" in line}
    assert called == {f".ci/{path.name}" for path in (REPOSITORY / ".ci").iterdir()}


@pytest.mark.parametrize("path", FORMS, ids=name)
def test_an_issue_form_has_what_github_requires(path: Path):
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= form.keys()
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert fields
    assert all(field["id"] and field["attributes"]["label"] for field in fields)


def test_dependabot_watches_packages_and_actions():
    updates = yaml.safe_load((REPOSITORY / ".github/dependabot.yml").read_text())["updates"]
    assert {update["package-ecosystem"] for update in updates} == {"pip", "github-actions"}


def test_the_citation_names_the_current_version_and_the_license():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == core.__version__
    assert citation["license"] == "MIT"


def test_the_changelog_begins_with_the_current_version():
    headings = [line for line in (REPOSITORY / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert headings[0] == f"## {core.__version__}"


def test_the_development_container_installs_the_pinned_tools():
    container = json.loads((REPOSITORY / ".devcontainer/devcontainer.json").read_text())
    *_, file = container["postCreateCommand"].split()
    assert (REPOSITORY / file).is_file()
    assert container["forwardPorts"] == [7860]


def test_no_file_has_the_marks_of_an_unfinished_merge():
    marks = ["-e", "^<<<<<<< ", "-e", "^>>>>>>> "]
    found = subprocess.run(
        ["git", "grep", "-I", "-l", *marks], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if found.returncode > 1:
        pytest.skip("no git repository")
    assert found.stdout == ""
