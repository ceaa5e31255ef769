"""What the columns of a file are: recognized in public data sets, chosen by the user, and said."""

import gzip
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.__main__ import main
from core.storage.errors import InputError
from core.tasks import build_task
from core.tasks.ingest import (
    ROLES,
    HeldOutFile,
    PairFiles,
    StagingArea,
    check_pairs_file,
    lines,
    other_readings,
    parse_columns,
    prepare_preset,
    read_pairs,
    reading_of,
    staging,
    summary_facts,
)

UNIMORPH = "reiterar\tno reiteren\tV;NEG;IMP;3;PL\ngato\tgatos\tN;PL\nver\tvi\tV;IND;PST;1;SG\n"
ANKI = "Go.\tGeh.\tCC-BY 2.0 (France) Attribution: tatoeba.org #1 (CM) & #2 (Roujin)\n" * 3
COGS = "A rose was seen .\trose ( x _ 1 )\tin_distribution\n" * 10
NESTED = [{"id": str(n), "translation": {"en": f"Hello {n}", "de": f"Hallo {n}"}} for n in range(3)]


def file(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def numbers(first: int, count: int, *more: str) -> str:
    return "".join("\t".join([str(n), str(n)[::-1], *more]) + "\n" for n in range(first, first + count))


@pytest.mark.parametrize(
    ("name", "content", "columns", "pair"),
    [
        ("spanish-train-high", UNIMORPH, "source,target,source", ("reiterar V;NEG;IMP;3;PL", "no reiteren")),
        ("spanish.tsv", UNIMORPH, "source,target,source", ("reiterar V;NEG;IMP;3;PL", "no reiteren")),
        ("turkish.trn", "ev\tN;PL\tevler\nel\tN;PL\teller\n", "source,source,target", ("ev N;PL", "evler")),
        ("deu", ANKI, "source,target,skip", ("Go.", "Geh.")),
        ("train.tsv", COGS, "source,target,set", ("A rose was seen .", "rose ( x _ 1 )")),
        ("tasks.txt", "IN: run twice OUT: I_RUN I_RUN\n", "source,target", ("run twice", "I_RUN I_RUN")),
        ("a.json", json.dumps(NESTED), "skip,source,target", ("Hello 0", "Hallo 0")),
        ("a.jsonl", "".join(json.dumps(each) + "\n" for each in NESTED), "skip,source,target", ("Hello 0", "Hallo 0")),
        ("p.jsonl", '{"completion": " b", "prompt": "a"}\n', "target,source", ("a", " b")),
        ("any.jsonl", '{"wrong": "teh", "right": "the"}\n', "source,target", ("teh", "the")),
        ("d.json", '{"abandonned": "abandoned", "teh": "the"}', "source,target", ("abandonned", "abandoned")),
        ("head.tsv", "English\tGerman\nHello\tHallo\n", "source,target", ("Hello", "Hallo")),
        ("id.csv", "en,id\nHello,Halo\n", "source,target", ("Hello", "Halo")),
        ("head.csv", "en,de\nHello,Hallo\n", "source,target", ("Hello", "Hallo")),
        ("index.csv", ",source,target\n0,a,b\n1,c,d\n", "skip,source,target", ("a", "b")),
        ("note.csv", "source,target,note\na,b,seen\nc,d,seen\n", "source,target,skip", ("a", "b")),
        ("empty.csv", "source,target,\na,b,\n", "source,target,skip", ("a", "b")),
        (
            "known.csv",
            "German,level,English,is_easy\nHallo,A1,Hello,1\n",
            "source,skip,target,skip",
            ("Hallo", "Hello"),
        ),
        ("label.csv", "label,text,score\nb,a,0\n", "target,source,skip", ("a", "b")),
        ("label.jsonl", '{"id": "1", "text": "a", "label": "b"}\n', "skip,source,target", ("a", "b")),
        ("be.tsv", "be\tis\tV;SG\ngo\tgoes\tV;SG\n", "source,target,source", ("be V;SG", "is")),
        ("recurs.tsv", "input\toutput\tmore\ninput\tinputs\tmore\n", "source,target,skip", ("input", "output")),
        ("excel.csv", "a;1,5\nb;2\n", "source,target", ("a", "1,5")),
        ("comma.csv", "a; b,c; d\ne; f,g; h\n", "source,target", ("a; b", "c; d")),
        ("names.tsv", "target\tsource\nb\ta\n", "target,source", ("a", "b")),
        ("german.csv", "Quelle;Ziel;Note\nb;a;2\n", "source,target,skip", ("b", "a")),
        ("pairs.tsv.gz", gzip.compress(b"a\tb\n"), "source,target", ("a", "b")),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
)
def test_public_data_sets_are_recognized(tmp_path, name, content, columns, pair):
    reading = reading_of(file(tmp_path / name, content))
    assert str(reading.columns) == columns
    first = next(iter(read_pairs(tmp_path / name)))
    assert (first.source, first.target) == pair


def test_a_reading_that_the_user_chooses_leaves_the_line_with_the_names_of_columns_out(tmp_path):
    path = file(tmp_path / "p.csv", "source,target,score\na,b,0\n")
    reading = reading_of(path, columns=parse_columns("target,source,skip"))
    assert [row[:3] for row in read_pairs(path, reading)] == [(2, "b", "a")]
    assert reading.columns.names == ("source", "target", "score")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"a": "x", "b": "y"}\n{"a": "x", "b": "y"}\n[1, 2]\n', "it is a list, but most"),
        ('["x", "y"]\n["x", "y"]\n{"b": "y", "a": "x"}\n', "it is an object, but most"),
    ],
)
def test_a_list_among_objects_is_no_pair_and_no_object_among_lists(tmp_path, content, problem):
    rows = list(read_pairs(file(tmp_path / "p.jsonl", content)))
    assert [(row.source, row.target) for row in rows[:2]] == [("x", "y")] * 2
    assert [str(row.problem)[: len(problem)] for row in rows[2:]] == [problem]


