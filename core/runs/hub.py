"""Runs on the Hugging Face Hub, or on a server that speaks as it does: pushed as packages, pulled as runs.

Where the Hub is and who one is there, huggingface_hub finds out by itself: ``HF_ENDPOINT``, ``HF_TOKEN``, or what
``hf auth login`` has kept. Nothing of that is read or stored here.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from core.runs import RunFolder
from core.runs.folder import PAIRS
from core.runs.package import CARD, PRESET, VOCABULARY, WEIGHTS, import_any, packed_run
from core.storage.errors import InputError, LabError
from core.storage.optional_imports import require_package

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


class HubError(LabError):
    """The Hub cannot be reached, or refused; the message says why."""


def push(folder: RunFolder, repo: str, *, with_data: bool = False, public: bool = False) -> str:
    """Put a run's package into a repository of models, which is made if it is not there, and return its address.

    Args:
        repo: such as ``somebody/reverse``.
        with_data: send somebody's own pairs too; without them a run that learned such is refused.
        public: make a new repository one that everybody sees.

    Raises:
        HubError: it could not be done.
        InputError: the name is none, or the run's pairs would have to go too.
    """
    hub, name = _hub(), _checked(repo)
    files = packed_run(folder)
    if PAIRS in files and not with_data:
        raise InputError(
            f"run={folder.name!r} learned own pairs, without which nobody can open it; --with-data sends them too"
        )
    with _told(repo):
        api = hub.HfApi()
        api.create_repo(name, private=not public, exist_ok=True)
        operations = [hub.CommitOperationAdd(path, content) for path, content in files.items()]
        commit = api.create_commit(name, operations, commit_message=f"Attention Lab run {folder.name}")
    return str(commit.repo_url)


def pull(root: Path, repo: str, *, name: str | None = None, revision: str | None = None) -> RunFolder:
    """Make a run of a repository's package, after all the checks of ``packages.import_any``.

    Args:
        name: of the new run; None makes up a free one.
        revision: branch, tag or commit; None is the newest.

    Raises:
        HubError: it could not be fetched.
        LabError: what is there is no sound package.
    """
    hub, checked = _hub(), _checked(repo)
    with tempfile.TemporaryDirectory() as place:
        with _told(repo):
            there = set(hub.HfApi().list_repo_files(checked, revision=revision))
            for file in (WEIGHTS, PRESET, VOCABULARY, CARD, PAIRS):
                if file in there:
                    hub.hf_hub_download(checked, file, revision=revision, local_dir=place)
        return import_any(root, Path(place), name=name)


def _hub() -> ModuleType:
    return require_package("huggingface_hub", purpose="the Hub")


def _checked(repo: str) -> str:
    if not _NAME.fullmatch(repo):
        raise InputError(f"repo={repo[:60]!r} must look like somebody/name")
    return repo


@contextmanager
def _told(repo: str) -> Iterator[None]:
    """Say what went wrong on the way to the Hub in one line."""
    try:
        yield
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise HubError(f"repo={repo!r}: {(lines or [type(error).__name__])[0][:300]}") from error
