"""Attributions to input tokens, compared with Captum and with references written without the package."""

import pytest
import torch
from captum.attr import IntegratedGradients as CaptumIntegratedGradients
from captum.attr import Saliency
from torch.testing import assert_close

from core.interpret.attribution.input_gradients import gradient_times_input, integrated_gradients, saliency
from core.interpret.attribution.occlusion import occlusion
from core.interpret.attribution.value_zeroing import value_zeroing
from core.models.encoder_only import EncoderOnly
from core.models.gru import GRUSeq2Seq
from core.models.hooks import hooks
from core.models.transformer import Transformer
from tests.support.attribution_models import ENCODER_ONLY, RECURRENT, TRANSFORMERS, WITH_DECODER, build, predict

CLOSE = {"atol": 1e-4, "rtol": 1e-4}
OF_EMBEDDINGS = [  # one for each way from tokens to embeddings to a score
    *("pre, sinusoidal", "linear", "pre, all tied", "as in BART", "as in Marian", "as in T5"),
    *("decoder-only post, vo-rope", "decoder-only as in GPT-2", "encoder-only pre, sinusoidal"),
    *RECURRENT,
]


def forward_of(model, prediction):
    """The explained score as a function of each side's token embeddings, by other means than hooks: for Captum."""

    def forward(source, *prefix):
        def of(vectors):  # takes the place of nn.Embedding's call
            return lambda ids: vectors / scale

        two = model.tgt_embedding if model.src_embedding is None else model.src_embedding
        scale, rows = two.scale, len(source)
        src, tgt_in = prediction.src.expand(rows, -1), prediction.tgt_in.expand(rows, -1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(two.tokens, "forward", of(source))
            memory = model.encode(src)
            for each in prefix:
                patch.setattr(model.tgt_embedding.tokens, "forward", of(each))
            return prediction.score(model.decode(tgt_in, memory).logits[:, -1])

    return forward


def embedded(model, prediction):
    if isinstance(model, EncoderOnly):
        pairs = [(model.src_embedding, prediction.src)]
    else:
        source = model.tgt_embedding if model.src_embedding is None else model.src_embedding
        pairs = [(source, prediction.src), (model.tgt_embedding, prediction.tgt_in)]
    return tuple((each.tokens(ids) * each.scale).detach() for each, ids in pairs)


def assert_sides(result, expected):
    """The attributions of the source and, unless the model is encoder-only, of the prefix, which it does not read."""
    source, prefix = (*expected, torch.zeros(0))[:2]
    assert_close(result.source, source, **CLOSE)
    assert_close(result.prefix, prefix, **CLOSE)


@pytest.mark.filterwarnings("ignore:Input Tensor")  # Captum sets requires_grad itself
@pytest.mark.parametrize("name", OF_EMBEDDINGS)
def test_gradients_equal_captum(name):
    model = build(name)
    prediction = predict(model)
    inputs, forward = embedded(model, prediction), forward_of(model, prediction)
    signed = Saliency(forward).attribute(inputs, abs=False)
    sides = [saliency(model, prediction), gradient_times_input(model, prediction)]
    for result, expected in zip(
        sides,
        [[each[0].norm(dim=-1) for each in signed], [(g * x)[0].sum(-1) for g, x in zip(signed, inputs, strict=True)]],
        strict=True,
    ):
        assert_sides(result, expected)
        assert result.logit == pytest.approx(forward(*inputs).item(), abs=1e-5)


@pytest.mark.parametrize("name", OF_EMBEDDINGS)
def test_integrated_gradients_equal_captum_and_sum_to_the_difference(name):
    model = build(name)
    prediction = predict(model)
    inputs, forward = embedded(model, prediction), forward_of(model, prediction)
    result = integrated_gradients(model, prediction)
    captum = CaptumIntegratedGradients(forward)
    expected = captum.attribute(inputs, n_steps=result.num_nodes, method="gausslegendre")
    assert_sides(result, [each[0].sum(-1) for each in expected])
    baseline = forward(*(torch.zeros_like(each) for each in inputs)).item()
    assert result.baseline_logit == pytest.approx(baseline, abs=1e-5)
    total = (result.source.sum() + result.prefix.sum()).item()
    assert result.gap == pytest.approx(total - (result.logit - baseline), abs=1e-5)
    assert abs(result.gap) < 0.1 * max(1, abs(result.logit - baseline))


@torch.no_grad()
@pytest.mark.parametrize("name", OF_EMBEDDINGS)
def test_occlusion_is_the_loss_without_a_token(name):
    model = build(name)
    prediction = predict(model)
    inputs, forward = embedded(model, prediction), forward_of(model, prediction)
    result = occlusion(model, prediction)
    assert [len(result.source), len(result.prefix)] == [*(each.shape[1] for each in inputs), 0][:2]
    for side, values in enumerate((result.source, result.prefix)):
        for token in range(len(values)):
            changed = [each.clone() for each in inputs]
            changed[side][0, token] = 0
            assert values[token].item() == pytest.approx((forward(*inputs) - forward(*changed)).item(), abs=1e-4)


def without_values(model, prediction, phase: str, point: str, output: str, token: int | None, axis: int):
    """A layer's outputs (T, D) at a point of the decoder with one token's values zeroed in one phase."""
    kept = []

    def zero(values):
        if token is None:
            return None
        return values.index_fill(axis, torch.tensor([token]), 0.0)

    with hooks({point: zero} if phase == "encode" else {}):
        memory = model.encode(prediction.src)
    with hooks({output: kept.append} | ({point: zero} if phase == "decode" else {})):
        model.decode(prediction.tgt_in, memory)
    return kept[0][0] if len(kept) == 1 else torch.stack([state[-1, 0, :12] for state in kept])  # of recurrent decoders


def expected_changes(model, prediction, phase: str, point: str, output: str, axis: int = 2):
    count = (prediction.src if phase == "encode" or "cross" in point or axis == 1 else prediction.tgt_in).shape[1]
    plain = without_values(model, prediction, phase, point, output, None, axis)
    others = [without_values(model, prediction, phase, point, output, token, axis) for token in range(count)]
    return 1 - torch.stack([torch.nn.functional.cosine_similarity(plain, each, dim=-1) for each in others], dim=-1)


@torch.no_grad()
@pytest.mark.parametrize("name", WITH_DECODER)
def test_value_zeroing_equals_one_pass_per_token(name):
    model = build(name)
    prediction = predict(model)
    result = value_zeroing(model, prediction)
    if isinstance(model, GRUSeq2Seq):
        expected = expected_changes(model, prediction, "decode", "decoder.attention.hook_v", "decoder.hook_state", 1)
        assert_close(result.cross[0], expected, **CLOSE)
        assert (result.encoder, result.decoder) == (None, None)
        return
    for number in range(2):
        if isinstance(model, Transformer):
            path = f"decoder_layers.{number}"
            names = {"cross": f"{path}.cross_attention.hook_v", "decoder": f"{path}.self_attention.hook_v"}
            for block, point in names.items():
                expected = expected_changes(model, prediction, "decode", point, f"{path}.hook_resid_post")
                assert_close(getattr(result, block)[number], expected, **CLOSE)
            assert not result.decoder[number].triu(1).gt(1e-6).any()  # later tokens change nothing
        else:
            point, output = f"layers.{number}.self_attention.hook_v", f"layers.{number}.hook_resid_post"
            sides = [expected_changes(model, prediction, phase, point, output) for phase in ("encode", "decode")]
            assert_close(result.decoder[number], torch.cat(sides, dim=1), **CLOSE)
        assert result.decoder[number].max() > 1e-5


@torch.no_grad()
@pytest.mark.parametrize("name", [*TRANSFORMERS, *ENCODER_ONLY])
def test_value_zeroing_of_the_encoder_equals_one_pass_per_token(name):
    model = build(name)
    prediction = predict(model)
    result, outputs = value_zeroing(model, prediction), []
    assert ((result.decoder, result.cross) == (None, None)) == (name in ENCODER_ONLY)
    for number in range(2):
        path = f"encoder_layers.{number}"
        for token in (None, *range(prediction.src.shape[1])):

            def zero(values, token=token):
                values = values.clone()
                if token is not None:
                    values[:, :, token] = 0
                return values

            with hooks({f"{path}.self_attention.hook_v": zero, f"{path}.hook_resid_post": outputs.append}):
                model.encode(prediction.src)
        plain, *others = (each[0] for each in outputs)
        expected = 1 - torch.stack([torch.nn.functional.cosine_similarity(plain, each, dim=-1) for each in others], -1)
        assert_close(result.encoder[number], expected, **CLOSE)
        assert result.encoder[number].max() > 1e-4  # not the silent zeros of a kernel that ignores the hook
        outputs.clear()


@pytest.mark.parametrize("name", ["pre, sinusoidal", "gru"])
def test_nothing_is_left_on_the_model(name):
    model = build(name)
    prediction = predict(model)
    before = model(prediction.src, prediction.tgt_in)
    with torch.no_grad():  # as a page may call it
        saliency(model, prediction)
        integrated_gradients(model, prediction)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(model(prediction.src, prediction.tgt_in), before)
