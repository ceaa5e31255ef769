"""Tokens of own pairs: chosen by what held-out pairs would lose, with vocabularies and models that fit the amount."""

import json
import random
import unicodedata
from itertools import cycle, islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.__main__ import main
from core.config import load_preset_file
from core.runs.load import load_run
from core.storage.errors import InputError
from core.tasks import build_task
from core.tasks.ingest import PairFiles, prepare_preset, summary_facts, summary_lines
from core.tasks.pairs import SPLITS
from core.tasks.translation import corpus
from core.text.tokenizers import detokenize, tokenize
from core.text.vocab import UNK_ID
from tests.support.command_output import last_json

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def write(path: Path, pairs) -> Path:
    path.write_text("".join("\t".join(pair) + "\n" for pair in pairs), encoding="utf-8")
    return path


def prepared(tmp_path: Path, pairs, **settings):
    return prepare_preset(PairFiles(write(tmp_path / "mine.tsv", pairs)), tmp_path / "kept", name="mine", **settings)


def sentences(number: int) -> list[tuple[str, str]]:
    """Pairs of the shipped corpus, one of every few."""
    pairs, split = corpus()
    training = [pair for pair, at in zip(pairs, split.tolist(), strict=True) if at == 0]
    return training[:: len(training) // number][:number]


# --- which tokens --------------------------------------------------------------------------------------------------


def test_single_words_are_split_into_characters(tmp_path):
    result, preset = prepared(tmp_path, [(f"w{number}", f"{number}w") for number in range(40)])
    assert result.kinds == ("character", "character")
    assert result.choice == "Characters: most texts are a single word, or have no spaces."
    assert preset.task.source_tokens == "character"


def test_words_with_features_get_characters_and_features(tmp_path):
    """Whichever the order of the columns, or if lemma and features are one column already."""
    rows = [(f"gat{number}", f"los gat{number}s", "N;PL" if number % 2 else "N") for number in range(40)]
    rows += [(f"ten{number} que", f"tengo{number}", "V;IND;PRS;1;SG") for number in range(40)]
    for order in ((0, 1, 2), (0, 2, 1)):
        result, preset = prepared(tmp_path, [tuple(row[at] for at in order) for row in rows])
        assert result.kinds == ("inflection", "character")
        task = build_task(preset.task, pairs=tmp_path / "kept")
        assert task.tokenize("ten7 que V;IND;PRS;1;SG") == [*"ten7 que", ";V", ";IND", ";PRS", ";1", ";SG"]
        assert task.source_text(task.tokenize("ten7 que V;IND;PRS;1;SG")) == "ten7 que V;IND;PRS;1;SG"
        assert task.split_of(task.tokenize("gat7 N;PL")) in SPLITS
        assert "characters and features" in dict(summary_facts(result))["source vocabulary"]
    result, _ = prepared(tmp_path, [(f"{lemma} {features}", form) for lemma, form, features in rows])
    assert result.kinds == ("inflection", "character")


@given(st.text("aVN3;. ", max_size=12).map(str.strip))
def test_inflected_words_come_back_from_their_tokens(text):
    assert detokenize(tokenize(text, "inflection"), "inflection") == text


def test_known_words_stay_words(tmp_path):
    pairs = [(f"{one} and {two}", f"{two} {one}") for one in NUMBERS for two in NUMBERS]
    result, preset = prepared(tmp_path, pairs)
    assert result.kinds == ("word", "word")
    assert result.choice == "Words: all of those in held-out pairs are known."
    assert "subword" not in dict(summary_facts(result))["tokens"]
    assert preset.model.tie_embeddings == "none"


def test_known_symbols_with_punctuation_are_restored_as_they_stand(tmp_path):
    pairs = [(f"-{one}. +{two}.", f"{two} {one}") for one in NUMBERS for two in NUMBERS]
    result, _ = prepared(tmp_path, pairs)
    assert result.kinds == ("symbol", "word")
    assert "Sources: symbols, split at spaces: all of those in held-out pairs are known." in result.choice


def test_a_special_token_in_the_text_is_never_a_symbol(tmp_path):
    pairs = [(f"<UNK> {one}. {two}", f"{two} {one}") for one in NUMBERS for two in NUMBERS]
    result, _ = prepared(tmp_path, pairs)
    assert result.kinds == ("word", "word")
    assert result.pairs == len(pairs)


def test_letters_beside_phones_are_told_apart(tmp_path):
    pairs = [(f"{one}{two}", f"P{len(one)} P{len(two)}") for one in NUMBERS for two in NUMBERS]
    result, _ = prepared(tmp_path, pairs)
    assert result.kinds == ("character", "word")


def test_sentences_with_unknown_words_become_subwords_and_the_reason_is_exact(tmp_path):
    """The share in the reason is that of UNK in a task with words, counted here by hand."""
    pairs = sentences(300)
    result, preset = prepared(tmp_path, pairs)
    assert result.kinds == ("subword", "subword")
    _, words = prepare_preset(
        PairFiles(tmp_path / "mine.tsv"), tmp_path / "words", kinds=("word", "word"), name="words"
    )
    table = build_task(words.task, pairs=tmp_path / "words").table
    shares = []
    for rows in (table.src, table.tgt):
        ids = [row for index in range(len(table)) if table.split[index] for row in rows.row(index)]
        shares.append(ids.count(UNK_ID) / len(ids))
    side = ("sources", "targets")[shares.index(max(shares))]
    assert max(shares) > 0.01
    expected = (
        f"Subwords: {100 * max(shares):.1f} % of the words in held-out {side} would be unknown with words as tokens."
    )
    assert result.choice == expected
    task = build_task(preset.task, pairs=tmp_path / "kept")
    assert not any((rows.ids == UNK_ID).any() for rows in (task.table.src, task.table.tgt))


def test_words_that_leave_unknown_tokens_come_with_the_share_and_advice(tmp_path):
    result, _ = prepared(tmp_path, sentences(300), kinds=("word", "word"))
    assert result.choice == ""
    assert "read as UNK; subwords would leave none" in dict(summary_facts(result))["unknown tokens in held-out pairs"]


def test_subwords_on_one_side_are_refused(tmp_path):
    with pytest.raises(InputError, match="tokens=subword,word must be subword on both sides or on neither"):
        prepared(tmp_path, sentences(20), kinds=("subword", "word"))


# --- vocabulary and model ------------------------------------------------------------------------------------------


def test_the_vocabulary_grows_with_the_text_and_is_shared_by_one_alphabet(tmp_path):
    sizes = [prepared(tmp_path, sentences(number))[0].subwords for number in (30, 1_000, 2_000)]
    assert [size.joint for size in sizes] == [True] * 3
    assert sizes[0].vocabulary_size <= 500
    assert 1_000 <= sizes[1].vocabulary_size <= 2_000
    assert sizes[1].vocabulary_size < sizes[2].vocabulary_size <= 3_000


def test_other_alphabets_get_vocabularies_of_their_own(tmp_path):
    """A word of Latin letters in every target does not make the alphabets one."""
    cyrillic = {ord("a") + index: chr(ord("а") + index) for index in range(26)}
    pairs = [(source, "LibreOffice " + target.lower().translate(cyrillic)) for source, target in sentences(200)]
    result, preset = prepared(tmp_path, pairs)
    assert not result.subwords.joint
    assert (preset.task.joint_vocabulary, preset.model.tie_embeddings) == (False, "output")
    assert "source vocabulary" in dict(summary_facts(result))


def test_a_character_that_nobody_would_see_is_named(tmp_path):
    result, _ = prepared(tmp_path, [(f"{n:03}\u200d", f"{n:03}\u202e") for n in range(30)])
    facts = dict(summary_facts(result))
    assert ("U+200D" in facts["source vocabulary"], "U+202E" in facts["target vocabulary"]) == (True, True)


def test_characters_by_the_thousand_are_all_in_the_vocabulary(tmp_path):
    signs = [chr(code) for code in range(0x4E00, 0x4E00 + 2_000)]
    pairs = [
        ("a sentence " + " ".join(islice(cycle(NUMBERS), n % 9, n % 9 + 4)) + str(n), "".join(signs[n * 5 : n * 5 + 5]))
        for n in range(400)
    ]
    result, preset = prepared(tmp_path, pairs)
    assert result.kinds == ("subword", "subword")
    assert preset.task.vocabulary_size > 2_000


def test_the_preset_fits_the_number_of_sentences(tmp_path):
    few, many = (prepared(tmp_path, sentences(number))[1] for number in (100, 6_000))
    for preset in (few, many):
        assert preset.model.tie_embeddings == "all"
        assert preset.training.label_smoothing == 0.1
        assert preset.longest_sequence == preset.model.max_seq_len
    assert few.model.d_model < many.model.d_model
    assert few.model.dropout > many.model.dropout
    assert few.training.steps < many.training.steps


# --- held-out pairs marked in the file -----------------------------------------------------------------------------


def test_marked_pairs_are_held_out_and_their_sources_leave_training(tmp_path):
    pairs = [(f"s{number}", "t") for number in range(20)] + [("s3", "other")]
    pairs += [
        ("s3", "t", "test"),
        ("s4", "u", "validation"),
        ("new", "t", "Test"),
        ("new", "v", "validation"),
        ("s5", "t", "train"),
    ]
    result, preset = prepared(tmp_path, pairs)
    assert result.held_out == {"test": 2, "validation": 1}
    assert (result.overlaps, result.duplicates) == (4, 1)  # s3 twice, s4, and new in validation; s5 again
    task = build_task(preset.task, pairs=tmp_path / "kept")
    of_split = {
        split: {"".join(task.src_vocab.decode(task.table.src.row(row))) for row in task.table.rows(split).tolist()}
        for split in ("test", "validation")
    }
    assert {name: len(sources) for name, sources in of_split.items()} == {"test": 2, "validation": 1}
    assert dict(summary_facts(result))["test pairs"] == "2, marked as held out"


@pytest.mark.parametrize("name", ["p.tsv", "p.csv", "p.jsonl"])
def test_every_format_may_mark_held_out_pairs(tmp_path, name):
    rows = [*((f"s{number}", "t", "") for number in range(12)), ("x", "y", "test"), ("z", "y", "Hard ones")]
    if name == "p.jsonl":
        content = [json.dumps(dict(zip(("source", "target", "split"), row, strict=True))) for row in rows]
    else:
        content = [("\t" if name == "p.tsv" else ",").join(row) for row in [("source", "target", "split"), *rows]]
    (tmp_path / name).write_text("\n".join(content) + "\n")
    result, _ = prepare_preset(PairFiles(tmp_path / name), tmp_path / "kept", name="mine")
    assert (result.pairs, result.held_out, result.sets) == (14, {"test": 2}, {"hard-ones": 1})
    assert not result.skipped


# --- text in, text out ---------------------------------------------------------------------------------------------

HOSTILE = [
    "  two  spaces ",
    "a\u00a0no-break  \u2003em space",
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈",
    "שלום \u202eעולם\u202c mixed عربي",
    "e\u0301 o\u0308\u0323 a\u0334\u0335\u0336",
    "line\u2028separator \u2029 paragraph",
    "\ufeff byte order mark",
    "\u200b\u200d\ufe0f zero width",
    "<UNK> <PAD> <BOS> <s> </s> <0x41> ⁇",
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿 \U0010ffff \ue000",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ﬁ ½ Å",
]
REFUSED = ["nul \0 nul", "bell \a", "\u2581mark of spaces", "half \ud83d", "x" * 70_000]


def hostile_lines(number: int) -> list[str]:
    """Return distinct lines of any characters, from a fixed seed."""
    random_ = random.Random(0)  # noqa: S311 - test data
    codes = [
        code for code in range(0x20, 0x30000) if unicodedata.category(chr(code)) not in ("Cc", "Cs") and code != 0x2581
    ]
    codes = random_.sample(codes, 1_000)  # more would not fit into the largest vocabulary
    lines = [f"{text}{index}" for index, text in enumerate(islice(cycle(HOSTILE), number // 2))]
    while len(lines) < number:
        alphabet = random_.sample(codes, 8) + [ord(" ")] * 2
        lines.append("".join(map(chr, random_.choices(alphabet, k=random_.randint(1, 40)))) + f" {len(lines)}")
    return lines


def test_hostile_lines_come_back_through_import_and_vocabulary(tmp_path):
    """Import normalizes Unicode (NFC) and drops spaces around a text; nothing else changes, on either side."""
    lines = hostile_lines(2_000)
    objects = [json.dumps([line, lines[-1 - index]]) for index, line in enumerate(lines)]
    objects[100:100] = [json.dumps([line, "target"]) for line in REFUSED]
    (tmp_path / "hostile.jsonl").write_text("\n".join(objects) + "\n")
    files = PairFiles(tmp_path / "hostile.jsonl")
    result, preset = prepare_preset(files, tmp_path / "kept", kinds=("subword", "subword"), name="mine")
    assert result.pairs == len(lines)
    assert dict(result.skipped) == {
        "control character": 2,
        "mark of spaces": 1,
        "unpaired surrogate": 1,
        "line too long": 1,
    }
    task = build_task(preset.task, pairs=tmp_path / "kept")
    assert len(task.table) == len(lines)
    expected = [unicodedata.normalize("NFC", line).strip() for line in lines]
    assert [task.source_text(task.src_vocab.decode(task.table.src.row(row))) for row in range(len(lines))] == expected
    assert [task.answer_text(task.tgt_vocab.decode(task.table.tgt.row(row))) for row in range(len(lines))] == expected[
        ::-1
    ]
    for line in lines:  # typed, nothing is changed at all
        assert task.source_text(task.tokenize(line)) == line


def test_typed_text_that_cannot_be_read_is_refused_with_the_reason(tmp_path):
    _, preset = prepared(tmp_path, sentences(50))
    task = build_task(preset.task, pairs=tmp_path / "kept")
    for text, reason in (
        ("a \u2581 b", "U\\+2581"),
        ("half \ud83d", "unpaired surrogate"),
        ("x" * 1_000_000, "has 1000000 characters; the maximum is 2000"),
        ("", "input is empty"),
    ):
        with pytest.raises(InputError, match=reason):
            task.tokenize(text)
    assert task.source_text(task.tokenize("nul \0 nul")) == "nul \0 nul"


def test_a_pair_of_too_many_subwords_is_left_out_and_counted(tmp_path):
    # Digits are pieces of their own, so that the number of subwords is known.
    result, preset = prepared(tmp_path, [*sentences(100), ("1234567890" * 60, "short"), ("short", "2" * 20_000)])
    assert result.too_long == 2
    assert dict(summary_facts(result))["longer than 510 subwords"] == "2 pairs, left out"
    assert len(build_task(preset.task, pairs=tmp_path / "kept").table) == 100
    assert result.source_lengths.total() == 100


# --- from end to end -----------------------------------------------------------------------------------------------


def test_a_file_of_the_corpus_command_keeps_its_split(tmp_path, capsys):
    pairs, split = corpus()
    marked = [
        (*pair, *([SPLITS[at]] if at else [])) for pair, at in list(zip(pairs, split.tolist(), strict=True))[:1_000]
    ]
    out = tmp_path / "help.yaml"
    assert main(["data", str(write(tmp_path / "help.tsv", marked)), "--out", str(out), "--json"]) == 0
    output = capsys.readouterr().out
    found = last_json(output)
    assert found["tokens"] == ["subword", "subword"]
    assert found["unknown"] == [0.0, 0.0]
    assert "training time on this machine: " in output
    task = build_task(load_preset_file(out).task, pairs=tmp_path / "help.pairs.tsv")
    for index, name in enumerate(SPLITS):
        expected = {pair[0] for pair in marked if (pair[2:] or ("train",)) == (name,)}
        rows = (task.table.split == index).nonzero().squeeze(1).tolist()
        assert {task.source_text(task.src_vocab.decode(task.table.src.row(row))) for row in rows} == expected
    assert (found["test_pairs"], found["validation_pairs"]) == tuple(
        sum(pair[2:] == (name,) for pair in marked) for name in ("test", "validation")
    )


@pytest.mark.slow
def test_two_thousand_sentences_from_file_to_answer(tmp_path, capsys):
    """With the defaults of the command line: 2,000 pairs of 3,000 word types and more, trained for a few steps."""
    pairs = sentences(2_000)
    assert len({word for source, _ in pairs for word in source.split()}) >= 3_000
    out, root = tmp_path / "mine.yaml", tmp_path / "runs"
    assert main(["data", str(write(tmp_path / "mine.tsv", pairs)), "--out", str(out), "--json"]) == 0
    found = last_json(capsys.readouterr().out)
    assert found["tokens"] == ["subword", "subword"]
    assert max(found["unknown"]) <= 0.01
    assert 1_000 <= found["subwords"]["vocabulary_size"] <= 2_000
    changes = {"steps": 200, "warmup_steps": 20, "evaluate_every": 200, "validation_sequences": 20}
    settings = [part for key, value in changes.items() for part in ("--set", f"training.{key}={value}")]
    assert main(["--checkpoints", str(root), "train", "--preset", str(out), "--run", "mine", *settings]) == 0
    text = "Click OK,  then save."
    loaded = load_run(root / "mine")
    assert loaded.task.source_text(loaded.task.tokenize(text)) == text
    capsys.readouterr()
    assert main(["--checkpoints", str(root), "decode", "--run", "mine", text]) == 0
    answer = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("output"))
    assert len(answer.removeprefix("output").strip()) > 3
    assert "\u2581" not in answer
    metrics = [json.loads(line) for line in (root / "mine" / "metrics.jsonl").read_text().splitlines()]
    losses = [each["loss"] for each in metrics if "loss" in each]
    assert losses[-1] < losses[0]


def test_the_summary_names_tokens_vocabulary_unknown_share_and_an_example(tmp_path):
    result, _ = prepared(tmp_path, sentences(100))
    lines = "\n".join(summary_lines(result))
    for part in (
        "tokens                           Subwords: ",
        "shared by source and target",
        "unknown tokens in held-out pairs 0 %; rare characters are written as bytes",
        "first pair as tokens             ▁",
    ):
        assert part in lines


def test_pairs_written_from_right_to_left_are_isolated_in_the_summary(tmp_path):
    """Or the two sides of the arrow, and the numbers beside them, would change their places."""
    result, _ = prepared(tmp_path, [(f"שלום {number}", f"سلام {number}") for number in range(40)])
    source, target = dict(summary_facts(result))["first pair as tokens"].split("  →  ")
    for side in (source, target):
        assert (side[0], side[-1]) == ("\u2068", "\u2069")
    assert any(line.startswith("  \u2068שלום") for line in summary_lines(result))
