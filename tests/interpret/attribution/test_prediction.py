"""The prediction to explain: its tensors are what the model reads at that step."""

import pytest
import torch

from core.interpret.attribution.prediction import prediction_at
from core.storage.errors import InputError
from core.text.vocab import BOS_ID, EOS_ID
from tests.support.attribution_models import build, digits

MODEL, TASK = build("pre, sinusoidal"), digits()
VOCAB = TASK.tgt_vocab


def test_the_default_explains_the_greedy_answer():
    first = prediction_at(MODEL, TASK, list("482"))
    assert first.src.tolist() == [[BOS_ID, *TASK.src_vocab.encode(list("482")), EOS_ID]]
    for step in range(3):
        one = prediction_at(MODEL, TASK, list("482"), step=step)
        assert one.tgt_in.tolist() == [[BOS_ID, *first.answer[:step]]]
        logits = MODEL(one.src, one.tgt_in)[0, -1]
        assert one.target == first.answer[step] == logits.argmax()
        assert (one.step, one.foil, str(one)) == (step, None, f"why {VOCAB.tokens[one.target]}?")
        assert one.score(logits) == logits.max()


def test_an_answer_a_target_and_a_foil_can_be_given():
    one = prediction_at(MODEL, TASK, list("482"), step=1, answer=["2", "8", "4"], target="9", foil="7")
    assert one.prefix_labels == ("<BOS>", "2")
    assert one.source_labels == ("<BOS>", "4", "8", "2", "<EOS>")
    logits = torch.randn(len(VOCAB))
    assert one.score(logits) == logits[VOCAB.tokens.index("9")] - logits[VOCAB.tokens.index("7")]
    assert str(one) == "why 9, not 7?"
    assert prediction_at(MODEL, TASK, list("482"), step=3, answer=["2", "8", "4"]).target == EOS_ID


def test_an_encoder_only_model_predicts_at_a_position_of_the_source_and_reads_no_prefix():
    model = build("encoder-only pre, sinusoidal")
    for step, position in ((0, 1), (2, 3), (3, 4), (6, 4)):  # steps after the source's EOS are predicted there
        one = prediction_at(model, TASK, list("482"), step=step)
        assert (one.step, one.position, one.row, one.prefix_labels) == (step, position, position, ())
        scored = model.output(model.encode(one.src).states)[0, position]
        assert torch.allclose(model(one.src, one.tgt_in)[0, -1], scored, atol=1e-5)
    decoder = prediction_at(MODEL, TASK, list("482"), step=2)
    assert (decoder.position, decoder.row) == (None, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": 4, "answer": ["2", "8", "4"]}, "step=4 is not a step of this answer, which has 0 to 3"),
        ({"step": -1}, "step=-1 is not a step"),
        ({"target": "x"}, "target='x' is not in the vocabulary"),
        ({"answer": ["2"], "foil": "2"}, "foil='2' must be another token"),
        ({"answer": ["no"]}, "answer='no'"),
    ],
)
def test_what_cannot_be_explained_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        prediction_at(MODEL, TASK, list("482"), **options)


def test_a_source_that_is_too_long_is_refused():
    with pytest.raises(InputError, match="13 tokens with BOS and EOS; this model reads at most 12"):
        prediction_at(MODEL, TASK, ["1"] * 11)
