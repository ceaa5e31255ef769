"""Direct logit attribution: the parts sum to the logit, and each is what its equation says."""

import pytest
import torch
from torch.testing import assert_close

from core.interpret.attribution.direct_logit_attribution import direct_logit_attribution
from core.models.hooks import hooks
from core.storage.errors import InputError
from tests.support.attribution_models import ENCODER_ONLY, RECURRENT, WITH_STREAM, build, predict

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.mark.parametrize("name", WITH_STREAM)
def test_the_parts_sum_to_the_logit(name):
    model = build(name)
    for step, foil in ((0, False), (3, True)):
        prediction = predict(model, step=step, foil=foil)
        result = direct_logit_attribution(model, prediction)
        expected = prediction.score(model(prediction.src, prediction.tgt_in)[0, -1]).item()
        assert result.logit == pytest.approx(expected, abs=1e-5)
        assert sum(part.logit for part in result.parts) == pytest.approx(expected, abs=1e-5)
        assert len({part.name for part in result.parts}) == len(result.parts)
        blocks = {"encoder"} if name in ENCODER_ONLY else {"decoder", "cross"}
        assert set(result.heads) == {head for head in model.heads if head.block in blocks}


@torch.no_grad()
@pytest.mark.parametrize(
    "name", ["pre, sinusoidal", "decoder-only pre, alibi", "encoder-only pre, sinusoidal", "linear"]
)
def test_with_pre_norm_a_head_adds_its_output_through_the_final_norm(name):
    model = build(name)
    prediction = predict(model)
    block, position = ("encoder", 3) if name in ENCODER_ONLY else ("decoder", -1)  # of step 2, after BOS
    if name.startswith("decoder-only"):
        norm, layers = model.norm, model.layers
    else:
        norm, layers = getattr(model, f"{block}_norm"), getattr(model, f"{block}_layers")
    z, stream = {}, {}
    read = {
        layer.self_attention.hook_z.name: lambda x, n=n: z.__setitem__(n, x[0, :, position])
        for n, layer in enumerate(layers)
    }
    with hooks(read | {layers[-1].hook_resid_post.name: lambda x: stream.__setitem__("end", x[0, position])}):
        model(prediction.src, prediction.tgt_in)  # of a decoder-only model, ``decode`` comes last
    direction = model.output.weight[prediction.target] - model.output.weight[prediction.foil]
    result = direct_logit_attribution(model, prediction)
    assert result.num_frozen == 1
    for head in (head for head in model.heads if head.block == block):
        columns = layers[head.layer - 1].self_attention.w_o.weight[:, (head.head - 1) * 8 : head.head * 8]
        written = columns @ z[head.layer - 1][head.head - 1]
        scaled = norm.weight * (written - written.mean()) / (stream["end"].var(correction=0) + norm.eps).sqrt()
        assert result.heads[head] == pytest.approx((scaled @ direction).item(), abs=1e-5)
    biases = {part.name: part.logit for part in result.parts if part.kind == "attention bias"}
    bias = layers[1].self_attention.w_o.bias
    scaled = norm.weight * (bias - bias.mean()) / (stream["end"].var(correction=0) + norm.eps).sqrt()
    assert biases[f"{block}.2 bias"] == pytest.approx((scaled @ direction).item(), abs=1e-5)


@torch.no_grad()
def test_with_post_norm_a_part_passes_every_later_norm():
    model = build("post, sinusoidal")
    prediction = predict(model)
    result = direct_logit_attribution(model, prediction)
    assert result.num_frozen == 6
    layer, read = model.decoder_layers[1], {}
    with hooks(
        {
            layer.cross_attention.hook_z.name: lambda x: read.__setitem__("z", x[0, 1, -1]),
            layer.cross_attention.hook_out.name: lambda x: read.__setitem__("out", x[0, -1]),
            layer.hook_resid_mid.name: lambda x: read.__setitem__("mid", x[0, -1]),
            layer.hook_resid_cross.name: lambda x: read.__setitem__("cross", x[0, -1]),
            layer.feed_forward.hook_out.name: lambda x: read.__setitem__("fed", x[0, -1]),
        }
    ):
        model(prediction.src, prediction.tgt_in)
    part = layer.cross_attention.w_o.weight[:, 8:] @ read["z"]
    for norm, stream in (
        (layer.norm_cross, read["mid"] + read["out"]),
        (layer.norm_feed_forward, read["cross"] + read["fed"]),
    ):
        part = norm.weight * (part - part.mean()) / (stream.var(correction=0) + norm.eps).sqrt()
    direction = model.output.weight[prediction.target] - model.output.weight[prediction.foil]
    by_name = {str(head): logit for head, logit in result.heads.items()}
    assert by_name["cross.2.2"] == pytest.approx((part @ direction).item(), abs=1e-5)


def test_a_residual_stream_that_a_hook_replaces_is_a_part_of_its_own():
    for name in ("post, sinusoidal", "pre, sinusoidal"):
        model = build(name)
        for layer in model.decoder_layers:
            layer.hook_skip.permanent = torch.zeros_like
        prediction = predict(model)
        result = direct_logit_attribution(model, prediction)
        assert sum(part.logit for part in result.parts) == pytest.approx(result.logit, abs=1e-5)
        assert {part.kind for part in result.parts if part.layer is None} <= {"norm bias", "output bias"}


def test_an_ablated_head_adds_nothing():
    model = build("post, sinusoidal")
    prediction = predict(model)
    ablated = model.attention["cross", 2].hook_z.name
    with hooks({ablated: torch.zeros_like}):
        result = direct_logit_attribution(model, prediction)
    assert_close(
        [logit for head, logit in result.heads.items() if str(head).startswith("cross.2")], [0.0, 0.0], **CLOSE
    )
    assert sum(part.logit for part in result.parts) == pytest.approx(result.logit, abs=1e-5)


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_models_are_refused(name):
    model = build(name)
    with pytest.raises(
        InputError, match="direct logit attribution needs a residual stream; a recurrent model has none"
    ):
        direct_logit_attribution(model, predict(model))
