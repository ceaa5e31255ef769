"""Text lines: held-out lines, prompts in training only, perplexity beside n-gram models."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.__main__ import main
from core.config import ConfigError, load_preset
from core.config.tasks import TextConfig
from core.evaluation.accuracy import evaluate
from core.evaluation.ngram import NGram
from core.interpret.inspection import inspect
from core.reports.report import write_report
from core.runs import RunFolder
from core.server import Runs
from core.storage.errors import InputError
from core.tasks import build_task, fixed_pairs
from core.tasks.text_lines import PROMPTED_SHARE, TEXT, TextLines
from core.text.vocab import EOS_ID
from tests.support.command_output import last_json
from tests.support.trainings import train_run

TASK = TextLines(TextConfig(max_length=64))
SPLITS = ("train", "validation", "test")


def drawn(count: int, split: str, seed: int = 0) -> list[tuple[str, str]]:
    """Draw pairs as text."""
    batch = TASK.sample(count, split=split, generator=torch.Generator().manual_seed(seed))
    assert batch.src.shape == (count, 14)
    assert batch.tgt.shape == (count, 66)
    return [
        tuple(TASK.answer_text(TASK.src_vocab.decode(row[1 : row.index(EOS_ID)])) for row in pair)
        for pair in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True)
    ]


def lines(split: str) -> set[str]:
    return {TASK.answer_text(TASK.tgt_vocab.decode(line)) for line in TASK.lines(split)}


@pytest.fixture(scope="module")
def writing(tiny):
    return tiny.with_changes({"task.family": "text", "task.max_length": 16, "model.max_seq_len": 20})


@pytest.fixture(scope="module")
def written(tmp_path_factory, writing):
    """A folder with one finished run that models text, ``lines``."""
    root = tmp_path_factory.mktemp("written")
    folder = RunFolder.create(root, writing, name="lines")
    train_run(folder)
    return root


def test_every_line_is_in_exactly_one_split():
    parts = [lines(split) for split in SPLITS]
    assert sum(len(part) for part in parts) == len(set.union(*parts))
    assert set.union(*parts) == {line[:64].rstrip() for line in TEXT.read_text().splitlines()}
    assert len(parts[0]) / len(set.union(*parts)) == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("split", SPLITS)
def test_samples_are_lines_with_prompts_in_training_only(split):
    pairs = drawn(2_000, split)
    known = lines(split)
    assert {prompt + rest for prompt, rest in pairs} <= known
    assert all(rest for _, rest in pairs)
    prompts = [len(prompt) for prompt, _ in pairs]
    if split == "train":
        assert sum(length > 0 for length in prompts) / 2_000 == pytest.approx(PROMPTED_SHARE, abs=0.03)
        assert set(prompts) == set(range(13))
    else:
        assert set(prompts) == {0}


def test_equal_generators_draw_equal_lines_and_fixed_sets_have_no_duplicates():
    assert drawn(20, "train", seed=3) == drawn(20, "train", seed=3) != drawn(20, "train", seed=4)
    held_out = TASK.lines("test")
    pairs = fixed_pairs(TASK, len(held_out), split="test")
    assert len(pairs) == len(held_out)
    assert sorted(row[1 : row.index(EOS_ID)] for row in pairs.tgt.tolist()) == sorted(held_out)


def test_a_prompt_is_tokenized_by_character():
    assert TASK.tokenize("The LORD is ") == list("The LORD is ")
    assert TASK.tokenize("\n") == TASK.tokenize("") == []
    assert TASK.answer(list("The")) == TASK.gold_alignment(list("The")) == []
    assert TASK.source_text(TASK.tokenize("The LORD is ")) == "The LORD is "
    assert TASK.note([]) == "a line has no single reference to compare with"
    assert "longer than any training input (0–12 tokens)" in TASK.note(TASK.tokenize("The LORD is my shepherd"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("naïve", "'ï' at position 3 is not one of"),
        ("a\nb", r"^U\+000A at position 2"),
        ("a" * 2_001, "the maximum is 2000"),
    ],
    ids=lambda value: value[:8],
)
def test_characters_not_in_the_text_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        TASK.tokenize(text)


@given(text=st.text(max_size=20))
def test_any_text_is_tokenized_or_refused(text):
    try:
        assert "".join(TASK.tokenize(text)) == text.strip("\r\n")
    except InputError as error:
        assert str(error)  # noqa: PT017 - no error at all is as good


def test_lines_longer_than_max_seq_len_are_refused():
    with pytest.raises(ConfigError, match=r"task\.max_length=200 with BOS and EOS needs 202 positions, more than"):
        load_preset("psalms").with_changes({"task.max_length": 200})


def test_perplexity_command_measures_run_and_ngrams_on_the_same_lines(written, writing, capsys):
    assert main(["--checkpoints", str(written), "perplexity", "--run", "lines", "--order", "2", "--json"]) == 0
    output = last_json(capsys.readouterr().out)
    task = build_task(writing.task)
    held_out = task.lines("test")
    bigrams = NGram(task.lines("train"), order=2, num_tokens=len(task.tgt_vocab.symbols) + 1)
    own = evaluate(Runs(written)["lines"].trained().model, fixed_pairs(task, len(held_out), split="test"))
    assert output["lines"] == len(held_out)
    assert output["ngrams"]["2"] == pytest.approx(math.exp(bigrams.loss(held_out)))
    assert output["perplexity"] == pytest.approx(own.perplexity)
    assert output["ngrams"]["2"] < output["ngrams"]["1"] < 30


def test_perplexity_command_refuses_other_tasks_and_orders(written, tmp_path, tiny, capsys):
    folder = RunFolder.create(tmp_path, tiny, name="digits")
    train_run(folder)
    assert main(["--checkpoints", str(tmp_path), "perplexity", "--run", "digits"]) == 2
    assert "run='digits' does not model text; its task is to reverse 2–5 digits" in capsys.readouterr().err
    assert main(["--checkpoints", str(written), "perplexity", "--run", "lines", "--order", "13"]) == 2
    assert "--order=13 must be from 1 to 12" in capsys.readouterr().err


def test_open_ended_answers_are_neither_correct_nor_wrong(written, capsys):
    runs = Runs(written)
    loaded = runs["lines"].trained()
    seen = inspect(loaded.model, loaded.task, "")
    assert seen.symbols == seen.scores == []
    assert seen.expected is seen.correct is None
    assert "no single reference" in seen.note
    report = write_report(runs["lines"], sequences=20)
    assert report.summary.startswith("This task has no single reference answer")
    assert "nan" not in report.markdown
    assert main(["--checkpoints", str(written), "evaluate", "--run", "lines", "--sequences", "20"]) == 0
    assert "no single reference answer" in capsys.readouterr().out
    assert main(["--checkpoints", str(written), "decode", "--run", "lines", "", "--json"]) == 0
    output = capsys.readouterr().out
    assert "wrong" not in output
    assert last_json(output)["correct"] is None


@pytest.mark.parametrize("length", [16, 64, 250])
def test_there_are_as_many_lines_as_the_config_says(length):
    config = TextConfig(max_length=length)
    task = build_task(config)
    assert sum(len(task.lines(split)) for split in ("train", "validation", "test")) >= config.num_distinct
