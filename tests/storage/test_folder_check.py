"""A folder of runs that cannot keep the promises of their files is refused at the start, by name and operation."""

import errno
import fcntl
import io
import os
import re
import stat
from pathlib import Path

import pytest

import app
from core.storage.errors import InputError
from core.storage.folder_check import check_folder


def failing(error: int, when=lambda *_: True):
    """Return a replacement of a function that fails where ``when`` says so."""

    def replacement(genuine):
        def call(*arguments, **options):
            if when(*arguments):
                raise OSError(error, os.strerror(error))
            return genuine(*arguments, **options)

        return call

    return replacement


def is_folder(descriptor: int) -> bool:
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


def frozen(genuine):
    """Return a ``stat`` of a file system that keeps a folder's time as it was set."""

    def call(path, **options):
        status = genuine(path, **options)
        return os.stat_result((*status[:8], 10**9, *status[9:])) if Path(path).name.startswith(".check.") else status

    return call


FAULTS = {
    "create a folder": (os, "mkdir", failing(errno.EIO)),
    "save a file to the disk (fsync)": (os, "fsync", failing(errno.EINVAL, lambda file: not is_folder(file))),
    "replace a file by renaming another": (os, "replace", failing(errno.EPERM)),
    "replace a file by renaming another ": (os, "replace", lambda genuine: lambda first, second: os.unlink(first)),
    "show that a file in a folder was replaced": (os, "stat", frozen),
    "save a folder to the disk (fsync)": (os, "fsync", failing(errno.EINVAL, is_folder)),
    "append to a file": (io, "open", failing(errno.EPERM, lambda path, mode="r", *_: "a" in mode)),
    "rename a folder": (os, "rename", failing(errno.EXDEV)),
    "lock a file": (fcntl, "flock", failing(errno.ENOTSUP)),
    "lock a file ": (fcntl, "flock", lambda genuine: lambda *_: None),
    "lock a file  ": (fcntl, "flock", failing(errno.ENOSYS)),
}


def test_a_folder_on_a_disk_is_taken_and_left_as_it_was(tmp_path):
    assert check_folder(tmp_path / "new" / "runs") == ""
    assert os.listdir(tmp_path / "new" / "runs") == []


@pytest.mark.filterwarnings("ignore:flock not supported")
@pytest.mark.parametrize("operation", FAULTS)
def test_a_folder_that_lacks_an_operation_is_refused_with_its_name(tmp_path, monkeypatch, operation):
    module, name, replacement = FAULTS[operation]
    with monkeypatch.context() as patch:
        patch.setattr(module, name, replacement(getattr(module, name)))
        with pytest.raises(InputError, match=re.escape(f"it cannot {operation.strip()} (")) as refused:
            check_folder(tmp_path)
    assert str(refused.value).startswith(f"checkpoints={str(tmp_path)!r} cannot hold runs")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("error", "message"), [(errno.EROFS, "is not writable"), (errno.ENOSPC, "is full")])
def test_a_folder_that_is_read_only_or_full_still_shows_its_runs(tmp_path, monkeypatch, error, message):
    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", failing(error, lambda path, *_: ".check." in str(path))(os.mkdir))
        assert message in check_folder(tmp_path)


def test_the_app_refuses_such_a_folder_before_the_page_is_built(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(os, "fsync", failing(errno.EINVAL)(os.fsync))
    monkeypatch.setattr("sys.argv", ["app.py", "--checkpoints", str(tmp_path)])
    for name in ("raise_file_limit", "log_to_stderr", "sys.setswitchinterval", "torch.set_num_threads"):
        monkeypatch.setattr(f"app.{name}", lambda *_, **__: None)
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "127.0.0.1")  # set by ``main`` otherwise
    monkeypatch.setattr(app, "add_shipped_runs", lambda root: pytest.fail("the folder was written to"))
    with pytest.raises(SystemExit):
        app.main()
    assert "cannot save a file to the disk (fsync)" in capsys.readouterr().err
