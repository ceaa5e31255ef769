"""BLEU: sacrebleu's score of the answers' text, for translation tasks only."""

import json
import sys

import pytest
import torch

from core.__main__ import main
from core.evaluation.bleu import corpus_bleu, measure_bleu
from core.models import build_model
from core.reports.report import measure
from core.reports.report.tables import ReportedRun, metrics_table
from core.runs import RunFolder
from core.runs.load import SavedRuns, load_run
from core.runs.recorder import train_recorded
from core.storage.errors import LabError
from core.tasks import build_task, fixed_pairs
from core.teaching.bugs import new_state
from core.text.vocab import EOS_ID, until_eos
from core.training.history import History

sacrebleu = pytest.importorskip("sacrebleu")
pytest.importorskip("num2words")


@pytest.fixture(scope="module")
def translation_preset(tiny):
    return tiny.with_changes(
        {
            "task.family": "number-words",
            "training.training_sequences": 50,
            "training.steps": 1,
            "training.warmup_steps": 1,
            "training.evaluate_every": 1,
        }
    )


@pytest.fixture(scope="module")
def task(translation_preset):
    return build_task(translation_preset.task)


@pytest.fixture(scope="module")
def translation_runs(tmp_path_factory, translation_preset):
    """A folder with one finished run of a translation task, ``translation``."""
    root = tmp_path_factory.mktemp("translation")
    folder = RunFolder.create(root, translation_preset, name="translation")
    train_recorded(
        folder, new_state(translation_preset), History(), should_stop=lambda: False, on_event=lambda event: None
    )
    return root


def test_the_score_is_sacrebleu_s_of_the_text(task):
    references = [["deux", "mille", "cent", "quatre", "-vingt", "-un"], ["mille", "six", "cent", "vingt", "et", "un"]]
    assert corpus_bleu(task, references, references).score == pytest.approx(100)
    outputs = [["deux", "mille", "cent", "quatre", "-vingt", "un"], ["mille", "six", "cent", "vingt", "et", "un"]]
    output_texts = ["deux mille cent quatre-vingt un", "mille six cent vingt et un"]
    reference_texts = ["deux mille cent quatre-vingt-un", "mille six cent vingt et un"]
    bleu = corpus_bleu(task, outputs, references)
    assert 0 < bleu.score < 100
    assert bleu.score == pytest.approx(sacrebleu.corpus_bleu(output_texts, [reference_texts]).score)
    assert bleu.name == "BLEU"
    assert "tok:13a" in bleu.signature


def test_german_number_words_have_character_bleu(tiny):
    german = build_task(tiny.with_changes({"task.family": "number-words", "task.language": "german"}).task)
    bleu = corpus_bleu(german, [["acht", "##zehn"]], [["acht", "##zehn"]])
    assert bleu.score == pytest.approx(100)
    assert bleu.name == "character BLEU"
    assert "tok:char" in bleu.signature


def test_a_random_model_has_a_low_score_and_keeps_its_mode(translation_preset, task):
    pairs = fixed_pairs(task, 40, split="test")
    model = build_model(translation_preset.model, task, torch.Generator().manual_seed(0))
    assert measure_bleu(model, task, pairs).score < 50
    assert model.training


def test_a_perfect_model_scores_100(scripted, task):
    pairs = fixed_pairs(task, 40, split="test")
    known = {tuple(until_eos(src)): tgt for src, tgt in zip(pairs.src.tolist(), pairs.tgt_out.tolist(), strict=True)}
    model = scripted(
        lambda src: torch.tensor([known[tuple(until_eos(row))] for row in src.tolist()]),
        vocab_size=len(task.tgt_vocab),
    )
    assert measure_bleu(model, task, pairs).score == pytest.approx(100)


def test_tasks_that_are_not_translations_have_no_bleu(tiny, scripted):
    task = build_task(tiny.task)
    assert corpus_bleu(task, [["1"]], [["1"]]) is None
    assert measure_bleu(scripted(lambda src: src), task, fixed_pairs(task, 3, split="test")) is None


def test_a_missing_sacrebleu_is_named_with_its_install_command(task, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(LabError, match="BLEU needs the package sacrebleu: pip install sacrebleu"):
        corpus_bleu(task, [["un"]], [["un"]])


def test_evaluate_decode_and_report_print_text_and_bleu(translation_runs, capsys):
    arguments = ["--checkpoints", str(translation_runs)]
    assert main([*arguments, "evaluate", "--run", "translation", "--sequences", "50", "--json"]) == 0
    printed = capsys.readouterr().out
    assert "BLEU  " in printed
    assert "sacrebleu signature nrefs:1|" in printed
    assert json.loads(printed.strip().splitlines()[-1])["bleu"]["signature"].startswith("nrefs:1|")
    assert main([*arguments, "decode", "--run", "translation", "eighty-one"]) == 0
    assert "expected  quatre-vingt-un" in capsys.readouterr().out
    loaded = load_run(translation_runs / "translation")
    measured = measure(loaded.model, loaded.task, fixed_pairs(loaded.task, 40, split="test"))
    info = SavedRuns(translation_runs).info("translation")
    rows = metrics_table(measured, ReportedRun(loaded, info, train_loss=None))
    assert any(row[0].startswith("BLEU") and "sacrebleu signature nrefs:1|" in row[1] for row in rows)
    assert loaded.preset.task.summary == "translate 0–9,999 from English words to French"


def test_until_eos_cuts_at_the_first_eos():
    assert until_eos([5, 6, EOS_ID, 7, EOS_ID]) == [5, 6]
    assert until_eos((5, 6)) == [5, 6]
    assert until_eos([EOS_ID]) == until_eos([]) == []
