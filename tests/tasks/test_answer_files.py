"""Files with several answers: on one line, on several lines, and as a dictionary; words in any case; another preset."""

import json
from pathlib import Path

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from benchmarks.count_errors import count_errors
from core.__main__ import main
from core.config import ConfigError, load_preset, load_preset_file, pairs_beside
from core.evaluation.error_rates import measure_error_rates
from core.evaluation.outputs import decode_unpadded
from core.storage.errors import InputError
from core.tasks import build_task, fixed_pairs
from core.tasks.ingest import HeldOutFile, PairFiles, format_of, prepare_preset, read_pairs, summary_facts
from core.tasks.pairs import SPLITS
from core.text.vocab import EOS_ID

WORDS = {
    "A": ["AH", "EY"],
    "ABS": ["AE B Z", "EY B IY EH S"],
    "ABBY": ["AE B IY"],
    "ABOUT": ["AH B AW T"],
    "ABSO": ["AE B S OW"],
    "AARON'S": ["EH R AH N Z"],
    "BASE": ["B EY S"],
    "BASS": ["B AE S", "B EY S"],
    "BEAT": ["B IY T"],
    "BOAT": ["B OW T"],
    "BOUT": ["B AW T"],
    "LIVE": ["L AY V", "L IH V"],
    "NEON": ["N IY AA N"],
    "ROB": ["R AA B"],
    "SAY": ["S EY"],
    "TOE": ["T OW"],
}
TEST = {
    "SO": ["S OW"],
    "BAY": ["B EY"],
    "TAB": ["T AE B", "T AH B AE"],
    "VASE": ["V EY S", "V EY Z", "V AA Z"],
    "NOTES": ["N OW T S"],
}
LISTED = [(word, answer) for word, answers in WORDS.items() for answer in answers]


def answer_lines(words: dict[str, list[str]]) -> str:
    return "".join("\t".join([word, *answers]) + "\n" for word, answers in words.items())


def pair_lines(words: dict[str, list[str]]) -> str:
    return "".join(f"{word}\t{answer}\n" for word, answers in words.items() for answer in answers)


def dictionary_lines(words: dict[str, list[str]]) -> str:
    entries = [
        f"{word}({number})  {answer}\n" if number > 1 else f"{word}  {answer}\n"
        for word, answers in words.items()
        for number, answer in enumerate(answers, start=1)
    ]
    return ";;; a comment\n" + "".join(entries)


def file(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


@pytest.fixture
def split(tmp_path) -> PairFiles:
    """A training file with a line per answer and a test file with a line per word, named as in g014b2b."""
    return PairFiles(
        file(tmp_path / "small.train", pair_lines(WORDS)),
        held_out=(HeldOutFile(file(tmp_path / "small.ref", answer_lines(TEST))),),
    )


# --- formats -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("words.train", pair_lines(WORDS)),
        ("words.ref", answer_lines(WORDS)),
        ("words.tsv", answer_lines(WORDS)),
        ("words.ref", "word\tphones\tphones\n" + answer_lines(WORDS)),
        ("words.ref", answer_lines(WORDS).replace("\n", "\t\t\n")),  # filled up, as a spreadsheet does
        ("words-0.7b", dictionary_lines(WORDS)),
        ("words.dict", dictionary_lines(WORDS).replace("  ", " ").replace("\n", " # a comment\n")),
        ("words.json", json.dumps(WORDS)),
        ("words.json", json.dumps([{"word": word, "answers": answers} for word, answers in WORDS.items()])),
    ],
)
def test_answers_on_one_line_or_several_are_the_same_pairs(tmp_path, name, content):
    rows = list(read_pairs(file(tmp_path / name, content)))
    assert [(row.source, row.target) for row in rows] == LISTED
    assert not any(row.problem for row in rows)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a\tb\nc\td\n", "tsv"),
        ("a\tb\nc\td\ttest\n\n", "tsv"),
        ("a\tb\n" * 20 + "c\n", "tsv"),
        ('{"a": "b"}\n', "json"),
        ('{"a": "b"}\n{"a": "c"}\n', "jsonl"),
        ("IN: run OUT: I_RUN\n", "scan"),
        (";;; A\nA  b c\n", "dictionary"),
        ('a,"b, c"\nd,e\n', "csv"),
        ("a,b\nc,d,e\n", None),
        ("a\tb\nc\n", None),
        ("a b c\n", None),
        ("a\0b\n", None),  # no line can be read
    ],
)
def test_a_file_of_another_name_has_the_format_that_nearly_all_lines_show(tmp_path, content, expected):
    path = file(tmp_path / "pairs.ref", content)
    if expected:
        assert format_of(path) == expected
    else:
        with pytest.raises(
            InputError, match=r"'pairs.ref' must end with .*: its lines do not show which format it has"
        ):
            format_of(path)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("p.tsv", "A\tAH\tEY\nABS\nB\tC\n", "it has 1 column; at least 2 are read: source, answers"),
        ("p.dict", "A  AH\nABS\n", "it has no pronunciation after 'ABS', and must look like WORD  PRONUNCIATION"),
        ("p.dict", "A  AH\nAB\0S  AE\n", r"U\+0000 at column 3 is a control character"),
    ],
)
def test_a_word_without_an_answer_is_reported_by_line_and_rule(tmp_path, name, content, problem):
    rows = list(read_pairs(file(tmp_path / name, content)))
    (bad,) = [row for row in rows if row.problem]
    assert bad.line == 2
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(str(bad.problem))


