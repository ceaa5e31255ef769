"""Import of own pairs: file formats, skipped rows and their reasons, and files that are refused."""

import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config import NAME_PATTERN, preset_names
from core.storage.errors import InputError
from core.tasks.ingest import Row, histogram, ingest_pairs, preset_name_for, read_pairs, summary_lines
from core.tasks.ingest.lines import MAX_LINE_BYTES, read_lines

GOOD = [(f"s{number}", f"t{number % 3}") for number in range(12)]
CHARACTERS = ("character", "character")


def rows_of(tmp_path, content: str | bytes, name: str = "pairs.tsv", **settings) -> list[Row]:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_pairs(path, **settings))


def ingest(tmp_path, content: str | bytes, *, kinds=CHARACTERS, test: str = "", **settings):
    rows = rows_of(tmp_path, content)
    held_out = [row._replace(split="test", file="test file, ") for row in rows_of(tmp_path, test)] if test else ()
    return ingest_pairs(rows, tmp_path / "out.tsv", kinds=kinds, held_out_rows=held_out, **settings)


def written(tmp_path) -> list[list[str]]:
    return [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]


def tsv(pairs) -> str:
    return "".join(f"{source}\t{target}\n" for source, target in pairs)


# --- file formats ------------------------------------------------------------------------------------------------


def test_all_formats_give_the_same_pairs(tmp_path):
    pairs = [("a b", "c"), ('say "hi", you', "x, y"), ("é", "ß")]
    quoted = "".join('"{}","{}"\n'.format(*(side.replace('"', '""') for side in pair)) for pair in pairs)
    objects = "".join(json.dumps({"source": source, "target": target}) + "\n" for source, target in pairs)
    lists = "".join(json.dumps(pair) + "\n\n" for pair in pairs)
    (tmp_path / "answers").write_text("".join(f"{target}\n" for _, target in pairs))
    for rows in (
        rows_of(tmp_path, tsv(pairs)),
        rows_of(tmp_path, "source\ttarget\n" + tsv(pairs)),
        rows_of(tmp_path, quoted, "pairs.csv"),
        rows_of(tmp_path, objects, "pairs.jsonl"),
        rows_of(tmp_path, lists, "pairs"),
        rows_of(tmp_path, json.dumps(pairs), "pairs.json"),
        rows_of(tmp_path, json.dumps({"version": 1, "data": pairs}), "pairs.json"),
        rows_of(tmp_path, gzip.compress(tsv(pairs).encode()), "pairs.tsv.gz"),
        rows_of(tmp_path, "".join(f"{source}\n" for source, _ in pairs), "plain", targets=tmp_path / "answers"),
    ):
        assert [(row.source, row.target) for row in rows] == pairs
        assert not any(row.problem for row in rows)


def test_a_quoted_csv_field_may_span_lines(tmp_path):
    (row,) = rows_of(tmp_path, '"one\ntwo",three\n', "pairs.csv")
    assert (row.line, row.source, row.target) == (2, "one two", "three")


def test_parallel_files_of_different_length_are_refused(tmp_path):
    (tmp_path / "answers").write_text("1\n2\n3\n")
    with pytest.raises(
        InputError, match="'answers' has more lines than 'plain', which has 2: each line must have its counterpart"
    ):
        rows_of(tmp_path, "a\nb\n", "plain", targets=tmp_path / "answers")


def test_unknown_extensions_and_missing_files_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"'pairs.docx' must end with .tsv, .txt, .csv, .json, .jsonl, .ndjson"):
        rows_of(tmp_path, "x", "pairs.docx")
    with pytest.raises(InputError, match=r"'pairs.xlsx' is a workbook of a spreadsheet program: save it as CSV"):
        rows_of(tmp_path, "x", "pairs.xlsx")
    with pytest.raises(InputError, match=r"'nowhere.tsv' cannot be read: No such file"):
        list(read_pairs(tmp_path / "nowhere.tsv"))


