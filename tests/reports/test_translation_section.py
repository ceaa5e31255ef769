"""A report on a translation: BLEU and chrF, greedy and by beam search, and samples as text."""

import hashlib
import json
import re
from dataclasses import asdict, replace

import pytest
import torch

from core.config.tasks import OwnPairsConfig
from core.evaluation.headline import Headline
from core.evaluation.outputs import decode_unpadded
from core.evaluation.translation_quality import copying_quality, reference_texts, source_texts
from core.generation import Beam
from core.models import build_model
from core.reports.report import Report, measure, write_report
from core.reports.report.findings import TrainingOutcome, findings, verdict
from core.reports.report.translation_section import translation_section
from core.runs import RunFolder
from core.runs.load import load_run
from core.runs.run import Runs
from core.tasks import build_task, fixed_pairs
from core.text.vocab import EOS_ID, PAD_ID, until_eos
from tests.support.decodes import counted_decodes
from tests.support.trainings import train_run

pytest.importorskip("num2words")
BLEU_ONLY = Headline(("bleu",), {"bleu": "BLEU"}, "13a")
FINISHED = TrainingOutcome(step=8, steps=8, message="", train_loss=None, guessing_loss=3.9)


@pytest.fixture(scope="module")
def preset(tiny):
    return tiny.with_changes({"task.family": "number-words", "training.training_sequences": 50})


@pytest.fixture(scope="module")
def task(preset):
    return build_task(preset.task)


@pytest.fixture(scope="module")
def written(tmp_path_factory, preset) -> tuple[Report, RunFolder]:
    """The report of a run that made all its 8 steps, and so learned nothing."""
    folder = RunFolder.create(tmp_path_factory.mktemp("checkpoints"), preset, name="french")
    train_run(folder)
    return write_report(Runs(folder.path.parent)["french"], sequences=60), folder


def translating(scripted, task, pairs, answers):
    """A model that translates the sources of pairs to given ids, whatever batch they are in."""
    known = {tuple(until_eos(src)): answer for src, answer in zip(pairs.src.tolist(), answers, strict=True)}
    return scripted(
        lambda src: torch.tensor([known[tuple(until_eos(row))] for row in src.tolist()]), vocab_size=len(task.tgt_vocab)
    )


def test_a_report_decodes_each_input_once_with_padding_and_once_without(written, monkeypatch):
    monkeypatch.setattr("core.evaluation.headline.LONG", 1)  # judged by BLEU, so without accuracy by length
    with counted_decodes() as counts:
        write_report(Runs(written[1].path.parent)["french"], sequences=60)
    of_kind = {kind: [count for (of, _), count in counts.items() if of == kind] for kind in ("greedy", "beam")}
    assert of_kind["beam"] == [1] * 60
    # Training pairs are decoded once; the example is decoded once more than the others, with its candidates.
    assert sorted(of_kind["greedy"]) == [1] * 50 + [2] * 59 + [3]


def test_the_report_of_a_translation_has_scores_signatures_and_samples(written):
    report, folder = written
    loaded = load_run(folder.path)
    pairs = fixed_pairs(loaded.task, 60, split="test")
    greedy = decode_unpadded(loaded.model, pairs).quality(loaded.task)
    beam = decode_unpadded(loaded.model, pairs, strategy=Beam(beam_size=5)).quality(loaded.task)
    copying = copying_quality(loaded.task, pairs)
    for row in (
        "| decoding | BLEU | chrF |",
        f"| greedy | {greedy.bleu:.2f} | {greedy.chrf:.2f} |",
        f"| beam search, 5 hypotheses | {beam.bleu:.2f} | {beam.chrf:.2f} |",
        f"| none: the source, copied | {copying.bleu:.2f} | {copying.chrf:.2f} |",
        f"- BLEU: `{greedy.bleu_signature}`",
        f"- chrF: `{greedy.chrf_signature}`",
    ):
        assert row in report.markdown, row
    assert json.loads(json.dumps(report.metrics))["translation"] == {
        "greedy": asdict(greedy),
        "beam": asdict(beam),
        "copying": asdict(copying),
    }
    assert report.markdown.count("- Source: ") == 12
    assert f"- Source: {source_texts(loaded.task, pairs)[0]}\\\n  Greedy: " in report.markdown
    assert f"  Reference: {reference_texts(loaded.task, pairs)[11]}\n" in report.markdown
    assert sorted(report.figures) == ["accuracy.png", "accuracy_by_length.png", "loss.png"]


def test_answers_of_few_words_are_judged_by_exact_match_and_bleu_is_beside_it(written):
    report, _ = written
    bleu = report.metrics["translation"]["greedy"]["bleu"]
    assert report.summary == (
        "This model does not solve its task: 0 of 60 held-out inputs (0 %) are answered exactly. "
        f"BLEU is {bleu:.1f}, chrF {report.metrics['translation']['greedy']['chrf']:.1f}."
    )
    assert [figure["name"] for figure in report.metrics["headline"]] == ["exact match", "BLEU"]
    assert f"| BLEU | {bleu:.1f} |\n| exact match, each input decoded separately |" in report.markdown
    assert "## Outcomes" in report.markdown
    assert "The translations are no better than the sources themselves" in report.markdown


