"""BLEU and chrF: sacrebleu's scores of the answers' text, for translation tasks only."""

import hashlib
import re
import sys
from dataclasses import asdict, replace

import pytest
import torch

from core.__main__ import main
from core.config import preset_to_yaml
from core.config.tasks import OwnPairsConfig
from core.evaluation.accuracy import evaluate
from core.evaluation.headline import HeadlineFigure
from core.evaluation.outputs import decode_unpadded
from core.evaluation.translating import translate_pairs
from core.evaluation.translation_quality import (
    copying_quality,
    output_text,
    reference_texts,
    score_translations,
    source_texts,
)
from core.generation import GREEDY, Beam, generate
from core.models import build_model
from core.runs import RunFolder, RunQuality
from core.runs.export import export_weights
from core.runs.importing import import_run
from core.runs.load import load_run
from core.storage.errors import LabError
from core.storage.tensor_file import read_tensors
from core.tasks import build_task, fixed_pairs
from core.text.vocab import EOS_ID, UNK_ID, until_eos
from core.training.history import History
from tests.support.command_output import last_json
from tests.support.trainings import train_run

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
    train_run(folder)
    return root


FRENCH = [["deux", "mille", "cent", "quatre", "-vingt", "-un"], ["mille", "six", "cent", "vingt", "et", "un"]]
FRENCH_TEXTS = ["deux mille cent quatre-vingt-un", "mille six cent vingt et un"]
ALMOST_TEXTS = ["deux mille cent quatre-vingt un", "mille six cent vingt et un"]


def by_sacrebleu(outputs, references, *, tokenizer="13a"):
    """BLEU and chrF by sacrebleu's own functions."""
    bleu = sacrebleu.corpus_bleu(outputs, [references], tokenize=tokenizer).score
    return pytest.approx((bleu, sacrebleu.corpus_chrf(outputs, [references]).score))


def scores(quality):
    return quality.bleu, quality.chrf


def answering(scripted, task, pairs, answers):
    """A model that answers the source of each pair with given ids."""
    known = {tuple(until_eos(src)): answer for src, answer in zip(pairs.src.tolist(), answers, strict=True)}
    return scripted(
        lambda src: torch.tensor([known[tuple(until_eos(row))] for row in src.tolist()]),
        vocab_size=len(task.tgt_vocab),
    )


# ---- scores of texts


def test_the_scores_and_signatures_are_sacrebleu_s():
    perfect = score_translations(FRENCH_TEXTS, FRENCH_TEXTS, tokenizer="13a")
    assert scores(perfect) == pytest.approx((100, 100))
    quality = score_translations(ALMOST_TEXTS, FRENCH_TEXTS, tokenizer="13a")
    assert 0 < quality.bleu < 100
    assert scores(quality) == by_sacrebleu(ALMOST_TEXTS, FRENCH_TEXTS)
    assert quality.bleu_name == "BLEU"
    metrics = sacrebleu.BLEU(), sacrebleu.CHRF()
    for metric in metrics:
        metric.corpus_score(ALMOST_TEXTS, [FRENCH_TEXTS])
    assert (quality.bleu_signature, quality.chrf_signature) == tuple(str(each.get_signature()) for each in metrics)


def test_german_number_words_have_character_bleu(tiny):
    german = build_task(tiny.with_changes({"task.family": "number-words", "task.language": "german"}).task)
    texts = [output_text(german, german.tgt_vocab.encode(["acht", "##zehn"])), "achtzig"]
    quality = score_translations(texts, ["achtzehn", "achtzehn"], tokenizer=german.bleu_tokenizer)
    assert scores(quality) == by_sacrebleu(["achtzehn", "achtzig"], ["achtzehn", "achtzehn"], tokenizer="char")
    assert quality.bleu_name == "character BLEU"
    assert "tok:char" in quality.bleu_signature


@pytest.mark.parametrize(("outputs", "references"), [([], []), (["a"], []), (["a"], ["a", "b"])])
def test_without_a_reference_each_there_is_no_score(outputs, references):
    with pytest.raises(ValueError, match="both must be as many, above 0"):
        score_translations(outputs, references, tokenizer="13a")


