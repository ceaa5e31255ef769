"""Create and update a Space of the Hugging Face Hub that serves the page, with the files of this checkout.

The upload is one commit: the Space has all files of the new version or all of the old one, whatever interrupts it.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.runs.folder import DEFAULT_ROOT
from core.runs.hub import HubError, checked_name, hub_package, one_line_errors
from core.runs.shipped import shipped_folders
from core.storage import bounded_yaml
from core.storage.bounded_yaml import BoundedYamlError
from core.storage.errors import InputError
from core.storage.validation_errors import first_problem

REPOSITORY = DEFAULT_ROOT.parent
FILES = ("app.py", "requirements.txt", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
ATTRIBUTES = "core/runs/space.gitattributes"  # becomes .gitattributes of the Space
FOLDERS = ("core", "ui", "presets", "docs")
MARKER = "core/models/attention.py"  # a Space that has files, but not this one, is another program's
SITE_MARKER = "site.json"  # of a static Space, likewise
SITE_FOLDERS = ("components", "graphs", "labs", "lessons", "ort", "site", "web")
STATIC_README = """# Attention Lab

This Space is a static site that `python -m core site` wrote: models are trained and inspected in the visitor's browser.
"""
MAX_COMMIT_BYTES = 1_000_000_000  # of one commit, by huggingface_hub's documentation of create_commit
_BINARY_SAMPLE = 8_000  # bytes; git looks for a NUL in as many

Color = Literal["red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"]


@dataclass(frozen=True)
class Hardware:
    """What a Space runs on.

    Attributes:
        flavor: the Hub's name of it.
        costs: who pays what, in sentences.
        pythons: versions of Python that it has; empty for any.
    """

    flavor: str
    costs: str
    pythons: tuple[str, ...] = ()


HARDWARE = {
    "zero": Hardware(
        flavor="zero-a10g",
        costs="ZeroGPU: free for its owner and its visitors. A free account that is 30 days old and has a verified "
        "email address can have 2 such Spaces, a PRO account 10; an organization needs a Team or Enterprise plan. Runs "
        "train on the CPU, so visitors spend no GPU quota.",
        pythons=("3.10.13", "3.12.12"),
    ),
    "cpu": Hardware(
        flavor="cpu-basic",
        costs="CPU Basic, 2 cores and 16 GB: no price per hour, but its owner needs a PRO, Team or Enterprise plan. "
        "Visitors pay nothing. It sleeps after 48 hours without visitors.",
    ),
    "cpu-upgrade": Hardware(
        flavor="cpu-upgrade",
        costs="CPU Upgrade, 8 cores and 32 GB: its owner pays $0.03 per hour from prepaid credits and needs no plan. "
        "Visitors pay nothing. It runs, and is paid for, until its owner pauses it or sets a sleep time.",
    ),
}
"""By the value of ``--hardware``. Prices and plans are those of the Hub's documentation in August 2026."""

STATIC_COSTS = (
    "A static Space: free for its owner and its visitors, without a plan. It never sleeps, since nothing runs there: "
    "models are trained in the visitor's browser."
)


class FrontMatter(BaseModel):
    """The settings at the top of README.md, by the rules of the Hub's configuration reference."""

    model_config = ConfigDict(extra="allow", strict=True)

    title: str = Field(min_length=1)
    emoji: str = Field(min_length=1, max_length=8)
    colorFrom: Color  # noqa: N815 - the Hub's name
    colorTo: Color  # noqa: N815 - the Hub's name
    sdk: Literal["gradio"]
    sdk_version: str = Field(pattern=r"^\d+\.\d+\.\d+$")
    python_version: str = Field(pattern=r"^3\.\d+(\.\d+)?$")
    app_file: str
    short_description: str = Field("", max_length=60)


@dataclass(frozen=True)
class SpaceFile:
    """A file to upload.

    Attributes:
        name: its path in the Space, with ``/``.
        path: where it is on this machine.
        size: in bytes.
        is_binary: whether the Hub keeps it in its storage for large files (Xet) instead of in git.
    """

    name: str
    path: Path
    size: int
    is_binary: bool