def test_long_texts_are_judged_by_bleu_and_no_sentence_by_exact_match(scripted, task):
    pairs = fixed_pairs(task, 40, split="test")
    spoilt = pairs.tgt_out.clone()
    spoilt[::2, 0] = task.tgt_vocab.encode(["mille"])[0]
    measured = replace(measure(translating(scripted, task, pairs, spoilt.tolist()), task, pairs), headline=BLEU_ONLY)
    sentences = [verdict(measured), *findings(measured, FINISHED)]
    assert sentences[0].startswith(f"This model's translations have BLEU {measured.quality.bleu:.1f} and chrF ")
    assert not re.search("exact|solve|fails at", " ".join(sentences))


def test_a_report_whose_metrics_have_no_bleu_draws_their_accuracy(written, tmp_path, monkeypatch):
    monkeypatch.setattr("core.evaluation.headline.LONG", 1)  # BLEU decides
    _, folder = written
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    older = [{name: value for name, value in line.items() if name not in ("bleu", "chrf")} for line in lines]
    copy = RunFolder.create(tmp_path, folder.read_preset(), name="french")
    copy.best.write_bytes(folder.best.read_bytes())
    copy.metrics.write_text("".join(json.dumps(line) + "\n" for line in older))
    report = write_report(Runs(tmp_path)["french"], sequences=60)
    newer = write_report(Runs(folder.path.parent)["french"], sequences=60)
    assert report.figures["accuracy.png"] != newer.figures["accuracy.png"]
    assert report.metrics["translation"] == newer.metrics["translation"]


def test_scores_by_length_are_those_of_the_outputs_in_each_group(preset, task):
    model = build_model(preset.model, task, torch.Generator().manual_seed(0)).eval()
    pairs = fixed_pairs(task, 60, split="test")
    head, *rows = translation_section(model, task, pairs, measure(model, task, pairs)).by_length
    assert head == ["English words in the input", "inputs", "BLEU", "chrF"]
    lengths = (pairs.src != PAD_ID).sum(dim=1) - 2
    for span, inputs, bleu, chrf in rows:
        first, last = (int(end) for end in (span.split("–") * 2)[:2])
        group = pairs[(first <= lengths) & (lengths <= last)]
        quality = decode_unpadded(model, group).quality(task)
        assert (int(inputs), bleu, chrf) == (len(group), f"{quality.bleu:.2f}", f"{quality.chrf:.2f}")
    assert sum(int(row[1]) for row in rows) == 60
    assert translation_section(model, task, pairs[:10], measure(model, task, pairs[:10])).by_length[1:] == []


def test_a_good_translation_has_its_scores_as_the_verdict_and_no_findings(scripted, task):
    pairs = fixed_pairs(task, 40, split="test")
    model = translating(scripted, task, pairs, pairs.tgt_out.tolist())
    measured = replace(measure(model, task, pairs), headline=BLEU_ONLY)
    copying = copying_quality(task, pairs)
    assert verdict(measured) == (
        "This model's translations have BLEU 100.0 and chrF 100.0 on 40 held-out inputs, decoded greedily; the sources "
        f"themselves have {copying.bleu:.1f} and {copying.chrf:.1f}."
    )
    assert findings(measured, FINISHED) == []


def test_a_translation_that_depends_on_padding_is_found_by_bleu(scripted, task):
    pairs = fixed_pairs(task, 40, split="test")
    measured = measure(translating(scripted, task, pairs, pairs.tgt_out.tolist()), task, pairs)
    assert measured.padding.sequences == 40
    assert measured.padding.bleu_padded == measured.padding.bleu_alone == pytest.approx(100)
    spoilt = replace(measured, headline=BLEU_ONLY, padding=replace(measured.padding, bleu_padded=80.0))
    expected = "in padded batches, BLEU of the first 40 inputs is 80.0, without padding 100.0"
    assert expected in " ".join(findings(spoilt, FINISHED))


def test_every_model_is_compared_with_the_same_reference_also_where_another_is_correct(scripted, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"the a{n}\tle b{n} est grand\nthe a{n}\tla b{n} est grand\n" for n in range(60)))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    kinds = {"source_tokens": "word", "answer_tokens": "word", "unknown": "refuse"}
    task = build_task(OwnPairsConfig(data=digest, num_sources=60, **kinds), pairs=path)
    pairs = fixed_pairs(task, 6, split="test")
    other = [task.tgt_vocab.encode(["la", *row[1:4]]) for row in map(task.tgt_vocab.decode, pairs.tgt_out.tolist())]
    measured = measure(translating(scripted, task, pairs, [[*row, EOS_ID] for row in other]), task, pairs)
    assert measured.exact_match == 1
    assert (measured.figures[0].name, measured.figures[0].value) == ("wrong answers", 0)
    assert measured.quality.chrf < 100


def test_other_tasks_have_no_such_section(tiny, scripted):
    task = build_task(tiny.task)
    pairs = fixed_pairs(task, 5, split="test")
    model = scripted(lambda src: src)
    measured = measure(model, task, pairs)
    assert (measured.quality, measured.copying) == (None, None)
    assert translation_section(model, task, pairs, measured) is None
