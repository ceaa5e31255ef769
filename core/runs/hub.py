"""Push runs to the Hugging Face Hub, or a server with the same API, as packages; pull packages as runs.

Endpoint and credentials are found by huggingface_hub: ``HF_ENDPOINT``, ``HF_TOKEN``, or the login stored by
``hf auth login``. None of them is read or stored here.
"""

import re
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from core.runs.export import CARD, PRESET, VOCABULARY, WEIGHTS, package_files
from core.runs.folder import PAIRS, RunFolder
from core.runs.importing import import_run
from core.storage.error_messages import short_repr
from core.storage.errors import InputError, LabError
from core.storage.optional_imports import require_package

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


class HubError(LabError):
    """The Hub cannot be reached, or it refused the request; the message says why."""


def push(folder: RunFolder, repo: str, *, with_data: bool = False, public: bool = False) -> str:
    """Upload a run's package to a model repository, created if missing, and return its URL.

    Args:
        repo: such as ``user/reverse``.
        with_data: also upload the user's own pairs; without it, a run trained on such pairs is refused.
        public: make a new repository public.

    Raises:
        HubError: the upload failed.
        InputError: the repository name is not valid, or the run has pairs and ``with_data`` is not set.
    """
    hub, name = hub_package(), checked_name(repo)
    files = package_files(folder)
    if PAIRS in files and not with_data:
        raise InputError(
            f"run={folder.name!r} was trained on your own pairs and cannot be opened without them; "
            "--with-data uploads them too"
        )
    with one_line_errors(repo):
        api = hub.HfApi()
        api.create_repo(name, private=not public, exist_ok=True)
        operations = [hub.CommitOperationAdd(path, content) for path, content in files.items()]
        commit = api.create_commit(name, operations, commit_message=f"Attention Lab run {folder.name}")
    return str(commit.repo_url)


def pull(root: Path, repo: str, *, name: str | None = None, revision: str | None = None) -> RunFolder:
    """Download a repository's package and import it as a run, with all checks of ``import_run``.

    Args:
        name: of the new run, see ``RunFolder.create``.
        revision: branch, tag or commit; None is the default branch.

    Raises:
        HubError: the download failed.
        LabError: the repository holds no valid package.
    """
    hub, checked = hub_package(), checked_name(repo)
    with tempfile.TemporaryDirectory() as temporary:
        with one_line_errors(repo):
            available = set(hub.HfApi().list_repo_files(checked, revision=revision))
            for file in (WEIGHTS, PRESET, VOCABULARY, CARD, PAIRS):
                if file in available:
                    hub.hf_hub_download(checked, file, revision=revision, local_dir=temporary)
        return import_run(root, Path(temporary), name=name)


def hub_package() -> ModuleType:
    """Return ``huggingface_hub``.

    Raises:
        LabError: it is not installed.
    """
    return require_package("huggingface_hub", purpose="the Hub")


def checked_name(repo: str) -> str:
    """Return the name of a repository, if it is one.

    Raises:
        InputError: it does not look like ``user/name``, or the Hub allows no such name.
    """
    name = repo.partition("/")[2]
    if not _NAME.fullmatch(repo) or "--" in repo or ".." in repo or name.endswith((".git", ".ipynb", "-", ".")):
        raise InputError(
            f"repo={short_repr(repo)} must look like user/name, of letters, digits, '-', '_' and '.', at most 96 each, "
            "without '--' and '..', and not end with '-', '.', '.git' or '.ipynb'"
        )
    return repo


@contextmanager
def one_line_errors(repo: str) -> Iterator[None]:
    """Turn any failure on the way to the Hub into a HubError of one line; errors with a message for the user stay."""
    try:
        yield
    except LabError:
        raise
    except Exception as error:
        if is_unreachable(error):
            address = hub_package().constants.ENDPOINT
            raise HubError(
                f"repo={repo!r}: the Hub at {address} cannot be reached; "
                "check the network, and HF_ENDPOINT if it is set"
            ) from error
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        said = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
        raise HubError(f"repo={repo!r}: {said[:300]}") from error


def is_unreachable(error: BaseException | None) -> bool:
    """Whether an error was caused by a network: no address for a name, no connection, a broken one, or no answer."""
    while error is not None:
        if isinstance(error, socket.gaierror | ConnectionError | TimeoutError):
            return True
        error = error.__cause__ or error.__context__
    return False