@dataclass(frozen=True)
class Deployment:
    """What an upload did.

    Attributes:
        address: of the Space.
        is_new: whether the Space was created.
        deleted: names of files of the last version that this one no longer has.
    """

    address: str
    is_new: bool
    deleted: tuple[str, ...]


def space_files(repository: Path = REPOSITORY) -> list[SpaceFile]:
    """Return the files of a Space, by name: the program, its presets, its documentation and the runs that ship.

    Your own runs, tests and hidden files are not among them, and neither are links.

    Raises:
        InputError: the folder is no checkout of this program.
    """
    if missing := [name for name in (*FILES, *FOLDERS) if not (repository / name).exists()]:
        raise InputError(f"deploy uploads a checkout of this program; {str(repository)!r} has no {', '.join(missing)}")
    paths = [repository / name for name in FILES]
    for folder in (*(repository / name for name in FOLDERS), *shipped_folders(repository / "checkpoints")):
        paths += _files_in(folder)
    files = [_described(path, path.relative_to(repository).as_posix()) for path in paths]
    files.append(_described(repository / ATTRIBUTES, ".gitattributes"))
    return sorted(files, key=lambda file: file.name)


def check_space(space: str, files: list[SpaceFile], hardware: str | None) -> FrontMatter:
    """Check what the Hub would refuse, or what would keep the Space from starting, before anything is uploaded.

    Args:
        hardware: a key of ``HARDWARE``; None is that of an existing Space, which is not known here.

    Raises:
        InputError: the name is not valid, the front matter of README.md breaks a rule, or the files are too large for
            one commit.
    """
    checked_name(space)
    paths = {file.name: file.path for file in files}
    settings = _front_matter(paths["README.md"].read_text(encoding="utf-8"))
    pinned = f"{settings.sdk}[mcp]=={settings.sdk_version}"
    if pinned not in paths["requirements.txt"].read_text(encoding="utf-8").splitlines():
        raise InputError(f"README.md: sdk_version={settings.sdk_version!r} must be the version in requirements.txt")
    if settings.app_file not in paths:
        raise InputError(f"README.md: app_file={settings.app_file!r} must be a file of the Space")
    pythons = HARDWARE[hardware].pythons if hardware else ()
    if pythons and settings.python_version not in pythons:
        raise InputError(
            f"README.md: python_version={settings.python_version!r} must be {' or '.join(pythons)} for "
            f"--hardware {hardware}"
        )
    if (total := sum(file.size for file in files)) > MAX_COMMIT_BYTES:
        raise InputError(
            f"the files have {total:,} bytes together; the Hub takes at most {MAX_COMMIT_BYTES:,} in a commit"
        )
    return settings


def deploy(files: list[SpaceFile], space: str, *, hardware: str | None = None, private: bool = False) -> Deployment:
    """Upload the files to a Space, which is created if it does not exist; no secret or variable is set.

    Args:
        space: such as ``user/attention-lab``.
        hardware: a key of ``HARDWARE``; None is ZeroGPU for a new Space, and leaves that of another as it is.
        private: let only its owner see a new Space.

    Raises:
        HubError: the Hub cannot be reached, or it refuses the Space, its hardware or its files; no file has changed.
        InputError: the Space holds another program, or see ``check_space``.
    """
    settings = check_space(space, files, hardware)
    hub = hub_package()
    with one_line_errors(space), _plans_explained(hub, space):
        api = hub.HfApi()
        is_new = not api.repo_exists(space, repo_type="space")
        if is_new:
            hardware = hardware or "zero"
            check_space(space, files, hardware)
            flavor = HARDWARE[hardware].flavor
            api.create_repo(
                space, repo_type="space", space_sdk=settings.sdk, space_hardware=flavor, private=private, exist_ok=True
            )
        elif hardware is not None:
            api.request_space_hardware(space, HARDWARE[hardware].flavor)
        return _upload(hub, files, space, is_new=is_new, marker=MARKER, folders=(*FOLDERS, "checkpoints"))


