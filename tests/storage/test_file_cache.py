"""FileCache: values are cached until the file changes."""

import os

import pytest

from core.storage.cache import FileCache


@pytest.fixture
def cached_reader(tmp_path):
    """A function that reads files through a cache of size 2, and the names of the files it had to read."""
    cache: FileCache[str] = FileCache(2)
    loaded: list[str] = []

    def get(name: str) -> str:
        path = tmp_path / name
        return cache.get(path, lambda: loaded.append(name) or (path.read_text() if path.exists() else "none"))

    return get, loaded


def test_a_file_is_read_again_only_after_it_was_replaced_or_extended(tmp_path, cached_reader):
    get, loaded = cached_reader
    (tmp_path / "a").write_text("one")
    assert [get("a"), get("a")] == ["one", "one"]
    assert loaded == ["a"]
    (tmp_path / "new").write_text("two")
    stamp = (tmp_path / "a").stat().st_mtime_ns
    os.utime(tmp_path / "new", ns=(stamp, stamp))
    (tmp_path / "new").replace(tmp_path / "a")  # same size and modification time, another inode
    assert get("a") == "two"
    with (tmp_path / "a").open("a") as file:
        file.write("!")
    assert [get("a"), get("a")] == ["two!", "two!"]
    assert loaded == ["a"] * 3


def test_created_and_deleted_files_are_detected(tmp_path, cached_reader):
    get, _ = cached_reader
    assert get("a") == "none"
    (tmp_path / "a").write_text("one")
    assert get("a") == "one"
    (tmp_path / "a").unlink()
    assert get("a") == "none"


def test_the_least_recently_used_value_is_evicted(tmp_path, cached_reader):
    get, loaded = cached_reader
    for name in "abc":
        (tmp_path / name).write_text(name)
    for name in "abacab":
        assert get(name) == name
    assert loaded == ["a", "b", "c", "b"]


def test_an_exception_is_not_cached(tmp_path):
    cache: FileCache[str] = FileCache(2)
    (tmp_path / "a").write_text("one")
    with pytest.raises(ZeroDivisionError):
        cache.get(tmp_path / "a", lambda: str(1 // 0))
    assert cache.get(tmp_path / "a", lambda: "read") == "read"


def test_the_oldest_values_give_way_to_large_files_but_the_latest_stays(tmp_path):
    cache, loads = FileCache(8, max_bytes=100), []
    for name, size in (("a", 40), ("b", 40), ("c", 200), ("a", 40), ("c", 200)):
        path = tmp_path / name
        if not path.exists():
            path.write_bytes(bytes(size))
        cache.get(path, lambda name=name: loads.append(name))
    assert loads == ["a", "b", "c", "a", "c"]  # c alone exceeds the limit, so that nothing else stays beside it
    small = FileCache(8, max_bytes=100)
    for name in ("a", "b", "a", "b"):
        small.get(tmp_path / name, lambda name=name: loads.append(name))
    assert loads[5:] == ["a", "b"]
