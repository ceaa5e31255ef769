"""Names and titles of runs: numbered, short enough, and readable; a title is any text that can be shown in one line."""

import itertools
import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.runs import RunError, RunFolder, RunInfo, other_titles
from core.runs.export import export_weights
from core.runs.importing import import_run, import_weights
from core.runs.names import MAX_TITLE_LENGTH, SECRET_LENGTH, default_title, new_names, unshortened_title
from core.storage.errors import InputError, LabError
from core.storage.tensor_file import read_header, read_tensors, serialize
from core.teaching.lessons import lesson_names

SUFFIX = "a1b2c3d4e5f6a1b2c3d4e5f6"
BIDI_OVERRIDE, LINE_SEPARATOR, ZERO_WIDTH_SPACE = "\u202e", "\u2028", "\u200b"


def first(stem: str, *used: str, **options) -> str:
    return next(new_names(stem, used, **options))


@pytest.fixture
def folder(root, tiny) -> RunFolder:
    return RunFolder.create(root, tiny, name="tiny-3", status="stopped")


# --- names ------------------------------------------------------------------------------------------------------


def test_the_number_is_one_more_than_the_largest_of_the_same_stem():
    assert first("tiny") == "tiny-1"
    assert first("tiny", "tiny-2", "tiny-7", "tiny") == "tiny-8"
    assert first("tiny", "tiny-gru-9", "small-9", "tiny-9-9", "tiny-09") == "tiny-1"
    assert first("tiny", f"tiny-4-{SUFFIX}") == "tiny-5"
    assert first("tiny", "tiny 4") == "tiny-5"  # the title that someone gave a run
    assert first("tiny", "tiny-" + "9" * 40) == "tiny-1"  # a name that someone gave, and not a number
    assert list(itertools.islice(new_names("tiny", ["tiny-1"]), 3)) == ["tiny-2", "tiny-3", "tiny-4"]


def test_what_is_named_like_something_else_has_no_number_at_first():
    assert first("pair", bare_first=True) == "pair"
    assert first("pair", "pair", bare_first=True) == "pair-2"
    assert first("pair", "pair", f"pair-2-{SUFFIX}", bare_first=True) == "pair-3"
    assert first("pair", secret=SUFFIX, bare_first=True) == f"pair-{SUFFIX}"


NAMES = st.from_regex(r"[a-z0-9][a-z0-9-]{0,47}", fullmatch=True)


@given(NAMES, st.integers(1, 1_100), st.sampled_from(["", SUFFIX]), st.booleans())
def test_the_next_name_is_valid_and_ends_with_the_next_number_and_the_secret(stem, number, secret, bare_first):
    options = {"secret": secret, "bare_first": bare_first}
    last = next(itertools.islice(new_names(stem, [], **options), number - 1, None))
    following = first(stem, last, **options)
    assert RunFolder(Path(), following).name == following
    assert following.endswith(f"-{number + 1}" + (f"-{secret}" if secret else ""))


def test_the_two_runs_of_every_lesson_have_different_names_and_titles_when_shortened():
    for lesson in lesson_names():
        right, broken = (f"{lesson}-{side}" for side in ("right", "broken"))
        names = [first(stem, secret=SUFFIX, bare_first=True) for stem in (right, broken)]
        titles = [
            unshortened_title(*each) or default_title(each[0]) for each in zip(names, (right, broken), strict=True)
        ]
        assert names[0] != names[1]
        assert titles == [right, broken]
    assert first("words-reversal-gru-as-told", secret=SUFFIX) == f"words-reversal-g-told-1-{SUFFIX}"


# --- titles -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("digits-reversal-3", "digits-reversal 3"),
        (f"digits-reversal-3-{SUFFIX}", "digits-reversal 3"),
        ("digits-reversal-shipped", "digits-reversal-shipped"),
        ("group-seed-0", "group-seed-0"),
        ("3", "3"),
        (f"mine-{SUFFIX}", "mine"),
    ],
)
def test_the_default_title_is_the_name_without_secret_and_with_its_number_apart(name, title):
    assert len(SUFFIX) == SECRET_LENGTH
    assert default_title(name) == title


def test_a_shortened_name_has_a_title_with_the_whole_stem():
    stem = "words-reversal-gru-as-told"
    assert unshortened_title(first(stem, secret=SUFFIX), stem) == f"{stem} 1"
    assert unshortened_title(first(stem, secret=SUFFIX, bare_first=True), stem) == stem
    assert unshortened_title(first("tiny", secret=SUFFIX), "tiny") is None


def test_a_title_is_stored_trimmed_and_the_folder_keeps_its_name(folder, root):
    assert folder.read_title() == "tiny 3"
    assert (
        folder.rename("  Without dropout, 2nd try 😀 ", others=[])
        == folder.read_title()
        == "Without dropout, 2nd try 😀"
    )
    assert os.listdir(root) == ["tiny-3"]
    assert json.loads((folder.path / "title.json").read_text())["title"] == "Without dropout, 2nd try 😀"


@pytest.mark.parametrize("empty", ["", "  \n", "tiny 3"])
def test_an_empty_title_restores_the_default(folder, empty):
    folder.rename("Mine", others=[])
    assert folder.rename(empty, others=[]) == folder.read_title() == "tiny 3"
    assert "title.json" not in os.listdir(folder.path)