def site_files(folder: Path, readme: Path) -> list[SpaceFile]:
    """Return the files of a static Space, by name: a site that ``python -m core site`` wrote, and its settings.

    Args:
        readme: where the file with the settings is written.
    """
    settings = _front_matter((REPOSITORY / "README.md").read_text(encoding="utf-8"))
    shown = {"title": settings.title, "emoji": settings.emoji, "short_description": settings.short_description}
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in shown.items()]
    lines += [f"colorFrom: {settings.colorFrom}", f"colorTo: {settings.colorTo}", "sdk: static", "license: mit"]
    readme.write_text("\n".join(["---", *lines, "---", "", STATIC_README]), encoding="utf-8")
    files = [_described(path, path.relative_to(folder).as_posix()) for path in _files_in(folder)]
    return sorted([*files, _described(readme, "README.md")], key=lambda file: file.name)


def deploy_site(files: list[SpaceFile], space: str, *, private: bool = False) -> Deployment:
    """Upload a site to a static Space, which is created if it does not exist.

    Args:
        files: see ``site_files``.
        private: let only its owner see a new Space.

    Raises:
        HubError: the Hub cannot be reached, or it refuses the Space or its files; no file has changed.
        InputError: the Space holds something else, or its name is not valid.
    """
    checked_name(space)
    hub = hub_package()
    with one_line_errors(space):
        api = hub.HfApi()
        is_new = not api.repo_exists(space, repo_type="space")
        if is_new:
            api.create_repo(space, repo_type="space", space_sdk="static", private=private, exist_ok=True)
        return _upload(hub, files, space, is_new=is_new, marker=SITE_MARKER, folders=SITE_FOLDERS)


def _upload(
    hub: Any, files: list[SpaceFile], space: str, *, is_new: bool, marker: str, folders: tuple[str, ...]
) -> Deployment:
    """Replace the files of a Space in one commit."""
    api = hub.HfApi()
    info = api.space_info(space)
    present = {each.rfilename for each in info.siblings or ()}
    deleted = _outdated(present, files, space, marker, folders)
    operations = [hub.CommitOperationAdd(file.name, file.path) for file in files]
    operations += [hub.CommitOperationDelete(file) for file in deleted]
    commit = api.create_commit(
        space, operations, repo_type="space", commit_message="Deploy Attention Lab", parent_commit=info.sha
    )
    return Deployment(str(commit.repo_url), is_new, deleted)


@contextmanager
def _plans_explained(hub: Any, space: str) -> Iterator[None]:
    try:
        yield
    except hub.errors.HfHubHTTPError as error:
        if error.response.status_code != HTTPStatus.PAYMENT_REQUIRED:
            raise
        raise HubError(
            f"space={space!r}: the Hub asks for payment (402). " + " ".join(each.costs for each in HARDWARE.values())
        ) from error


def _outdated(
    present: Iterable[str], files: list[SpaceFile], space: str, marker: str, folders: tuple[str, ...]
) -> tuple[str, ...]:
    """Return which files of a Space belong to a former version of the program.

    Args:
        marker: a file that every version has.
        folders: those that only the program fills.

    Raises:
        InputError: they belong to another program, which would be overwritten.
    """
    names = {file.name for file in files}
    foreign = set(present) - {"README.md", ".gitattributes"}
    if foreign and marker not in foreign:
        raise InputError(
            f"space={space!r} holds another program ({', '.join(sorted(foreign)[:3])}): choose another name, or delete "
            "that Space"
        )
    ours = tuple(f"{folder}/" for folder in folders)
    return tuple(sorted(name for name in present if name.startswith(ours) and name not in names))


def _front_matter(text: str) -> FrontMatter:
    parts = text.split("---\n", 2)
    if len(parts) < 3 or parts[0]:
        raise InputError("README.md must begin with the settings of a Space, between two lines of ---")
    try:
        return FrontMatter.model_validate(bounded_yaml.load(parts[1]))
    except BoundedYamlError as error:
        raise InputError(f"README.md: {error}") from error
    except ValidationError as error:
        raise InputError(f"README.md: {first_problem(error)}") from error


def _files_in(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        is_hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
        if path.is_file() and not path.is_symlink() and not is_hidden and path.suffix != ".previous":
            yield path


def _described(path: Path, name: str) -> SpaceFile:
    with path.open("rb") as file:
        is_binary = b"\0" in file.read(_BINARY_SAMPLE)
    return SpaceFile(name, path, path.stat().st_size, is_binary)
