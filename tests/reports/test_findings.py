"""The findings of a report are true: of a good model, an untrained one, and broken ones."""

import re

import pytest
import torch

from core.config import load_preset
from core.models import build_model
from core.reports.report import measure
from core.reports.report.attention_section import answer_questions
from core.reports.report.findings import TrainingOutcome, findings, verdict
from core.reports.report.measurements import sample_targets
from core.tasks import build_task, fixed_pairs
from core.text.vocab import EOS_ID, PAD_ID
from tests.support.scripted_models import reversing

FINISHED = TrainingOutcome(step=8, steps=8, message="", train_loss=None, guessing_loss=2.565)


def texts(model, task, pairs, training=FINISHED) -> tuple[str, str]:
    measured = measure(model, task, pairs)
    return verdict(measured), " ".join(findings(measured, training))


def test_a_perfect_model_has_no_findings(scripted, task, pairs):
    measured = measure(scripted(reversing), task, pairs)
    assert measured.exact_match == measured.padding.padded == measured.stopped == 1
    assert texts(scripted(reversing), task, pairs) == (
        "This model solves its task: 60 of 60 held-out inputs (100 %) are answered exactly.",
        "",
    )
    assert answer_questions(measured) == []  # a scripted model has no attention
    assert measured.sequences.input.tolist() == [list(reversed(row)) for row in measured.sequences.reference]
    assert (measured.sequences.eos_probability > 0.99).all()


def test_an_untrained_model_is_recognized(tiny, task, pairs):
    model = build_model(tiny.model, task, torch.Generator().manual_seed(0))
    opening, found = texts(model, task, pairs, TrainingOutcome(0, 8, "it diverged", None, 2.565))
    assert opening.startswith("This model does not solve its task: 0 of 60")
    assert "Training is not finished: 0 of 8 steps are done. The run's message: it diverged." in found
    assert "The model has learned almost nothing: its loss is" in found
    assert re.search(r"a uniform guess has 2\.5[67]", found)


def test_a_model_that_never_stops_is_explained_by_its_training_data(scripted, task, pairs):
    def endless(src):
        right = reversing(src)
        return right.masked_fill((right == EOS_ID) | (right == PAD_ID), 7)

    opening, found = texts(scripted(endless), task, pairs)
    assert opening.startswith("This model does not solve its task")
    assert "No output ends." in found
    assert "The training data do show it: 100 % of the sampled targets end with EOS" in found

    as_told = build_task(load_preset("numbers-reversal-as-told").task)
    numbers = fixed_pairs(as_told, 20, split="test")
    model = scripted(lambda src: torch.full_like(src, 7))
    model.decode = _twenty_tokens(model)
    opening, found = texts(model, as_told, numbers)
    assert re.search(
        r"of 1,000 training targets sampled, only [345]\.\d.% end with EOS\.", found
    )  # those that are data
    assert "Every training input has 10 symbols" in found

    without_eos = build_task(load_preset("numbers-reversal").with_changes({"task.eos_in_targets": False}).task)
    opening, found = texts(model, without_eos, numbers)
    assert "of 1,000 training targets sampled, none ends with EOS. The model never saw an end" in found


def _twenty_tokens(model):
    """The scripted model over a vocabulary of 20 instead of 13."""
    decode = model.decode

    def wider(*arguments, **named):
        step = decode(*arguments, **named)
        return type(step)(torch.nn.functional.pad(step.logits, (0, 7)), step.cache)

    return wider


def test_a_model_that_attends_to_padding_is_recognized(scripted, task, pairs):
    width = pairs.src.shape[1]

    def spoilt(src):  # right only in batches as wide as those of training
        return reversing(src) if src.shape[1] == width else torch.full_like(src, 7)

    shorter = pairs[(pairs.src != PAD_ID).sum(dim=1) < width]
    opening, found = texts(scripted(spoilt), task, shorter)
    assert opening.startswith("This model does not solve its task")
    assert "depends on padding: in padded batches, 100 % of the first " in found
    assert "without padding 0 %" in found


def test_dependence_on_length_is_reported_for_both_ends(scripted, task):
    pairs = fixed_pairs(task, 400, split="test")

    def forgetful(src):
        return reversing(src) if src.shape[1] < 7 else torch.full_like(src, EOS_ID)

    measured = measure(scripted(forgetful), task, pairs)
    found = " ".join(findings(measured, FINISHED))
    # The test set has too few inputs of 2 symbols for a statement about them.
    assert (measured.sequences.length == 2).sum() < 30
    assert re.search(r"inputs with 3 symbols, 100.% .* of those with 5, 0.%", found)
    assert "The model is confident in wrong tokens" in found
    assert 0 < measured.exact_match < 1
    assert set(measured.sequences.outcome) == {"exact", "stopped early"}


def test_overfitting_is_reported(scripted, task, pairs):
    overfitted = TrainingOutcome(8, 8, "", train_loss=0.001, guessing_loss=2.565)
    measured = measure(scripted(lambda src: torch.full_like(src, 7)), task, pairs)
    assert "The model is overfitting" in " ".join(findings(measured, overfitted))
    assert "overfitting" not in " ".join(findings(measured, FINISHED))


def test_an_empty_test_set_is_refused(scripted, task, pairs):
    with pytest.raises(ValueError, match="no sequences to evaluate on"):
        measure(scripted(reversing), task, pairs[:0])


def test_unpadded_outputs_equal_decoding_one_by_one(tiny_gru, task):
    from core.generation import generate

    broken = tiny_gru.with_changes({"model.mask_padding": False})
    model = build_model(broken.model, task, torch.Generator().manual_seed(3)).eval()
    pairs = fixed_pairs(task, 30, split="test")
    measured = measure(model, task, pairs)
    for row, output in enumerate(measured.sequences.output):
        src = pairs.src[row][pairs.src[row] != PAD_ID][None]
        tokens = generate(model, src, max_steps=model.max_seq_len).tokens[0].tolist()
        end = tokens.index(EOS_ID) if EOS_ID in tokens else len(tokens)
        assert task.tgt_vocab.decode(tokens[:end]) == output


def test_training_targets_are_those_of_the_preset():
    told = sample_targets(build_task(load_preset("numbers-reversal-as-told").task))
    assert (told.with_eos, told.lengths) == (pytest.approx(1 / 19, abs=0.02), (10,))  # EOS is drawn as data
    good = sample_targets(build_task(load_preset("words-reversal-gru").task))
    assert (good.with_eos, good.lengths) == (1.0, tuple(range(3, 11)))