def test_skipped_rows_of_two_files_name_theirs(tmp_path, split):
    split.pairs.write_text(pair_lines(WORDS) + "BAD\t\n")
    split.held_out[0].path.write_text(answer_lines(TEST) + "WORSE\t\t\n")
    result, _ = prepare_preset(split, tmp_path / "out.pairs.tsv", kinds=("character", "symbol"), name="small")
    assert [str(problem) for problem in result.problems] == [
        "'small.ref', line 6: its target is empty",
        f"'small.train', line {len(LISTED) + 1}: its target is empty",
    ]


def test_the_command_names_the_option_where_no_format_is_shown(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("core.cli.data.estimate_training_time", lambda *_, **__: None)  # which trains a little
    path = file(tmp_path / "words.lst", "A AH\nABS AE B Z\n")
    assert main(["data", str(path), "--out", str(tmp_path / "out.yaml")]) == 2
    assert "--format names it: tsv, csv, json, jsonl, parquet, dictionary, scan" in capsys.readouterr().err


# --- splits and references -------------------------------------------------------------------------------------------


def test_validation_words_come_from_training_with_all_their_answers(tmp_path, split):
    pairs = tmp_path / "out.pairs.tsv"
    result, preset = prepare_preset(split, pairs, kinds=("character", "symbol"), name="small")
    assert (result.held_out, result.overlaps, result.several) == ({"test": 8}, 0, 6)
    seen = []
    for seed in range(20):  # of the split
        refused = {"task.split_seed": seed, "task.unknown": "refuse"}  # so that every word is written with its letters
        task = build_task(preset.with_changes(refused).task, pairs=pairs)
        of_split: dict[str, set[str]] = {name: set() for name in SPLITS}
        for row, index in enumerate(task.table.split.tolist()):
            of_split[SPLITS[index]].add("".join(task.src_vocab.decode(task.table.src.row(row))))
        assert of_split["test"] == set(TEST)
        assert not of_split["validation"] & of_split["train"]
        assert of_split["validation"] | of_split["train"] == set(WORDS)
        seen += of_split["validation"]
    assert any(len(WORDS[word]) > 1 for word in seen)


def test_every_answer_of_a_training_word_is_trained_on(tmp_path, split):
    pairs = tmp_path / "out.pairs.tsv"
    _, preset = prepare_preset(split, pairs, kinds=("character", "symbol"), name="small")
    task = build_task(preset.task, pairs=pairs)
    trained: dict[str, list[str]] = {}
    for row in task.all_pairs("train").rows.tolist():
        source, answer = task.src_vocab.decode(task.table.src.row(row)), task.tgt_vocab.decode(task.table.tgt.row(row))
        trained.setdefault("".join(source), []).append(" ".join(answer))
    assert trained == {word: WORDS[word] for word in trained}
    assert any(len(answers) > 1 for answers in trained.values())


def test_error_rates_agree_with_an_independent_count_of_the_same_answers(tmp_path, split, scripted):
    """Correct by the first, second or third reference, one edit from one of several, too short, too long, empty."""
    pairs = tmp_path / "out.pairs.tsv"
    _, preset = prepare_preset(split, pairs, kinds=("character", "symbol"), name="small")
    task = build_task(preset.task, pairs=pairs)
    ids = {word: tuple(task.src_vocab.encode(list(word))) for word in TEST}
    for answers in (
        ["S OW", "B EY", "T AH B AE", "V AA Z", "N OW T S"],
        ["S", "B EY", "T AH B", "V AA S", "N OW T S S OW"],
        ["", "EY B", "T AH AE", "Z", "N OW T"],
    ):
        outputs = {
            ids[word]: torch.tensor([*task.tgt_vocab.encode(answer.split()), EOS_ID])
            for word, answer in zip(TEST, answers, strict=True)
        }
        model = scripted(
            lambda src, outputs=outputs: pad_sequence(
                [outputs[tuple(row[1:-1])] for row in src.tolist()], batch_first=True
            ),
            max_seq_len=10,
            vocab_size=len(task.tgt_vocab),
        )
        rates = measure_error_rates(task, decode_unpadded(model, fixed_pairs(task, 100, split="test")))
        words, wrong, edits, phones = count_errors(answer_lines(TEST).splitlines(), answers)
        assert (rates.sources, rates.sequence_rate, rates.token_rate) == pytest.approx(
            (words, wrong / words, edits / phones)
        )


# --- case -------------------------------------------------------------------------------------------------------------


def test_words_are_read_in_any_case(tmp_path, split):
    """A test file in another case has the training file's, and so has what the user types."""
    reference = tmp_path / "reference.tsv"
    prepare_preset(split, reference, kinds=("character", "symbol"), name="small")
    mixed = {word.capitalize() if word in ("SO", "TAB") else word.lower(): answers for word, answers in TEST.items()}
    split.held_out[0].path.write_text(answer_lines(mixed))
    pairs = tmp_path / "out.pairs.tsv"
    result, preset = prepare_preset(split, pairs, kinds=("character", "symbol"), name="small")
    assert pairs.read_bytes() == reference.read_bytes()
    assert preset.task.source_case == "upper"
    assert any("held-out sources were converted" in fact for _, fact in summary_facts(result))
    task = build_task(preset.task, pairs=pairs)
    for text in ("VASE", "vase", "Vase"):
        assert task.tokenize(text) == list("VASE")
        assert len(task.references(task.tokenize(text))) == 3


@pytest.mark.parametrize(
    ("sources", "case"),
    [
        (["stra\u00dfe", "\u00e9t\u00e9"], "lower"),
        (["\u00c9T\u00c9", "A-1"], "upper"),
        (["Paris", "paris"], "as-is"),
        (["ABC", "abc"], "as-is"),
        (["1 2", "3 4"], "as-is"),
        (["\u05e9\u05dc\u05d5\u05dd", "\u4f60\u597d"], "as-is"),
    ],
)
def test_case_is_kept_unless_all_training_sources_have_the_same(tmp_path, sources, case):
    path = file(tmp_path / "p.tsv", "".join(f"{source}{number}\tx\n" for number in range(10) for source in sources))
    _, preset = prepare_preset(PairFiles(path), tmp_path / "out.pairs.tsv", kinds=("character", "symbol"), name="mine")
    assert preset.task.source_case == case
    task = build_task(preset.task, pairs=tmp_path / "out.pairs.tsv")
    assert task.references(task.tokenize(f"{sources[0]}3")) == [["x"]]


# --- the model and training of another preset --------------------------------------------------------------------


def test_a_preset_lends_its_model_and_training(tmp_path, split):
    out, lender = tmp_path / "small.yaml", load_preset("tiny")
    command = [
        "data",
        str(split.pairs),
        "--test",
        str(split.held_out[0].path),
        "--tokens",
        "character,symbol",
        "--out",
        str(out),
    ]
    assert main([*command, "--preset", "tiny"]) == 0
    preset = load_preset_file(out)
    assert (preset.model, preset.training) == (lender.model, lender.training)
    assert len(build_task(preset.task, pairs=pairs_beside(out)).table) == len(LISTED) + 8
    long = file(tmp_path / "long.tsv", pair_lines(WORDS | {"LONG" * 12: ["L"]}))
    _, preset = prepare_preset(PairFiles(long), tmp_path / "p", kinds=("character", "symbol"), like=lender)
    assert preset.model.max_seq_len == 50


def test_a_preset_whose_model_cannot_learn_the_pairs_is_refused_and_leaves_no_file(tmp_path, split):
    with pytest.raises(ConfigError, match=r"model\.tie_embeddings"):
        prepare_preset(split, tmp_path / "p", kinds=("character", "symbol"), like=load_preset("translate-en-de"))
    assert not (tmp_path / "p").exists()