def test_what_is_recognized_is_said_with_what_else_each_reading_would_make(tmp_path, capsys):
    path = file(tmp_path / "spanish", "".join(f"gat{n}\tgat{n}s\tN;PL\n" for n in range(30)))
    result, _ = prepare_preset(PairFiles(path), tmp_path / "kept")
    assert dict(summary_facts(result))["read as"] == "columns 1 and 3 → column 2"
    others = {str(columns): (rows[0].source, rows[0].target) for columns, rows in other_readings(result)}
    assert others["source,target,skip"] == ("gat0", "gat0s")
    assert others["source,answers"] == ("gat0", "gat0s")
    assert others["target,source,skip"] == ("gat0s", "gat0")
    assert main(["data", str(path), "--columns", "source,target,skip", "--out", str(tmp_path / "o.yaml")]) == 0
    printed = capsys.readouterr().out
    assert "column 1 → column 2; column 3 is left out" in printed
    assert "--columns source,target,source" in printed
    assert (tmp_path / "o.pairs.tsv").read_text().splitlines()[0] == "gat0\tgat0s"


@pytest.mark.parametrize(
    ("lines", "pair"),
    [
        (["Yes, the house {n};Ja, das Haus {n}"], ("Yes, the house 0", "Ja, das Haus 0")),
        (["0,{n};1,{n}"], ("0,0", "1,0")),  # decimal commas
        (["one; two {n},eins; zwei {n}"], ("one; two 0", "eins; zwei 0")),
        (["Hi, {n};Na, {n}", *["b {n};c {n}"] * 19, "without"], ("Hi, 0", "Na, 0")),
        (["sep=;", "Quelle;Ziel", "a {n};b, {n}"], ("a 2", "b, 2")),
        (["a {n}\tb {n}"], ("a 0", "b 0")),
    ],
)
def test_the_separator_of_csv_divides_most_lines_alike(tmp_path, lines, pair):
    text = "\n".join((lines * 20 if len(lines) == 1 else lines + lines[-1:] * 15)[n].format(n=n) for n in range(17))
    (first, *_) = [row for row in read_pairs(file(tmp_path / "p.csv", text)) if not row.problem]
    assert (first.source, first.target) == pair


@pytest.mark.parametrize(
    ("names", "rows", "is_header"),
    [
        ("Englisch;Deutsch", "a {n};b {n}", True),
        ("Satz;Übersetzung", "a {n};b {n}", True),
        ("中文;英文", "甲{n};b {n}", True),
        ("x;y", "{n};{n}{n}", True),  # letters above numbers
        ("Zahl;Wort ausgeschrieben", "{n};zehn und {n}", True),
        ("x;y", "a {n};b {n}", False),
    ],
)
def test_the_first_line_names_columns_in_other_languages_and_above_numbers(tmp_path, names, rows, is_header):
    path = file(tmp_path / "p.csv", "\n".join([names, *(rows.format(n=n) for n in range(20))]))
    first = next(iter(read_pairs(path)))
    assert (first.source == names.split(";")[0]) is not is_header


def test_a_separator_inside_a_text_is_no_column(tmp_path):
    path = file(tmp_path / "p.csv", "a,b\n" * 40 + "x,y,z\n")
    assert [str(row.problem) for row in read_pairs(path) if row.problem] == [
        "it has 3 columns; 2 are read: source, target"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("source,lemma", "must be of source, target"),
        ("source,skip", "must have a source, and a target or answers"),
        ("source,answers,skip", "must end with answers"),
        ("source,target,split,split", "at most once"),
        ("", "must be of"),
    ],
)
def test_columns_that_make_no_pairs_are_refused(text, problem):
    with pytest.raises(InputError, match=problem):
        parse_columns(text)