# --- invalid rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "name", "line", "problem"),
    [
        (b"a\tb\nonly one\n", "p.tsv", 2, "it has 1 column; 2 are read: source, target"),
        (b"a\tb\nb\xe9b\xe9\tc\n", "p.tsv", 2, "byte 0xE9 at column 2 is not UTF-8"),
        (b"a\tb\nx\0y\tc\n", "p.tsv", 2, r"U\+0000 at column 2 is a control character"),
        (b"a\tb\n" + b"x" * (MAX_LINE_BYTES + 1) + b"\ty\n", "p.tsv", 2, "it has more than 65,536 bytes"),
        (b'a,b\nx,"y" z\n', "p.csv", 2, "it is not valid CSV"),
        (b'["a", "b"]\n{"source": "a"}\n', "p.jsonl", 2, "it must look like"),
        (b'["a", "b"]\n["a", {}]\n', "p.jsonl", 2, "texts and numbers are read, but dict"),
        (b'{"a": "x", "b": "y"}\n{"a": true, "b": "y"}\n', "p.jsonl", 2, "'a' is of the type bool"),
        (b'["a", "b"]\n["a", \n', "p.jsonl", 2, "it is not valid JSON"),
        (b'["a", "b"]\n' + b"[" * 60_000 + b"\n", "p.jsonl", 2, "it is not valid JSON"),
    ],
    ids=lambda value: value[:20] if isinstance(value, bytes) else str(value)[:20],
)
def test_an_invalid_row_is_reported_by_line_and_skipped_alone(tmp_path, content, name, line, problem):
    rows = rows_of(tmp_path, content + (content.splitlines(keepends=True)[0]), name)
    bad = [row for row in rows if row.problem]
    assert [row.line for row in bad] == [line]
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(str(bad[0].problem))
    assert len(rows) == 3


def test_a_line_of_ten_megabytes_is_skipped(tmp_path):
    path = tmp_path / "long"
    path.write_bytes(b"a\tb\n" + b"x" * 10_000_000 + b"\nc\td\n")
    lines = list(read_lines(path))
    assert [line.number for line in lines] == [1, 2, 3]
    assert (lines[1].problem.kind, lines[2].text) == ("line too long", "c\td")


@pytest.mark.parametrize("size", [MAX_LINE_BYTES, MAX_LINE_BYTES + 1, MAX_LINE_BYTES + 2, 2 * MAX_LINE_BYTES + 4])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_lines_near_the_maximum_length_are_counted_correctly(tmp_path, size, end):
    path = tmp_path / "long"
    path.write_bytes(b"x" * size + end + (b"y" if end else b""))
    lines = list(read_lines(path))
    assert len(lines) == (2 if end else 1)
    assert bool(lines[0].problem) == (size > MAX_LINE_BYTES)


@pytest.mark.parametrize("content", [b"", b"\n\n \r\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(tmp_path, content):
    with pytest.raises(InputError, match=r"'pairs.tsv' is empty"):
        ingest(tmp_path, content)


def test_a_number_that_is_missing_is_an_empty_side(tmp_path):
    content = b'{"source": 1.5, "target": "a"}\n{"source": NaN, "target": "b"}\n'
    assert [row.source for row in rows_of(tmp_path, content, "p.jsonl")] == ["1.5", ""]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\n".encode("utf-16"), "is UTF-16; save it as UTF-8"),
        (b"PK\x03\x04\x14\0\x06\0", "is a zip archive, not text; save a spreadsheet as CSV"),
        (b"a\tb\rc\td\r", "has lines that end with CR alone; save it with LF or CR LF"),
    ],
)
def test_another_kind_of_file_is_refused_by_name(tmp_path, content: bytes, message: str):
    with pytest.raises(InputError, match=re.escape(f"'pairs.tsv' {message}")):
        ingest(tmp_path, content)


# --- pairs file --------------------------------------------------------------------------------------------------


def test_byte_order_mark_line_ends_and_unicode_forms_are_normalized(tmp_path):
    plain = ingest(tmp_path, tsv([*GOOD, ("café", "x")]))
    marked = b"\xef\xbb\xbf" + tsv([*GOOD, ("cafe\u0301", "x")]).replace("\n", "\r\n").encode()
    assert ingest(tmp_path, marked).sha256 == plain.sha256


def test_emoji_and_right_to_left_text_are_unchanged(tmp_path):
    result = ingest(tmp_path, tsv([*GOOD, ("👍🏽", "שלום"), ("مرحبا", "👩‍🔬")]))
    assert written(tmp_path)[-2:] == [["👍🏽", "שלום"], ["مرحبا", "👩‍🔬"]]
    assert not result.problems
    assert result.source_tokens["👍"] == 1


def test_the_same_pair_is_kept_once_and_several_answers_are_all_written(tmp_path):
    result = ingest(tmp_path, tsv([*GOOD, *GOOD, ("s1", "other")]))
    assert (result.pairs, result.sources, result.duplicates, result.several) == (13, 12, 12, 1)
    assert written(tmp_path) == [list(pair) for pair in [*GOOD, ("s1", "other")]]