def test_an_unknown_token_is_never_a_match(tmp_path):
    task = own_pairs(tmp_path, kind="word", pairs=[(f"a{n} b", f"x y z v{n}") for n in range(60)])
    assert task.tgt_vocab.has_unk
    pairs = fixed_pairs(task, 10, split="test")
    assert UNK_ID in pairs.tgt_out  # each answer ends with a word of its own
    references = reference_texts(task, pairs)
    outputs = [output_text(task, ids) for ids in pairs.tgt_out.tolist()]
    assert all(text.startswith("x y z ") for text in [*outputs, *references])
    assert not {text.split()[-1] for text in outputs} & {text.split()[-1] for text in references}


def test_a_missing_sacrebleu_is_named_with_its_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(LabError, match="BLEU needs the package sacrebleu: pip install sacrebleu"):
        score_translations(["un"], ["un"], tokenizer="13a")


# ---- scores of a model


def test_a_random_model_has_a_low_score_and_keeps_its_mode(translation_preset, task):
    pairs = fixed_pairs(task, 40, split="test")
    model = build_model(translation_preset.model, task, torch.Generator().manual_seed(0))
    assert decode_unpadded(model, pairs).quality(task).bleu < 50
    assert model.training


def test_a_perfect_model_scores_100(scripted, task):
    pairs = fixed_pairs(task, 40, split="test")
    model = answering(scripted, task, pairs, pairs.tgt_out.tolist())
    assert scores(decode_unpadded(model, pairs).quality(task)) == pytest.approx((100, 100))


@pytest.mark.parametrize("strategy", [GREEDY, Beam(beam_size=3)])
def test_a_model_s_scores_are_those_of_its_outputs_one_by_one_with_any_strategy(translation_preset, task, strategy):
    pairs = fixed_pairs(task, 12, split="test")
    model = build_model(translation_preset.model, task, torch.Generator().manual_seed(1)).eval()
    outputs = []
    for row in range(len(pairs)):
        source = until_eos(pairs.src[row].tolist())
        result = generate(model, torch.tensor([[*source, EOS_ID]]), max_steps=model.max_seq_len, strategy=strategy)
        outputs.append(task.answer_text(task.tgt_vocab.decode(until_eos(result.tokens[0].tolist()))))
    decoded = decode_unpadded(model, pairs, strategy=strategy)
    assert decoded.texts(task) == translate_pairs(model, task, pairs, strategy=strategy) == outputs
    assert scores(decoded.quality(task)) == by_sacrebleu(outputs, reference_texts(task, pairs))


def test_copying_the_source_is_scored_like_a_translation(task):
    pairs = fixed_pairs(task, 30, split="test")
    sources = [" ".join(task.src_vocab.decode(until_eos(row[1:]))) for row in pairs.src.tolist()]
    assert source_texts(task, pairs) == sources
    assert all(" " not in text or text.split()[0] in task.src_vocab.symbols for text in sources)
    assert scores(copying_quality(task, pairs)) == by_sacrebleu(sources, reference_texts(task, pairs))


def test_tasks_that_are_not_translations_have_no_scores(tiny, scripted):
    task = build_task(tiny.task)
    pairs = fixed_pairs(task, 3, split="test")
    assert decode_unpadded(scripted(lambda src: src), pairs).quality(task) is None
    assert copying_quality(task, pairs) is None


def own_pairs(folder, *, kind, pairs):
    """The task of a user's own pairs, with sources and answers of one kind of tokens."""
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{source}\t{answer}\n" for source, answer in pairs))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    config = OwnPairsConfig(data=digest, num_sources=len(pairs), source_tokens=kind, answer_tokens=kind, min_count=2)
    return build_task(config, pairs=path)


@pytest.mark.parametrize(("kind", "tokenizer"), [("word", "13a"), ("character", None), ("symbol", None)])
def test_own_pairs_of_words_are_translations_and_others_keep_their_error_rates_only(tmp_path, kind, tokenizer):
    task = own_pairs(tmp_path, kind=kind, pairs=[(f"the a{n}", f"le b{n}") for n in range(60)])
    assert task.bleu_tokenizer == tokenizer
    assert task.rate_names == ("wrong answers", "wrong tokens")


# ---- during training


