"""A report says of a model what is true of it: of a good one, of an untrained one, and of broken ones."""

import re

import pytest
import torch

from core.config import load_preset
from core.models import build_model
from core.reports.report import measure
from core.reports.report.attention_section import answers
from core.reports.report.findings import Training, findings, verdict
from core.reports.report.measurements import targets_of
from core.tasks import Batch, build_task, fixed_pairs
from core.text.vocab import EOS_ID, PAD_ID

FINISHED = Training(step=8, steps=8, message="", train_loss=None, guessing_loss=2.565)


@pytest.fixture(scope="module")
def task(tiny):
    return build_task(tiny.task)


@pytest.fixture(scope="module")
def pairs(task) -> Batch:
    return fixed_pairs(task, 60, split="test")


def reversing(src: torch.Tensor) -> torch.Tensor:
    """The right answers, with EOS."""
    rows = []
    for row in src.tolist():
        symbols = row[1 : row.index(EOS_ID)]
        rows.append([*symbols[::-1], EOS_ID] + [PAD_ID] * (src.shape[1] - len(symbols)))
    return torch.tensor(rows)


def said(model, task, pairs, training=FINISHED) -> tuple[str, str]:
    measured = measure(model, task, pairs)
    return verdict(measured), " ".join(findings(measured, training))


def test_of_a_perfect_model_there_is_nothing_to_say_but_that(scripted, task, pairs):
    measured = measure(scripted(reversing), task, pairs)
    assert measured.exact_alone == measured.evaluation.exact_match == measured.stopped == 1
    assert said(scripted(reversing), task, pairs) == (
        "This model does its task: 60 of 60 held-out inputs (100\N{NO-BREAK SPACE}%) are answered exactly.",
        "",
    )
    assert answers(measured) == []  # a scripted model has no attention
    assert measured.sequences.input.tolist() == [list(reversed(row)) for row in measured.sequences.reference]
    assert (measured.sequences.eos_probability > 0.99).all()


def test_an_untrained_model_is_called_one(tiny, task, pairs):
    model = build_model(tiny.model, task, torch.Generator().manual_seed(0))
    opening, found = said(model, task, pairs, Training(0, 8, "it diverged", None, 2.565))
    assert opening.startswith("This model does not do its task: 0 of 60")
    assert "Its training is not finished: 0 of 8 steps are made. It ended because: it diverged." in found
    assert "It has learned next to nothing: its loss is" in found
    assert "guessing all tokens alike costs 2.56" in found or "costs 2.57" in found


def test_a_model_that_never_stops_is_explained_by_what_its_training_shows(scripted, task, pairs):
    def endless(src):
        right = reversing(src)
        return right.masked_fill((right == EOS_ID) | (right == PAD_ID), 7)

    opening, found = said(scripted(endless), task, pairs)
    assert opening.startswith("This model does not do its task")
    assert "No answer ends." in found
    assert "Its training data does show it: 100\N{NO-BREAK SPACE}% of the sampled targets end with EOS" in found

    as_told = build_task(load_preset("numbers-reversal-as-reported").task)
    numbers = fixed_pairs(as_told, 20, split="test")
    model = scripted(lambda src: torch.full_like(src, 7))
    model.decode = _twenty_tokens(model)
    opening, found = said(model, as_told, numbers)
    assert "of 1,000 targets sampled from it, none ends with EOS. It was never shown when to stop" in found
    assert "Everything it was trained on has 10 symbols" in found


def _twenty_tokens(model):
    """The scripted model over a vocabulary of 20 instead of 13."""
    decode = model.decode

    def wider(*arguments, **named):
        step = decode(*arguments, **named)
        return type(step)(torch.nn.functional.pad(step.logits, (0, 7)), step.cache)

    return wider


def test_a_model_that_reads_padding_is_found_out(scripted, task, pairs):
    width = pairs.src.shape[1]

    def spoilt(src):  # right only in batches as wide as those of training
        return reversing(src) if src.shape[1] == width else torch.full_like(src, 7)

    shorter = pairs[(pairs.src != PAD_ID).sum(dim=1) < width]
    opening, found = said(scripted(spoilt), task, shorter)
    assert opening.startswith("This model does not do its task")
    assert "What it writes depends on PAD: in a padded batch 100\N{NO-BREAK SPACE}%" in found
    assert "without padding behind them 0\N{NO-BREAK SPACE}%" in found


def test_a_weakness_for_long_inputs_is_named_with_both_ends(scripted, task):
    pairs = fixed_pairs(task, 400, split="test")

    def forgetful(src):
        return reversing(src) if src.shape[1] < 7 else torch.full_like(src, EOS_ID)

    measured = measure(scripted(forgetful), task, pairs)
    found = " ".join(findings(measured, FINISHED))
    # There are too few inputs of 2 symbols in the test set to speak of them.
    assert (measured.sequences.length == 2).sum() < 30
    assert re.search(r"inputs with 3 symbols 100.% .* of those with 5 0.%", found)
    assert "It is sure of wrong tokens" in found
    assert 0 < measured.exact_alone < 1
    assert set(measured.sequences.outcome) == {"exact", "stopped early"}


def test_a_fixed_set_that_is_known_by_heart_is_named(scripted, task, pairs):
    by_heart = Training(8, 8, "", train_loss=0.001, guessing_loss=2.565)
    measured = measure(scripted(lambda src: torch.full_like(src, 7)), task, pairs)
    assert "It knows its training sentences better than the task" in " ".join(findings(measured, by_heart))
    assert "training sentences" not in " ".join(findings(measured, FINISHED))


def test_an_empty_test_set_is_refused(scripted, task, pairs):
    with pytest.raises(ValueError, match="no sequences to evaluate on"):
        measure(scripted(reversing), task, pairs[:0])


def test_decoding_by_itself_is_what_one_by_one_decoding_gives(tiny_gru, task):
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


def test_training_targets_are_those_the_preset_asks_for():
    told = targets_of(build_task(load_preset("numbers-reversal-as-reported").task))
    assert (told.with_eos, told.lengths) == (0.0, (10,))
    good = targets_of(build_task(load_preset("words-reversal-gru").task))
    assert (good.with_eos, good.lengths) == (1.0, tuple(range(3, 11)))
