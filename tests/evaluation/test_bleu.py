"""BLEU: of text, by sacrebleu, and only where the task is a translation."""

import json
import sys

import pytest
import torch

from core.__main__ import main
from core.evaluation.bleu import corpus_bleu, measure_bleu
from core.models import build_model
from core.reports.report import write_report
from core.runs import RunFolder
from core.runs.recorder import train_recorded
from core.server import Runs
from core.storage.errors import LabError
from core.tasks import build_task, fixed_pairs
from core.teaching.bugs import new_state
from core.text.vocab import EOS_ID, until_eos
from core.training.history import History

sacrebleu = pytest.importorskip("sacrebleu")
pytest.importorskip("num2words")


@pytest.fixture(scope="module")
def translating(tiny):
    return tiny.with_changes({"task.family": "number-words", "training.training_sequences": 50})


@pytest.fixture(scope="module")
def task(translating):
    return build_task(translating.task)


@pytest.fixture(scope="module")
def translated(tmp_path_factory, translating):
    """A folder with one finished run of a translation, ``said``."""
    root = tmp_path_factory.mktemp("translated")
    folder = RunFolder.create(root, translating, name="said")
    train_recorded(folder, new_state(translating), History(8), should_stop=lambda: False, on_event=lambda event: None)
    return root


def test_the_right_translations_score_100_and_others_what_sacrebleu_says_of_their_text(task):
    references = [["deux", "mille", "cent", "quatre", "-vingt", "-un"], ["mille", "six", "cent", "vingt", "et", "un"]]
    assert corpus_bleu(task, references, references).score == pytest.approx(100)
    outputs = [["deux", "mille", "cent", "quatre", "-vingt", "un"], ["mille", "six", "cent", "vingt", "et", "un"]]
    said = ["deux mille cent quatre-vingt un", "mille six cent vingt et un"]
    right = ["deux mille cent quatre-vingt-un", "mille six cent vingt et un"]
    bleu = corpus_bleu(task, outputs, references)
    assert 0 < bleu.score < 100
    assert bleu.score == pytest.approx(sacrebleu.corpus_bleu(said, [right]).score)
    assert "tok:13a" in bleu.signature


def test_german_is_compared_letter_by_letter(tiny):
    german = build_task(tiny.with_changes({"task.family": "number-words", "task.language": "german"}).task)
    bleu = corpus_bleu(german, [["acht", "##zehn"]], [["acht", "##zehn"]])
    assert bleu.score == pytest.approx(100)
    assert "tok:char" in bleu.signature


def test_a_model_is_scored_on_what_it_writes_by_itself(translating, task):
    pairs = fixed_pairs(task, 40, split="test")
    model = build_model(translating.model, task, torch.Generator().manual_seed(0))
    assert measure_bleu(model, task, pairs).score < 50
    assert model.training  # left as it was


def test_a_perfect_model_scores_100(scripted, task):
    pairs = fixed_pairs(task, 40, split="test")
    known = {tuple(until_eos(src)): tgt for src, tgt in zip(pairs.src.tolist(), pairs.tgt_out.tolist(), strict=True)}
    model = scripted(
        lambda src: torch.tensor([known[tuple(until_eos(row))] for row in src.tolist()]),
        vocab_size=len(task.tgt_vocab),
    )
    assert measure_bleu(model, task, pairs).score == pytest.approx(100)


def test_there_is_no_bleu_of_what_is_no_translation(tiny, scripted):
    task = build_task(tiny.task)
    assert corpus_bleu(task, [["1"]], [["1"]]) is None
    assert measure_bleu(scripted(lambda src: src), task, fixed_pairs(task, 3, split="test")) is None


def test_without_sacrebleu_its_name_is_told(task, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(LabError, match="BLEU needs the package sacrebleu: pip install sacrebleu"):
        corpus_bleu(task, [["un"]], [["un"]])


def test_evaluate_decode_and_report_speak_of_text(translated, capsys):
    arguments = ["--checkpoints", str(translated)]
    assert main([*arguments, "evaluate", "--run", "said", "--sequences", "50", "--json"]) == 0
    printed = capsys.readouterr().out
    assert "BLEU" in printed
    assert json.loads(printed.strip().splitlines()[-1])["bleu"]["signature"].startswith("nrefs:1|")
    assert main([*arguments, "decode", "--run", "said", "eighty-one"]) == 0
    assert "expected  quatre-vingt-un" in capsys.readouterr().out
    report = write_report(Runs(translated), "said", sequences=40).markdown
    assert "BLEU, each input by itself" in report
    assert "translate 0–9,999 from English words to French" in report


def test_tokens_before_eos_are_those_before_the_first():
    assert until_eos([5, 6, EOS_ID, 7, EOS_ID]) == [5, 6]
    assert until_eos((5, 6)) == [5, 6]
    assert until_eos([EOS_ID]) == until_eos([]) == []