@pytest.mark.parametrize(
    ("title", "message"),
    [
        ("x" * (MAX_TITLE_LENGTH + 1), "title has 61 characters; it must have 1 to 60"),
        ("two\nlines", r"U\+000A at position 4; line breaks and control characters are not allowed"),
        ("a\tb", r"U\+0009"),
        ("a\x00b", r"U\+0000"),
        (f"a{BIDI_OVERRIDE}b", r"U\+202E at position 2; invisible characters are not allowed"),
        ("a\u2066b", r"U\+2066"),
        (f"a{LINE_SEPARATOR}b", r"U\+2028"),
        ("a\ud800", r"U\+D800"),
        (ZERO_WIDTH_SPACE, r"U\+200B"),
        ("\u200d", "title has no visible character"),
    ],
)
def test_a_title_that_cannot_be_shown_in_one_line_is_refused(folder, title, message):
    with pytest.raises(InputError, match=message):
        folder.rename(title, others=[])
    assert folder.read_title() == "tiny 3"


def test_a_title_of_another_run_is_refused_however_it_is_written(folder):
    for same in ("Große Ä", " GROSSE  a\u0308 ", "große\u00a0Ä", "Gro\u200dße Ä"):
        with pytest.raises(InputError, match=r"another run has the title .* choose another one"):
            folder.rename(same, others=["Große Ä"])
    with pytest.raises(InputError, match="another run has the title 'tiny 3'"):
        folder.rename("", others=["tiny 3"])


def test_other_titles_are_those_of_the_same_folder(folder, root, tiny):
    RunFolder.create(root, tiny, name="b", status="stopped").rename("Second", others=[])
    RunFolder.create(root, tiny, name="c", status="stopped")
    assert sorted(other_titles(folder)) == ["Second", "c"]


def test_shipped_and_missing_runs_cannot_be_renamed(folder, root):
    folder.write_info(RunInfo(status="finished", shipped=True))
    with pytest.raises(RunError, match="run='tiny-3' is shipped with the program and cannot be renamed"):
        folder.rename("Mine", others=[])
    with pytest.raises(RunError, match="there is no such run"):
        RunFolder(root, "nowhere").rename("Mine", others=[])
    assert os.listdir(root) == ["tiny-3"]


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"\xff\xff", b"[" * 100_000),
        *(b'{"title": 3}', b'{"title": ""}', b'{"title": " a"}', b'{"title": "a\\nb"}', b'{"title": "\\u202e"}'),
        *(b'{"title": "a", "more": 1}', b'{"title": "' + b"x" * 61 + b'"}'),
    ],
)
def test_a_damaged_title_is_the_default_and_can_be_replaced(folder, content):
    (folder.path / "title.json").write_bytes(content)
    assert folder.read_title() == "tiny 3"
    assert folder.rename("Mine", others=[]) == folder.read_title() == "Mine"


def test_a_run_is_renamed_while_another_process_trains_it(folder):
    lock = folder.lock()
    try:
        folder.rename("Mine", others=[])
    finally:
        lock.release()
    folder.lock().release()  # which deletes temporary files of training
    assert folder.read_title() == "Mine"


@given(st.text(max_size=70) | st.text("ab \t\n\u202e\u200d\u00a0é😀", max_size=5))
def test_any_text_is_refused_or_comes_back_and_never_moves_the_folder(tmp_path_factory, tiny, text):
    root = tmp_path_factory.mktemp("titles")
    folder = RunFolder.create(root, tiny, status="stopped")
    try:
        folder.rename(text, others=["a"])
        expected = text.strip() or "tiny 1"
        assert not set("\n\t\u202e") & set(expected)
    except LabError:
        expected = "tiny 1"
    assert folder.read_title() == expected
    assert os.listdir(root) == ["tiny-1"]
    assert set(os.listdir(folder.path)) <= {"preset.yaml", "run.json", "title.json"}


def test_runs_created_at_the_same_time_have_different_numbers(root, tiny):
    names: list[str] = []
    started = threading.Barrier(6)

    def create() -> None:
        started.wait()
        names.append(RunFolder.create(root, tiny).name)

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names) == sorted(os.listdir(root)) == [f"tiny-{number}" for number in range(1, 7)]


# --- export and import ------------------------------------------------------------------------------------------


@pytest.fixture
def exported(trained, tmp_path):
    """The weight file of a run with a title."""
    folder = RunFolder(trained, "done")
    folder.rename("My best run", others=[])
    export_weights(folder, tmp_path / "run.safetensors")
    folder.rename("", others=[])
    return tmp_path / "run.safetensors"


def test_a_title_survives_export_and_import(exported, root, tmp_path):
    folder = import_run(root, exported)
    assert (folder.name, folder.read_title()) == ("tiny-1", "My best run")
    assert "title" not in read_tensors(folder.best)[1]  # only title.json has it, which renaming replaces
    folder.rename("", others=[])
    export_weights(folder, tmp_path / "again.safetensors")
    assert import_run(root, tmp_path / "again.safetensors").read_title() == "tiny 2"


@pytest.mark.parametrize("title", [3, None, ["x"], "", "a\nb", "x" * 61, f"{BIDI_OVERRIDE}x"])
def test_an_invalid_title_in_a_file_is_not_imported(exported, root, title):
    tensors, facts = read_tensors(exported)
    assert import_weights(root, bytes(serialize(tensors, facts | {"title": title}))).read_title() == "tiny 1"


def test_a_file_without_a_title_is_imported_under_its_default(trained, root):
    best = RunFolder(trained, "done").best
    with best.open("rb") as file:
        assert "title" not in read_header(file, "best").facts
    assert import_run(root, best).read_title() == "tiny 1"
