"""Own pairs: split by source, reproducible, verified by SHA-256, and copied into every run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core.__main__ import main
from core.config import (
    PRESET_FOLDER,
    ConfigError,
    load_preset,
    load_preset_file,
    pairs_beside,
    preset_to_yaml,
    read_preset,
)
from core.interpret.inspection import inspect
from core.runs import RunFolder
from core.server import Runs
from core.tasks import build_task, fixed_pairs
from core.tasks.ingest import HeldOutFile, PairFiles, StagingArea, prepare_preset
from core.tasks.ingest.staging import MAX_FILES
from core.tasks.pairs import SPLITS
from tests.support.trainings import train_run

REPOSITORY = Path(__file__).resolve().parents[2]
SYMBOLS = ("character", "symbol")
TINY = {"model.d_model": 8, "model.d_ff": 8, "model.num_heads": 2, "training.steps": 6, "training.evaluate_every": 3}
TINY |= {"training.warmup_steps": 0}


def pair(number: int) -> tuple[str, str]:
    """Letters for digits, and the digits: 204 is cae."""
    digits = str(number)
    return "".join("abcdefghij"[int(digit)] for digit in digits), " ".join(digits)


def written(path, numbers=range(100, 400), extra=()):
    path.write_text("".join(f"{source}\t{answer}\n" for source, answer in [*map(pair, numbers), *extra]))
    return path


@pytest.fixture
def pairs(tmp_path) -> Path:
    return tmp_path / "own.pairs.tsv"


@pytest.fixture
def own(tmp_path, pairs):
    """A preset of 300 pairs, one of whose sources has two answers, and their pairs file."""
    source = written(tmp_path / "numbers.tsv", extra=[("bcd", "one two three")])
    result, preset = prepare_preset(PairFiles(source), pairs, kinds=SYMBOLS, name="own")
    assert (result.pairs, result.sources) == (301, 300)
    return preset.with_changes(TINY)


def sources(task, split: str) -> list[str]:
    pairs = task.all_pairs(split)
    return ["".join(task.src_vocab.decode(pairs.table.src.row(row))) for row in pairs.rows.tolist()]


# --- the task ------------------------------------------------------------------------------------------------------


def test_no_source_is_in_two_splits(own, pairs):
    task = build_task(own.task, pairs=pairs)
    parts = {split: set(sources(task, split)) for split in SPLITS}
    assert {split: len(part) for split, part in parts.items()} == {"train": 240, "validation": 30, "test": 30}
    assert len(set.union(*parts.values())) == 300


def test_pairs_round_trip_through_the_file(own, pairs):
    task = build_task(own.task, pairs=pairs)
    batch = fixed_pairs(task, 1_000, split="test")
    assert len(batch) == 30
    for source in sources(task, "test"):
        expected = [" ".join(str("abcdefghij".index(letter)) for letter in source)]
        expected += ["one two three"] * (source == "bcd")
        assert [task.answer_text(answer) for answer in task.references(list(source))] == expected
    assert task.source_text(task.tokenize("cae")) == "cae"


def test_the_split_depends_on_the_seed_only(own, pairs):
    other = own.with_changes({"task.split_seed": 1})
    assert set(sources(build_task(own.task, pairs=pairs), "test")) != set(
        sources(build_task(other.task, pairs=pairs), "test")
    )
    assert sources(build_task(own.task, pairs=pairs), "test") == sources(build_task(own.task, pairs=pairs), "test")


def test_a_test_file_is_the_test_split(tmp_path, pairs):
    test = written(tmp_path / "test.tsv", range(500, 520))
    files = PairFiles(written(tmp_path / "train.tsv"), held_out=(HeldOutFile(test),))
    _, preset = prepare_preset(files, pairs, kinds=SYMBOLS, name="own")
    task = build_task(preset.task, pairs=pairs)
    assert sorted(sources(task, "test")) == sorted(pair(number)[0] for number in range(500, 520))
    assert len(sources(task, "train")) + len(sources(task, "validation")) == 300


def test_rare_tokens_are_unk_or_all_tokens_are_known(tmp_path, pairs):
    rare = [(f"{letter}a", "1") for letter in "klmnop"]  # each once: some of them are held out
    _, preset = prepare_preset(PairFiles(written(tmp_path / "n.tsv", extra=rare)), pairs, kinds=SYMBOLS, name="own")
    learned = {letter for source in sources(build_task(preset.task, pairs=pairs), "train") for letter in source}
    assert set(build_task(preset.task, pairs=pairs).src_vocab.symbols) == learned
    twice = build_task(preset.with_changes({"task.min_count": 2}).task, pairs=pairs)
    assert not set("klmnop") & set(twice.src_vocab.symbols)
    assert twice.src_vocab.decode(twice.src_vocab.encode(["k"])) == ["<UNK>"]
    strict = build_task(preset.with_changes({"task.unknown": "refuse"}).task, pairs=pairs)
    assert set("klmnop") <= set(strict.src_vocab.symbols)
    assert not strict.src_vocab.has_unk
    with pytest.raises(ConfigError, match=r"task.min_count=2 must be 1 with task.unknown='refuse'"):
        preset.with_changes({"task.unknown": "refuse", "task.min_count": 2})


def test_longer_pairs_are_skipped_and_an_empty_split_is_refused(tmp_path, pairs):
    path = written(tmp_path / "n.tsv", extra=[("a" * 40, "0 0")])
    _, preset = prepare_preset(PairFiles(path), pairs, kinds=SYMBOLS, name="own")
    assert preset.task.longest_source == 40
    shorter = preset.with_changes({"task.longest_source": 3})
    assert build_task(shorter.task, pairs=pairs).table.widths[0] == 3
    with pytest.raises(
        ConfigError, match=r"no pair is left for train: sources above 2 tokens \(task\.longest_source\)"
    ):
        build_task(preset.with_changes({"task.longest_source": 2}).task, pairs=pairs)
    with pytest.raises(ConfigError, match=r"task.longest_source=40 with BOS and EOS needs 42 positions"):
        preset.with_changes({"model.max_seq_len": 41})


# --- runs ----------------------------------------------------------------------------------------------------------


def test_a_run_has_its_own_copy_of_the_pairs(tmp_path, own, pairs):
    folder = RunFolder.create(tmp_path / "runs", own, name="kept", pairs=pairs)
    train_run(folder)
    os.remove(pairs)
    loaded = Runs(tmp_path / "runs")["kept"].trained()
    seen = inspect(loaded.model, loaded.task, sources(loaded.task, "test")[0])
    assert seen.expected
    assert main(["--checkpoints", str(tmp_path / "runs"), "evaluate", "--run", "kept", "--sequences", "20"]) == 0
    again = RunFolder.create(tmp_path / "runs", own, name="again", pairs=folder.pairs)
    assert (again.path / "pairs.tsv").read_bytes() == (folder.path / "pairs.tsv").read_bytes()


def test_a_resumed_run_uses_the_same_pairs(tmp_path, own, pairs):
    root = tmp_path / "runs"
    straight, stopped = (RunFolder.create(root, own, name=name, pairs=pairs) for name in ("straight", "stopped"))
    train_run(straight)
    train_run(stopped, stop_after=3)
    assert main(["--checkpoints", str(tmp_path / "runs"), "resume", "--run", "stopped"]) == 0
    finished = Runs(tmp_path / "runs")
    one, other = (finished[name].trained().model.state_dict() for name in ("straight", "stopped"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_missing_or_different_pairs_are_refused_by_field(tmp_path, own, pairs):
    other = written(tmp_path / "other.tsv", range(100, 120))
    for path, message in (
        (None, "the file with these pairs is missing"),
        (tmp_path / "nowhere.tsv", "the file with these pairs is missing"),
        (other, "other.tsv holds other pairs, with SHA-256"),
    ):
        with pytest.raises(ConfigError, match=rf"task\.data={own.task.data[:12]}…: {message}") as raised:
            build_task(own.task, pairs=path)
        assert [field for field, _ in raised.value.problems] == ["task.data"]
        with pytest.raises(ConfigError, match=message):
            RunFolder.create(tmp_path / "runs", own, name="none", pairs=path)
    assert not (tmp_path / "runs" / "none").exists()


def test_a_run_whose_pairs_were_changed_is_refused(tmp_path, own, pairs):
    folder = RunFolder.create(tmp_path / "runs", own, name="changed", pairs=pairs)
    assert len(build_task(own.task, pairs=folder.pairs).table) == 301
    with folder.pairs.open("a") as file:
        file.write("abc\t9 9 9\n")
    with pytest.raises(ConfigError, match=r"pairs\.tsv holds other pairs"):
        build_task(own.task, pairs=folder.pairs)


def test_a_preset_file_has_its_pairs_beside_it(tmp_path, own, pairs):
    away = tmp_path / "away"
    away.mkdir()
    (away / "mine.yaml").write_text(preset_to_yaml(own))
    shutil.move(pairs, away / "mine.pairs.tsv")
    preset = load_preset_file(away / "mine.yaml")
    assert preset == own
    assert read_preset(preset_to_yaml(preset), name="x") == own
    assert len(build_task(preset.task, pairs=pairs_beside(away / "mine.yaml")).table) == 301


def test_a_preset_that_ships_finds_its_pairs_wherever_it_is_trained(tmp_path):
    preset = load_preset("plurals")
    folder = RunFolder.create(tmp_path / "runs", preset, name="plurals")
    assert folder.pairs.read_bytes() == (PRESET_FOLDER / "plurals.pairs.tsv").read_bytes()
    task = build_task(preset.task)
    assert len(task.table) == preset.task.num_sources == len(set(folder.pairs.read_text().splitlines()))
    known, *made_up = preset.task.examples.splitlines()
    assert task.answer_text(task.answer(task.tokenize(known))) == "armies"
    assert not any(task.references(task.tokenize(word)) for word in made_up)
    letters = set("".join(task.src_vocab.symbols))
    assert all(letters.issuperset(word) for word in made_up)


# --- the data command and the staging area


def test_data_command_writes_a_preset_that_trains(tmp_path, capsys):
    source, out = written(tmp_path / "numbers.tsv"), tmp_path / "mine.yaml"
    assert main(["data", str(source), "--tokens", "character,symbol", "--out", str(out), "--json"]) == 0
    output = capsys.readouterr().out
    assert "different sources                300" in output
    assert '"sources": 300' in output.splitlines()[-1]
    settings = [part for key, value in TINY.items() for part in ("--set", f"{key}={value}")]
    run = ["--checkpoints", str(tmp_path / "runs"), "train", "--preset", str(out), "--run", "mine", *settings]
    assert main(run) == 0
    assert (tmp_path / "runs" / "mine" / "pairs.tsv").exists()
    assert load_preset_file(out).name == "numbers"  # after the file of the pairs


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            ["--tokens", "letters"],
            "--tokens='letters' must be auto, one of character, word, symbol, inflection, subword",
        ),
        (["--out", "x.txt"], "--out=x.txt must end with .yaml"),
        (["--name", "Not A Name"], "name='Not A Name'"),
        (["--format", "jsonl"], "skipped rows: 300, the first: line 1: "),
    ],
)
def test_data_command_reports_errors_in_one_line(tmp_path, capsys, options, problem):
    source = written(tmp_path / "numbers.tsv")
    assert main(["data", str(source), "--out", str(tmp_path / "out.yaml"), *options]) == 2
    error = capsys.readouterr().err
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(error)
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out.yaml").exists()


def test_the_staging_area_drops_the_oldest_files(tmp_path):
    staging, source = StagingArea(), written(tmp_path / "numbers.tsv", range(100, 115))
    held = [staging.stage(PairFiles(source), kinds=SYMBOLS) for _ in range(MAX_FILES + 1)]
    assert held[0][1] == held[-1][1]
    assert len(build_task(held[-1][1].task, pairs=held[-1][2]).table) == 15
    assert not held[0][2].exists()
    assert len(list(staging._staged)) == MAX_FILES
    assert all(path.exists() for _, path in staging._staged)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from Linux's /proc")
def test_a_million_pairs_load_in_half_a_minute_and_a_gigabyte(tmp_path):
    resource = pytest.importorskip("resource")
    with (tmp_path / "many.tsv").open("w") as file:
        file.writelines("\t".join(pair(number * 9_973 % 99_999_989)) + "\n" for number in range(1_000_000))
    code = """
import re, sys
from pathlib import Path
from core.tasks.ingest import HeldOutFile, PairFiles, prepare_preset
from core.tasks import build_task, fixed_pairs

folder = Path(sys.argv[1])
files, kinds = PairFiles(folder / "many.tsv"), ("character", "symbol")
result, preset = prepare_preset(files, folder / "kept", kinds=kinds, name="many")
assert len(build_task(preset.task, pairs=folder / "kept").table) == 1_000_000
assert len(fixed_pairs(build_task(preset.task, pairs=folder / "kept"), 1_000, split="test")) == 1_000
# ru_maxrss would begin at the memory of the process that started this one.
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", code, str(tmp_path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    megabytes = int(output) / 1_000
    print(f"\na million pairs: {seconds:.1f} s of one core, {megabytes:.0f} MB")
    assert seconds < 30
    assert megabytes < 1_000
