"""What was read from a file is remembered until the file changes."""

import os

import pytest

from core.storage.cache import FileCache


@pytest.fixture
def counted(tmp_path):
    """A cache of two files' text, and the names it had to read."""
    cache: FileCache[str] = FileCache(2)
    made: list[str] = []

    def get(name: str) -> str:
        path = tmp_path / name
        return cache.get(path, lambda: made.append(name) or (path.read_text() if path.exists() else "none"))

    return get, made


def test_a_file_is_read_once_until_it_is_replaced_or_grows(tmp_path, counted):
    get, made = counted
    (tmp_path / "a").write_text("one")
    assert [get("a"), get("a")] == ["one", "one"]
    assert made == ["a"]
    (tmp_path / "new").write_text("two")
    stamp = (tmp_path / "a").stat().st_mtime_ns
    os.utime(tmp_path / "new", ns=(stamp, stamp))
    (tmp_path / "new").replace(tmp_path / "a")  # of the same size and age
    assert get("a") == "two"
    with (tmp_path / "a").open("a") as file:
        file.write("!")
    assert [get("a"), get("a")] == ["two!", "two!"]
    assert made == ["a"] * 3


def test_a_file_that_appears_or_goes_is_noticed(tmp_path, counted):
    get, _ = counted
    assert get("a") == "none"
    (tmp_path / "a").write_text("one")
    assert get("a") == "one"
    (tmp_path / "a").unlink()
    assert get("a") == "none"


def test_the_least_recently_used_is_dropped_first(tmp_path, counted):
    get, made = counted
    for name in "abc":
        (tmp_path / name).write_text(name)
    for name in "abacab":
        assert get(name) == name
    assert made == ["a", "b", "c", "b"]


def test_an_error_is_not_remembered(tmp_path):
    cache: FileCache[str] = FileCache(2)
    (tmp_path / "a").write_text("one")
    with pytest.raises(ZeroDivisionError):
        cache.get(tmp_path / "a", lambda: str(1 // 0))
    assert cache.get(tmp_path / "a", lambda: "read") == "read"
