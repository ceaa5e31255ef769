"""The figures that decide how good a run is: chosen by the shape of the answers, in one place, and shown everywhere."""

import hashlib
import json

import pytest

from core.__main__ import main
from core.config import load_preset
from core.config.tasks import OwnPairsConfig
from core.evaluation.headline import HeadlineFigure, headline_of
from core.reports.formatting import headline_text
from core.reports.report.writing import write_report
from core.runs import DEFAULT_ROOT, RunFolder, RunInfo, RunQuality
from core.runs.run import Runs
from core.tasks import build_task
from tests.support.command_output import last_json
from tests.support.trainings import train_run

pytest.importorskip("sacrebleu")
EXACT = ("exact_match",)


def own_task(folder, answers, *, kind="word", sources=200):
    """A task of own pairs: ``answers(n)`` are the answers to source ``n``."""
    path = folder / "pairs.tsv"
    lines = [f"give me {n} please\t{answer}\n" for n in range(sources) for answer in answers(n)]
    path.write_text("".join(lines))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    config = OwnPairsConfig(
        data=digest, num_sources=sources, source_tokens=kind, answer_tokens=kind, unknown="refuse", longest_answer=40
    )
    return build_task(config, pairs=path), config


@pytest.mark.parametrize(
    ("kind", "answers", "measures"),
    [
        ("word", lambda n: [f"gib mir {n}"], EXACT),
        ("word", lambda n: [f"gib mir {n}", f"ich will {n}"], ("error_rate",)),
        ("word", lambda n: [f"gib mir bitte {n}"], ("exact_match", "bleu")),
        ("word", lambda n: [f"gib mir bitte {n}", f"ich will jetzt {n}"], ("error_rate", "bleu")),
        ("word", lambda n: [f"gib mir bitte {n} " + "und noch eins " * 4], ("bleu", "exact_match")),
        ("symbol", lambda n: [f"G IH V {n}"], EXACT),
        ("symbol", lambda n: [f"G IH V {n}", f"G IY V {n}"], ("error_rate",)),
        ("symbol", lambda n: ["G IH V " * 5 + str(n)], ("token_error_rate", "exact_match")),
    ],
)
def test_length_kind_and_number_of_references_choose_the_measure(tmp_path, kind, answers, measures):
    task, _ = own_task(tmp_path, answers, kind=kind)
    headline = headline_of(task)
    assert headline.measures == measures
    assert (headline.bleu_tokenizer is not None) == ("bleu" in measures)


@pytest.mark.parametrize(
    ("preset", "measures"),
    [
        ("digits-reversal", EXACT),
        ("words-reversal-gru-as-told", EXACT),
        ("psalms", ("perplexity",)),
        ("translate-en-de-small", ("bleu",)),
    ],
)
def test_presets_keep_what_decides(preset, measures):
    assert headline_of(build_task(load_preset(preset).task)).measures == measures


def test_shipped_runs_keep_their_headlines():
    shipped = {"digits-reversal-shipped": "exact match 100 %", "translate-en-de-shipped": "BLEU 48.8"}
    runs = Runs(DEFAULT_ROOT)
    assert {name: headline_text(runs[name].info.figures) for name in shipped} == shipped


def test_a_bleu_of_zero_beside_correct_answers_is_none_in_older_files():
    quality = RunQuality(bleu=0.0, chrf=80.0, bleu_name="BLEU")
    older = RunInfo(status="finished", exact_match=0.75, quality=quality)
    assert [figure.name for figure in older.figures] == ["exact match"]
    untrained = older.model_copy(update={"exact_match": 0.0})
    assert [figure.name for figure in untrained.figures] == ["BLEU"]


# ---- a run of own pairs


def trained(root, tiny, task, config, name):
    model = {"model.max_seq_len": 64}
    preset = tiny.with_changes({**model, "training.steps": 4}).model_copy(update={"task": config})
    folder = RunFolder.create(root, preset, name=name, pairs=task.pairs_file)
    train_run(folder)
    return folder


def test_three_word_answers_are_measured_by_exact_match_everywhere_and_bleu_is_explained(tmp_path, tiny, capsys):
    task, config = own_task(tmp_path, lambda n: [f"gib mir {n}"])
    folder = trained(tmp_path / "runs", tiny, task, config, "short")
    why = "BLEU is not measured: it counts runs of up to 4 words, and 0 of 20 held-out references have 4 words or more."
    info = folder.read_info()
    assert (info.quality, info.without_bleu) == (None, why)
    assert [figure.name for figure in info.figures] == ["exact match"]
    command = ["--checkpoints", str(tmp_path / "runs")]
    assert main([*command, "runs", "--json"]) == 0
    printed = capsys.readouterr().out
    assert "BLEU" not in printed.replace(why, "")
    assert last_json(printed)["runs"][0]["headline"] == [info.figures[0].model_dump()]
    assert main([*command, "evaluate", "--run", "short", "--sequences", "20"]) == 0
    printed = capsys.readouterr().out
    assert "\nresult          exact match " in printed
    assert "BLEU" not in printed.replace(why, "")
    assert why in printed
    report = write_report(Runs(tmp_path / "runs")["short"], sequences=20)
    assert report.markdown.count(why) == 1
    assert "BLEU" not in report.markdown.replace(why, "")


def test_a_run_of_words_names_exact_match_and_bleu_also_in_its_weights(tmp_path, tiny, capsys):
    task, config = own_task(tmp_path, lambda n: [f"gib mir bitte {n}"])
    folder = trained(tmp_path / "runs", tiny, task, config, "words")
    exact, bleu = folder.read_info().figures
    assert (exact.name, bleu.name) == ("exact match", "BLEU")
    command = ["--checkpoints", str(tmp_path / "runs")]
    assert main([*command, "runs"]) == 0
    assert f"exact match 0 %, BLEU {bleu.value:.1f}" in capsys.readouterr().out
    facts = Runs(tmp_path / "runs")["words"].trained().facts
    assert [HeadlineFigure(**figure).name for figure in facts["headline"]] == ["exact match", "BLEU"]


def test_a_source_with_several_answers_is_right_with_any_of_them(tmp_path, tiny, capsys):
    task, config = own_task(tmp_path, lambda n: [f"G {n % 3}", f"H {n % 3}"], kind="symbol")
    folder = trained(tmp_path / "runs", tiny, task, config, "several")
    evaluations = Runs(tmp_path / "runs")["several"].history.evaluations()
    (figure,) = folder.read_info().figures
    assert (figure.name, figure.value) == ("wrong answers", evaluations["error_rate"][-1])
    both = zip(evaluations["error_rate"], evaluations["exact_match"], strict=True)
    assert all(wrong <= 1 - exact for wrong, exact in both)
    report = write_report(Runs(tmp_path / "runs")["several"], sequences=20)
    assert report.summary.startswith("This model has wrong answers ")
    assert json.loads(json.dumps(report.metrics))["headline"][0]["measure"] == "error_rate"


def test_a_figure_read_from_a_file_has_no_name_that_means_anything_in_html():
    with pytest.raises(ValueError, match="pattern"):
        HeadlineFigure(measure="bleu", name="<b>BLEU</b>", value=1.0)