def test_spaces_between_symbols_do_not_matter(tmp_path):
    result = ingest(tmp_path, tsv([*GOOD, ("a  b", "x"), ("a b ", "x")]), kinds=("symbol", "symbol"))
    assert result.duplicates == 1


def test_long_empty_and_special_token_rows_are_skipped_and_counted(tmp_path):
    bad = [("x" * 511, "y"), ("", "y"), ("y", " "), ("<PAD> z", "y")]
    result = ingest(tmp_path, tsv([*GOOD, *bad]), kinds=("symbol", "character"))
    assert dict(result.skipped) == {"one side empty": 2, "special token": 1}
    result = ingest(tmp_path, tsv([*GOOD, *bad[:1]]))
    assert dict(result.skipped) == {"too long": 1}
    assert str(result.problems[0]) == "line 13: its source has 511 tokens, more than 510"


def test_a_file_of_duplicates_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"learn from: 1, at least 10 are needed; duplicate pairs: 499"):
        ingest(tmp_path, tsv([("a", "b")] * 500))


def test_a_file_of_invalid_rows_is_refused_with_the_first(tmp_path):
    with pytest.raises(InputError, match="skipped rows: 40, the first: line 1: it has 1 column"):
        ingest(tmp_path, "no tab here\n" * 40)
    with pytest.raises(InputError, match=r"is not UTF-8; save the file as UTF-8: it may be Latin-1 or Windows-1252$"):
        ingest(tmp_path, "".join(f"grün {number}\tja\n" for number in range(20)).encode("cp1252"))


def test_max_pairs_is_a_limit(tmp_path):
    with pytest.raises(InputError, match="has more than 11 pairs"):
        ingest(tmp_path, tsv(GOOD), max_pairs=11)
    assert ingest(tmp_path, tsv(GOOD), max_pairs=12).pairs == 12


# --- a test file ---------------------------------------------------------------------------------------------------


def test_sources_of_the_test_file_are_removed_from_training(tmp_path):
    result = ingest(tmp_path, tsv([*GOOD, ("shared", "1"), ("shared", "2")]), test=tsv([("shared", "1"), ("new", "3")]))
    assert (result.pairs, result.held_out, result.overlaps) == (14, {"test": 2}, 2)
    assert written(tmp_path)[:2] == [["shared", "1", "test"], ["new", "3", "test"]]
    assert all(len(line) == 2 for line in written(tmp_path)[2:])


def test_a_test_file_equal_to_the_training_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="all 12 training pairs have a source that is also in the test pairs"):
        ingest(tmp_path, tsv(GOOD), test=tsv(GOOD))


def test_an_invalid_row_of_the_test_file_names_the_file(tmp_path):
    result = ingest(tmp_path, tsv(GOOD), test=tsv([("x", "1")]) + "bad\n")
    assert str(result.problems[0]).startswith("test file, line 2: it has 1 column")


# --- summary -------------------------------------------------------------------------------------------------------


@given(lengths=st.dictionaries(st.integers(1, 300), st.integers(1, 9), min_size=1))
def test_a_histogram_counts_everything_once_in_at_most_13_bars(lengths):
    bars = histogram(lengths)
    assert sum(count for _, count in bars) == sum(lengths.values())
    assert len(bars) <= 13
    assert bars[0][0].split("–")[0] == str(min(lengths))
    assert bars[-1][0].split("–")[-1] == str(max(lengths))


def test_the_summary_lists_counts_and_skipped_rows(tmp_path):
    output = "\n".join(summary_lines(ingest(tmp_path, tsv([*GOOD, *GOOD[:2], ("a b", "c")]) + "bad\n")))
    for part in (
        "pairs                            13",
        "2 rows, skipped",
        "skipped: other number of columns",
        "line 16",
        "␣",
    ):
        assert part in output


# --- the name of the preset ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("my pairs.tsv", "my-pairs"),
        ("/a/b/Übung_2 (final).CSV", "ubung-2-final"),
        ("日本語.jsonl", "own-pairs"),
        ("---.tsv", "own-pairs"),
        ("tiny.tsv", "tiny-pairs"),  # tiny is a preset that ships
        ("x" * 39 + " yz.txt", "x" * 39),
        ("<script>alert(1)</script>.tsv", "script"),
        ("archive.tar.tsv", "archive-tar"),
    ],
)
def test_a_preset_of_pairs_is_named_after_their_file(file, name):
    assert preset_name_for(Path(file)) == name


@given(st.text())
def test_every_file_name_gives_a_valid_name_of_no_shipped_preset(text):
    name = preset_name_for(Path(text))
    assert re.fullmatch(NAME_PATTERN, name)
    assert name not in preset_names()
