"""Logit lens and DecoderLens: the last of each is the model itself, the others equal a model cut off there."""

import copy

import pytest
import torch
from torch.testing import assert_close

from core.generation import generate
from core.interpret.attribution.decoder_lens import decoder_lens
from core.interpret.attribution.logit_lens import logit_lens
from core.interpret.attribution.prediction import prediction_at
from core.runs import DEFAULT_ROOT
from core.runs.load import load_run
from core.storage.errors import InputError
from core.text.vocab import until_eos
from tests.support.attribution_models import ENCODER_ONLY, RECURRENT, TRANSFORMERS, WITH_STREAM, build, digits, predict

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
TASK = digits()


def cut(model, layers: str, number: int):
    """The model with only the first layers of a stack, and keeps its final norm."""
    short = copy.deepcopy(model)
    setattr(short, layers, getattr(short, layers)[:number])
    return short


@torch.no_grad()
@pytest.mark.parametrize("name", WITH_STREAM)
def test_the_last_row_of_the_logit_lens_is_the_model(name):
    model = build(name)
    for step in (0, 3):
        prediction = predict(model, step=step)
        lens = logit_lens(model, TASK, prediction)
        logits = model(prediction.src, prediction.tgt_in)[0, -1]
        assert_close(lens.logits[-1], logits, **CLOSE)
        assert lens.rows[-1].score == pytest.approx(prediction.score(logits).item(), abs=1e-5)
        assert (lens.rows[-1].rank, lens.rows[-1].candidates[0][0]) == (1, prediction.target_token)
        assert lens.rows[-1].probability == pytest.approx(lens.rows[-1].candidates[0][1])


@torch.no_grad()
@pytest.mark.parametrize("name", WITH_STREAM)
def test_the_logit_lens_after_a_layer_is_the_model_without_the_layers_above(name):
    model = build(name)
    prediction = predict(model)
    lens = logit_lens(model, TASK, prediction)
    sublayers = 2 if "only" in name else 3
    layers = "encoder_layers" if name in ENCODER_ONLY else "layers" if "only" in name else "decoder_layers"
    short = cut(model, layers, 1)
    assert [row.layer for row in lens.rows] == [0, *[1] * sublayers, *[2] * sublayers]
    assert_close(lens.logits[sublayers], short(prediction.src, prediction.tgt_in)[0, -1], **CLOSE)


def test_decoder_lens_marks_the_answers_that_differ():
    loaded = load_run(DEFAULT_ROOT / "digits-reversal-shipped")
    prediction = prediction_at(loaded.model, loaded.task, list("482956"))
    answers = decoder_lens(loaded.model, loaded.task, prediction)
    assert [answer.matches for answer in answers] == [answer.answer == answers[-1].answer for answer in answers]
    assert not answers[0].matches
    assert answers[-1].answer == tuple("659284")


def test_the_lens_says_from_where_on_the_prediction_stands():
    loaded = load_run(DEFAULT_ROOT / "digits-reversal-shipped")
    prediction = prediction_at(loaded.model, loaded.task, list("482956"), step=1)
    lens = logit_lens(loaded.model, loaded.task, prediction)
    tops = [row.rank == 1 for row in lens.rows]
    assert lens.first is not None
    assert all(tops[lens.first :])
    assert lens.first == 0 or not tops[lens.first - 1]
    never = prediction_at(loaded.model, loaded.task, list("482956"), step=1, target="0")
    assert logit_lens(loaded.model, loaded.task, never).first is None


@torch.no_grad()
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_decoder_lens_is_the_model_without_the_encoder_layers_above(name):
    model = build(name)
    prediction = predict(model)
    answers = decoder_lens(model, TASK, prediction)
    assert [answer.layer for answer in answers] == [0, 1, 2]
    for answer in answers:
        short = cut(model, "encoder_layers", answer.layer)
        tokens = generate(short, prediction.src, max_steps=model.max_seq_len).tokens[0].tolist()
        assert list(answer.answer) == TASK.tgt_vocab.decode(until_eos(tokens))
        logits = short(prediction.src, prediction.tgt_in)[0, -1]
        assert answer.score == pytest.approx(prediction.score(logits).item(), abs=1e-5)
        assert answer.matches == ((answer.answer, answer.stopped) == (answers[-1].answer, answers[-1].stopped))
    assert answers[-1].matches
    assert answers[-1].answer == tuple(TASK.tgt_vocab.decode(until_eos(prediction.answer)))


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_models_have_no_lens(name):
    model = build(name)
    with pytest.raises(InputError, match="the logit lens needs a residual stream; a recurrent model has none"):
        logit_lens(model, TASK, predict(model))
    with pytest.raises(InputError, match="DecoderLens needs an encoder of Transformer layers; GRUSeq2Seq"):
        decoder_lens(model, TASK, predict(model))


def test_a_model_without_an_encoder_has_no_decoder_lens():
    model = build("decoder-only pre, sinusoidal")
    with pytest.raises(InputError, match="DecoderLens needs an encoder"):
        decoder_lens(model, TASK, predict(model))


def test_a_model_without_a_decoder_has_no_decoder_lens():
    model = build("encoder-only pre, sinusoidal")
    with pytest.raises(
        InputError, match="DecoderLens needs a decoder that attends to the encoder; EncoderOnly has none"
    ):
        decoder_lens(model, TASK, predict(model))
