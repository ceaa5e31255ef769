"""Translation runs compared: BLEU and chrF of each, and paired bootstrap resampling of every two."""

import json
from dataclasses import replace

import pytest

from core.__main__ import main
from core.evaluation.bootstrap import RESAMPLES, SEED, paired_bootstraps
from core.evaluation.outputs import decode_unpadded
from core.evaluation.translating import translate_pairs
from core.evaluation.translation_quality import copying_quality, reference_texts
from core.reports.comparison import Comparison, as_data, compare, describe_pair, describe_quality
from core.runs import RunFolder
from core.runs.run import Runs
from core.tasks import fixed_pairs
from tests.support.trainings import train_run

pytest.importorskip("num2words")
NAMES = ("french-seed-0", "french-seed-1", "longer", "old")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory, tiny):
    """Two seeds of a translation, a run that was trained longer, and a run without BLEU in its metrics."""
    root = tmp_path_factory.mktemp("compared")
    base = tiny.with_changes({"task.family": "number-words", "training.training_sequences": 50})
    presets = {f"french-seed-{seed}": base.with_changes({"training.seed": seed}) for seed in (0, 1)}
    presets |= {"longer": base.with_changes({"training.steps": 40}), "old": base.with_changes({"model.d_ff": 16})}
    for name, preset in presets.items():
        train_run(RunFolder.create(root, preset, name=name))
    old = RunFolder(root, "old").metrics
    lines = [json.loads(line) for line in old.read_text().splitlines()]
    without = [{name: value for name, value in line.items() if name not in ("bleu", "chrf")} for line in lines]
    old.write_text("".join(json.dumps(line) + "\n" for line in without))
    return Runs(root)


@pytest.fixture(scope="module")
def comparison(shelf) -> Comparison:
    *_, comparison = compare([shelf[name] for name in NAMES], sequences=40)
    return comparison


def test_each_run_has_its_scores_and_every_two_their_bootstrap(shelf, comparison):
    task = shelf["longer"].trained().task
    pairs = fixed_pairs(task, 40, split="test")
    outputs = {name: translate_pairs(shelf[name].trained().model, task, pairs) for name in NAMES}
    expected = paired_bootstraps(outputs, reference_texts(task, pairs), tokenizer="13a")
    assert {(pair.first, pair.second): pair.quality for pair in comparison.pairs} == expected
    for run in comparison.runs:
        assert run.measurement.quality == decode_unpadded(run.loaded.model, pairs).quality(task)
    assert comparison.copying == copying_quality(task, pairs)


def test_the_data_has_scores_settings_of_the_test_and_curves(comparison):
    data = json.loads(json.dumps(as_data(comparison), allow_nan=False))
    assert data["translation"]["resamples"] == RESAMPLES
    assert data["translation"]["seed"] == SEED
    assert data["translation"]["copying"]["bleu_signature"].startswith("nrefs:1|")
    first = data["runs"][0]
    quality = comparison.runs[0].measurement.quality
    assert (first["bleu"], first["chrf"]) == (quality.bleu, quality.chrf)
    figures = {group["label"]: group["figures"]["bleu"] for group in data["groups"]}
    assert figures["french"]["mean"] == pytest.approx((first["bleu"] + data["runs"][1]["bleu"]) / 2)
    curves = {group["label"]: group["by_step"]["bleu"]["at"] for group in data["groups"]}
    assert curves == {"french": [0, 4, 8], "longer": list(range(0, 41, 4)), "old": []}


def test_answers_of_few_words_are_compared_by_exact_match_and_then_by_bleu(comparison):
    pair, data = comparison.pairs[1], as_data(comparison)
    quality = describe_quality(pair.first, pair.second, pair.quality, bleu_name="BLEU")
    assert data["pairs"][1]["in_words"] == f"{describe_pair(pair)} {quality}"
    assert list(data["groups"][0]["figures"])[:3] == ["exact_match", "bleu", "chrf"]


def test_two_translations_of_long_texts_are_described_by_bleu_and_not_by_exact_match(comparison):
    pair = comparison.pairs[1]
    by_bleu = replace(comparison, headline=replace(comparison.headline, measures=("bleu",)))
    sentence = as_data(by_bleu)["pairs"][1]["in_words"]
    assert sentence == describe_quality(pair.first, pair.second, pair.quality, bleu_name="BLEU")
    assert sentence.startswith(f"french-seed-0 has BLEU {pair.quality['bleu'].first:.1f} and chrF ")
    assert "Paired bootstrap resampling: 1,000 resamples of the test pairs, seed 12345" in sentence
    assert "McNemar" not in sentence
    assert "exact" not in sentence


def test_a_difference_is_called_significant_by_its_p_value_and_given_to_the_better_run():
    references = [f"the word number {index} stands here in a row" for index in range(60)]
    worse = [text.replace("stands here", "is") for text in references]
    found = paired_bootstraps({"a": worse, "b": references, "c": list(worse)}, references, tokenizer="13a")
    sentence = describe_quality("a", "b", found["a", "b"], bleu_name="BLEU")
    assert "p < 0.001), so b is significantly better" in sentence
    assert "a has the higher BLEU in 0 % of them." in sentence
    same = describe_quality("a", "c", found["a", "c"], bleu_name="BLEU")
    assert "a difference of 0.0 in BLEU (95 % interval 0.0 to 0.0, p = 1)" in same
    assert "so the difference in BLEU is not significant" in same


def test_other_tasks_have_no_scores(tmp_path, tiny):
    for seed in (0, 1):
        preset = tiny.with_changes({"training.seed": seed})
        train_run(RunFolder.create(tmp_path, preset, name=f"rev-{seed}"))
    *_, comparison = compare([Runs(tmp_path)[name] for name in ("rev-0", "rev-1")], sequences=40)
    data = as_data(comparison)
    assert data["translation"] is None
    assert data["pairs"][0]["quality"] is None
    assert "bleu" not in data["runs"][0]


def test_the_command_prints_scores_and_tests(shelf, capsys):
    command = ["--checkpoints", str(shelf.root), "compare", "--sequences", "40", "--runs"]
    assert main([*command, "french,longer,old", "--json"]) == 0
    output = capsys.readouterr().out
    data = json.loads(output.splitlines()[-1])
    copying = data["translation"]["copying"]
    for text in (
        f"the sources as they are: BLEU {copying['bleu']:.2f}, chrF {copying['chrf']:.2f}\n",
        f"sacrebleu signature {copying['bleu_signature']}\n",
        f"sacrebleu signature {copying['chrf_signature']}\n",
        "paired bootstrap resampling: 1,000 resamples, seed 12345\n",
    ):
        assert text in output
    header, *rows = output.split("  first")[-1].splitlines()[:7]
    assert " ".join(header.split()) == "second BLEU 95 % interval p chrF 95 % interval p"
    assert [row.split()[:2] for row in rows] == [[pair["first"], pair["second"]] for pair in data["pairs"]]
    assert main([*command, "longer,old"]) == 0
    assert "Paired bootstrap resampling" in capsys.readouterr().out