def test_the_evaluation_scores_what_it_decodes_for_exact_match(scripted, task):
    pairs = fixed_pairs(task, 40, split="validation")
    answers = pairs.tgt_out.clone()
    answers[::2, 0] = task.tgt_vocab.encode(["mille"])[0]
    model = answering(scripted, task, pairs, answers.tolist())
    evaluation = evaluate(model, pairs, task=task)
    outputs = [output_text(task, ids) for ids in answers.tolist()]
    assert (evaluation.bleu, evaluation.chrf) == by_sacrebleu(outputs, reference_texts(task, pairs))
    assert 0 < evaluation.exact_match < 1
    without = evaluate(model, pairs)
    assert (without.bleu, without.chrf) == (None, None)
    assert replace(evaluation, bleu=None, chrf=None) == without


def test_a_translation_run_records_bleu_and_chrf(translation_runs, task):
    folder = RunFolder(translation_runs, "translation")
    evaluations = History.load(folder.metrics).evaluations()
    assert len(evaluations["step"]) == 2
    assert all(0 <= value <= 100 for column in ("bleu", "chrf") for value in evaluations[column])
    quality = folder.read_info().quality
    assert quality.bleu_name == "BLEU"
    assert quality.bleu == pytest.approx(evaluations["bleu"][-1], abs=1e-3)
    facts = read_tensors(folder.best)[1]
    assert RunQuality(**facts["quality"]).bleu_name == "BLEU"


def test_training_prints_bleu_and_chrf(translation_preset, root, tmp_path, capsys):
    preset = tmp_path / "translate.yaml"
    preset.write_text(preset_to_yaml(translation_preset))
    assert main(["--checkpoints", str(root), "train", "--preset", str(preset), "--seeds", "2", "--json"]) == 0
    printed = capsys.readouterr().out
    assert (
        len(re.findall(r"validation loss \d\.\d{4}  exact match +[\d.]+ %  BLEU +\d+\.\d  chrF +\d+\.\d", printed)) == 4
    )
    result = last_json(printed)
    runs = result["runs"]
    assert result["bleu"]["mean"] == pytest.approx(sum(run["bleu"] for run in runs) / 2)
    assert f"chrF                     {result['chrf']['mean']:.2f} ± " in printed
    assert main(["--checkpoints", str(root), "runs"]) == 0
    assert f"BLEU {runs[0]['bleu']:.1f} " in capsys.readouterr().out


def test_scores_survive_export_and_import(translation_runs, root):
    folder, exported = RunFolder(translation_runs, "translation"), root.parent / "model.safetensors"
    export_weights(folder, exported)
    facts = load_run(folder.path).facts
    info = import_run(root, exported, name="copy").read_info()
    assert info.quality == RunQuality(**facts["quality"])
    assert info.figures == tuple(HeadlineFigure(**figure) for figure in facts["headline"])
    assert [figure.name for figure in info.figures] == ["exact match", "BLEU"]


# ---- commands and report


def test_evaluate_and_decode_print_text_and_scores(translation_runs, capsys):
    arguments = ["--checkpoints", str(translation_runs)]
    loaded = load_run(translation_runs / "translation")
    pairs = fixed_pairs(loaded.task, 50, split="test")
    copying = copying_quality(loaded.task, pairs)
    for options, strategy in (([], GREEDY), (["--strategy", "beam", "--beam-size", "5"], Beam(beam_size=5))):
        command = ["evaluate", "--run", "translation", "--sequences", "50", "--json", *options]
        assert main([*arguments, *command]) == 0
        printed = capsys.readouterr().out
        quality = decode_unpadded(loaded.model, pairs, strategy=strategy).quality(loaded.task)
        result = last_json(printed)
        assert result["quality"] == asdict(quality)
        assert result["copying"] == asdict(copying)
        assert re.search(rf"^BLEU +{quality.bleu:.2f}  .*as they are: {copying.bleu:.2f}$", printed, re.MULTILINE)
        assert re.search(rf"^chrF +{quality.chrf:.2f}  .*as they are: {copying.chrf:.2f}$", printed, re.MULTILINE)
        assert printed.count("sacrebleu signature nrefs:1|") == 2
    assert main([*arguments, "decode", "--run", "translation", "eighty-one"]) == 0
    assert "expected  quatre-vingt-un" in capsys.readouterr().out
    assert loaded.preset.task.summary == "translate 0–9,999 from English words to French"


def test_until_eos_cuts_at_the_first_eos():
    assert until_eos([5, 6, EOS_ID, 7, EOS_ID]) == [5, 6]
    assert until_eos((5, 6)) == [5, 6]
    assert until_eos([EOS_ID]) == until_eos([]) == []