@given(st.lists(st.sampled_from(ROLES), max_size=6))
def test_columns_are_read_as_they_are_written(roles):
    try:
        columns = parse_columns(",".join(roles))
    except InputError:
        return
    assert parse_columns(str(columns)) == columns
    assert columns.describe()


# --- test sets -----------------------------------------------------------------------------------------------------


def test_test_sets_with_names_are_measured_each_by_itself(tmp_path):
    """From files, from a column, and from a category; a source may be in several sets."""
    files = PairFiles(
        file(tmp_path / "train.tsv", numbers(100, 60, "train") + numbers(200, 4, "dev") + numbers(300, 3, "Hard ones")),
        held_out=(
            HeldOutFile(file(tmp_path / "long.tsv", numbers(5000, 5)), set="long"),
            HeldOutFile(
                file(tmp_path / "more.src", "5000\n700\n"), file(tmp_path / "more.tgt", "0005\n007\n"), set="more"
            ),
        ),
    )
    pairs = tmp_path / "kept"
    result, preset = prepare_preset(files, pairs, kinds=("character", "character"))
    assert (result.held_out, result.sets) == (
        {"test": 10, "validation": 4},
        {"long": 5, "more": 2, "hard-ones": 3},
    )
    assert "long (5), more (2), hard-ones (3)" in dict(summary_facts(result))["test sets"]
    task = build_task(preset.task, pairs=pairs)
    assert len(task.table.rows("test")) == 9  # 5000 once
    drawn = task.breakdown(1_000, generator=torch.Generator())
    inputs = {
        name: sorted("".join(task.src_vocab.decode(row[1:5].tolist())).strip() for row in drawn.pairs[rows].src)
        for name, rows in drawn.groups.items()
    }
    assert {name: len(found) for name, found in inputs.items()} == {"long": 5, "more": 2, "hard-ones": 3}
    assert inputs["more"][0].startswith("5000")


def test_categories_group_the_test_pairs_whichever_they_are(tmp_path):
    rows = [(f"{n}", f"{n}"[::-1], "even" if n % 2 == 0 else "odd") for n in range(100, 160)]
    path = file(tmp_path / "p.tsv", "".join("\t".join(row) + "\n" for row in rows))
    result, preset = prepare_preset(PairFiles(path), tmp_path / "kept", kinds=("character", "character"))
    assert result.sets == {"even": 30, "odd": 30}
    task = build_task(preset.task, pairs=tmp_path / "kept")
    groups = task.breakdown(100, generator=torch.Generator()).groups
    assert sum(map(len, groups.values())) == len(task.table.rows("test")) == 6
    plain, _ = prepare_preset(
        PairFiles(path, columns=parse_columns("source,target,skip")), tmp_path / "plain", kinds=("character",) * 2
    )
    assert plain.sets == {}


def test_too_many_test_sets_are_refused(tmp_path):
    content = numbers(100, 30, "train") + "".join(numbers(1000 + n, 1, f"set{n}") for n in range(51))
    with pytest.raises(InputError, match="more than 50 test sets are named, such as set0, set1, set2"):
        prepare_preset(
            PairFiles(file(tmp_path / "p.tsv", content), columns=parse_columns("source,target,split")),
            tmp_path / "kept",
        )


def test_the_command_takes_test_and_validation_files_with_their_targets(tmp_path, capsys):
    train = file(tmp_path / "train.tsv", numbers(100, 60))
    words = ["--test", f"long={file(tmp_path / 'long.tsv', numbers(5000, 5))}"]
    words += ["--test", f"more={file(tmp_path / 'm.src', '700')}", str(file(tmp_path / "m.tgt", "007"))]
    words += ["--validation", str(file(tmp_path / "v.src", "800\n801")), str(file(tmp_path / "v.tgt", "008\n108"))]
    assert main(["data", str(train), *words, "--out", str(tmp_path / "o.yaml")]) == 0
    marks = [line.split("\t")[2:] for line in (tmp_path / "o.pairs.tsv").read_text().splitlines()]
    assert marks[:8] == [["test:long"]] * 5 + [["test:more"], ["validation"], ["validation"]]
    assert "first pairs\n  100  →  001" in capsys.readouterr().out  # of the training part


