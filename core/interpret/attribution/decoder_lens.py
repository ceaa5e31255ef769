"""DecoderLens: the decoder's answer if it attends to an earlier encoder layer (Langedijk et al. 2024).

arXiv 2310.03686. The decoder is unchanged; it reads the residual stream after encoder layer k, passed through the
encoder's final norm, instead of the last one.
"""

from dataclasses import dataclass
from functools import partial
from typing import cast

import torch

from core.generation import generate
from core.interpret.attribution.prediction import Prediction
from core.models import Seq2Seq
from core.models.encoder_only import EncoderOnly
from core.models.hooks import hooks
from core.models.layers import EncoderLayer
from core.models.transformer import Transformer
from core.storage.errors import InputError
from core.tasks import Task
from core.text.vocab import EOS_ID, until_eos

LIMITS = (
    "Shows how far the encoder has got after each layer, in the decoder's own words; a wrong answer cannot show that "
    "the layer lacks the information, since the decoder was trained to read only the last."
)


@dataclass(frozen=True)
class LensAnswer:
    """The answer of a decoder that reads one encoder layer.

    Attributes:
        layer: the encoder layer, numbered from 1; 0 is the embedding.
        answer: its tokens, greedy, without EOS.
        stopped: whether it ended with EOS.
        matches: whether it equals the answer from the last layer, EOS included.
        score: at the explained step, after the clean answer's tokens: logit of the target, minus the foil's if any.
        probability: of the target at that step, 0-1.
    """

    layer: int
    answer: tuple[str, ...]
    stopped: bool
    matches: bool
    score: float
    probability: float


@torch.no_grad()
def decoder_lens(model: Seq2Seq, task: Task, prediction: Prediction) -> tuple[LensAnswer, ...]:
    """Decode greedily from every layer of the encoder; the last is the model's normal answer.

    Args:
        model: a Transformer in evaluation mode.

    Returns:
        One answer per layer, from the embedding, 0, to the last.

    Raises:
        InputError: the model has no encoder, no decoder, or a recurrent encoder without a residual stream.
    """
    if isinstance(model, EncoderOnly):
        raise InputError(
            "DecoderLens needs a decoder that attends to the encoder; EncoderOnly has none, so it cannot be used. The "
            "logit lens reads its predictions after each sublayer"
        )
    if not isinstance(model, Transformer):
        raise InputError(
            f"DecoderLens needs an encoder of Transformer layers; {type(model).__name__} has none, so it cannot be used"
        )
    layers = [cast(EncoderLayer, layer) for layer in model.encoder_layers]
    points = [layers[0].hook_resid_pre, *(layer.hook_resid_post for layer in layers)]
    streams: dict[str, torch.Tensor] = {}
    with hooks({point.name: partial(streams.__setitem__, point.name) for point in points}):
        model.encode(prediction.src)
    by_layer = torch.cat([streams[point.name] for point in points])  # (1 + L, S, D), a row of the batch per layer
    src, tgt_in = (ids.expand(len(by_layer), -1) for ids in (prediction.src, prediction.tgt_in))
    with hooks({points[-1].name: lambda x: by_layer}):  # instead of the last layer's output; the final norm follows
        tokens = generate(model, src, max_steps=model.max_seq_len).tokens
        logits = model(src, tgt_in)[:, -1]
    probabilities = logits.softmax(dim=-1)[:, prediction.target]
    return tuple(
        LensAnswer(
            layer,
            tuple(task.tgt_vocab.decode(until_eos(tokens[layer].tolist()))),
            bool((tokens[layer] == EOS_ID).any()),
            torch.equal(tokens[layer], tokens[-1]),
            prediction.score(logits[layer]).item(),
            probabilities[layer].item(),
        )
        for layer in range(len(by_layer))
    )