# --- alignments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (("symbol", "symbol"), [[1], [0], [0]]),
        (("word", "word"), [[2], [0, 1], [0, 1]]),  # "a." is two tokens
    ],
)
def test_a_column_with_alignments_gives_heads_a_gold_alignment(tmp_path, kinds, expected):
    content = "".join(f"a. w{n}\tw{n} b c\t1-0 0-1 0-2\n" for n in range(30)) + "x\ty\t0-1\n"
    result, preset = prepare_preset(PairFiles(file(tmp_path / "p.tsv", content)), tmp_path / "kept", kinds=kinds)
    assert str(result.reading.columns) == "source,target,alignment"
    assert (result.aligned, result.skipped) == (30, {"alignment": 1})
    assert "its alignment has the number 1, but its target has the numbers 0 to 0" in str(result.problems[0])
    task = build_task(preset.task, pairs=tmp_path / "kept")
    source = task.tokenize("a. w3")
    assert task.gold_alignment(source) == expected
    assert task.produced_alignment(source, ["w3", "b", "c"]) == expected
    check_pairs_file(tmp_path / "kept")


def test_alignments_of_words_become_those_of_their_subwords(tmp_path):
    content = "".join(f"alpha{n} beta\tbeta alpha{n}\t0-1 1-0\n" for n in range(60))
    _, preset = prepare_preset(
        PairFiles(file(tmp_path / "p.tsv", content)), tmp_path / "kept", kinds=("subword", "subword")
    )
    task = build_task(preset.task, pairs=tmp_path / "kept")
    source = task.tokenize("alpha7 beta")
    answer, gold = task.answer(source), task.gold_alignment(source)
    for token, places in zip(answer, gold, strict=True):
        word = "beta" if "beta" in token else "alpha7"
        assert all((source[at] in ("\u2581beta", "beta")) == (word == "beta") for at in places)
        assert places


def test_equal_tokens_are_a_gold_alignment_if_the_preset_says_so(tmp_path):
    rows = [(f"{n}", f"{n}"[::-1]) for n in range(100, 160)]
    path = file(tmp_path / "p.tsv", "".join("\t".join(row) + "\n" for row in rows))
    _, preset = prepare_preset(PairFiles(path), tmp_path / "kept", kinds=("character", "character"))
    plain = build_task(preset.task, pairs=tmp_path / "kept")
    assert plain.gold_alignment(list("123")) == [[], [], []]
    same = build_task(preset.with_changes({"task.alignment": "same-token"}).task, pairs=tmp_path / "kept")
    assert same.gold_alignment(list("123")) == [[2], [1], [0]]
    assert same.produced_alignment(list("121"), list("12")) == [[0, 2], [1]]


# --- compressed files ----------------------------------------------------------------------------------------------


def test_a_damaged_or_endless_gzip_file_is_refused(tmp_path, monkeypatch: pytest.MonkeyPatch):
    packed = gzip.compress(numbers(100, 5_000).encode())
    for damaged in (packed[:200], packed[:100] + b"\0" * 50 + packed[150:]):
        with pytest.raises(InputError, match="is a damaged gzip file"):
            list(read_pairs(file(tmp_path / "p.tsv.gz", damaged)))
    bomb = file(tmp_path / "b.tsv.gz", gzip.compress(b"a\tb\n" * 1_000_000))  # 4 MB in 6 kB
    with pytest.raises(InputError, match="unpacks to more than"):
        list(read_pairs(bomb))
    monkeypatch.setattr(lines, "MAX_UNPACKED_BYTES", 10_000)
    with pytest.raises(InputError, match="unpacks to more than 10,000 bytes"):
        list(read_pairs(file(tmp_path / "p.tsv.gz", packed)))


def test_a_server_with_limits_reads_no_file_that_is_larger_than_an_upload(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(staging, "MAX_UNPACKED_BYTES", 10_000)
    packed = file(tmp_path / "p.tsv.gz", gzip.compress(numbers(100, 5_000).encode()))
    plain, parquet = file(tmp_path / "p.tsv", numbers(100, 30)), file(tmp_path / "p.parquet.gz", "no")
    with pytest.raises(InputError, match="more than 10,000 bytes unpacked, the limit here"):
        StagingArea(max_pairs=10_000).stage(PairFiles(packed))
    with pytest.raises(InputError, match="is Parquet, which is not read here"):
        StagingArea(max_pairs=10_000).stage(PairFiles(plain, held_out=(HeldOutFile(parquet),)))
    assert StagingArea().stage(PairFiles(packed))[0].pairs == 5_000


def test_parquet_is_read_if_its_package_is_installed(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(NESTED), tmp_path / "p.parquet")
    assert next((row.source, row.target) for row in read_pairs(tmp_path / "p.parquet")) == ("Hello 0", "Hallo 0")
    parquet.write_table(pyarrow.table({"a": ["x"] * 300_000, "b": ["y"] * 300_000}), tmp_path / "equal.parquet")
    with pytest.raises(InputError, match=r"300,000 rows in .* bytes, which are not pairs"):
        list(read_pairs(tmp_path / "equal.parquet"))
    with pytest.raises(InputError, match="is not valid Parquet"):
        list(read_pairs(file(tmp_path / "q.parquet", "no")))
