"""CTranslate2 with the project's weights, as a baseline for the speed of translating."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ctranslate2
import numpy as np
import torch
from ctranslate2.specs import Activation, TransformerSpec
from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
from ctranslate2.specs.common_spec import LayerNormSpec, LinearSpec
from ctranslate2.specs.transformer_spec import FeedForwardSpec
from torch import nn

from core.config.sections import RELATIVE_POSITIONS
from core.models.attention import MultiHeadAttention
from core.models.layers import FeedForward
from core.models.transformer import Transformer
from core.storage.errors import InputError
from core.text.vocab import BOS, EOS, PAD, UNK

SPECIAL = [PAD, BOS, EOS, UNK]


def to_ctranslate2(model: Transformer, precision: str = "float32") -> ctranslate2.Translator:
    """Convert a model to CTranslate2's, on one thread; tokens are named by ``_names``.

    Args:
        precision: "float32", or "int8" for 8-bit products.

    Raises:
        InputError: the model has relative positions, windowed or linear attention, scores scaled by the length or a
            temperature, or a norm other than a layer norm; CTranslate2 supports none of these.
    """
    config = model.config
    if config.positions in RELATIVE_POSITIONS or config.attention != "full":
        raise InputError(
            f"model.positions={config.positions!r} with model.attention={config.attention!r} cannot be compared: "
            "CTranslate2 has absolute positions and full attention only"
        )
    if config.attention_scale != "sqrt":
        raise InputError(f"model.attention_scale={config.attention_scale!r} cannot be compared: CTranslate2 has none")
    if config.attention_temperature != 1:
        raise InputError(
            f"model.attention_temperature={config.attention_temperature} cannot be compared: CTranslate2 has none"
        )
    if config.norm_block != "layer-norm":
        raise InputError(
            f"model.norm_block={config.norm_block!r} cannot be compared: it is not converted to CTranslate2"
        )
    spec = TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm == "pre",
        activation=Activation.RELU if config.activation == "relu" else Activation.GELU,
    )
    source = model.tgt_embedding if model.src_embedding is None else model.src_embedding
    for side, embedding, embeddings in (
        (spec.encoder, source, spec.encoder.embeddings[0]),
        (spec.decoder, model.tgt_embedding, spec.decoder.embeddings),
    ):
        table = embedding.tokens.weight
        positions = table.new_zeros(config.max_seq_len, config.d_model)
        embeddings.weight = _array(table)
        side.position_encodings.encodings = _array(positions if embedding.positions is None else embedding.positions)
    for layer, ours in zip(spec.encoder.layer, _layers(model.encoder_layers), strict=True):
        _set_attention(layer.self_attention, ours.self_attention, ours.norm_attention)
        _set_feed_forward(layer.ffn, ours.feed_forward, ours.norm_feed_forward)
    for layer, ours in zip(spec.decoder.layer, _layers(model.decoder_layers), strict=True):
        _set_attention(layer.self_attention, ours.self_attention, ours.norm_self)
        _set_attention(layer.attention, ours.cross_attention, ours.norm_cross)
        _set_feed_forward(layer.ffn, ours.feed_forward, ours.norm_feed_forward)
    if config.norm == "pre":
        _set_norm(spec.encoder.layer_norm, model.encoder_norm)
        _set_norm(spec.decoder.layer_norm, model.decoder_norm)
    tied = model.tgt_embedding.tokens.weight
    spec.decoder.projection.weight = _array(tied if model.output.weight is None else model.output.weight)
    spec.decoder.projection.bias = _array(model.output.bias)
    spec.register_source_vocabulary(_names(model.vocab_sizes[0]))
    spec.register_target_vocabulary(_names(model.vocab_sizes[1]))
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = BOS, EOS, UNK
    spec.config.decoder_start_token = BOS
    spec.config.add_source_bos = spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = 1e-5
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        path.mkdir()
        spec.validate()
        spec.save(str(path))
        return ctranslate2.Translator(str(path), compute_type=precision, inter_threads=1, intra_threads=1)


def translate(
    translator: ctranslate2.Translator,
    sources: Sequence[Sequence[int]],
    *,
    beam_size: int,
    max_steps: int,
    batch_size: int,
) -> list[list[int]]:
    """Return the best output for each source, both as ids without BOS and EOS.

    Args:
        beam_size: 1 for greedy decoding. Hypotheses are ranked by log-probability, without a length penalty.
        max_steps: maximum number of tokens, EOS included.
        batch_size: sources that are decoded together, sorted by length.
    """
    results = translator.translate_batch(
        [[str(token) for token in source] for source in sources],
        max_batch_size=batch_size,
        beam_size=beam_size,
        length_penalty=0,
        max_decoding_length=max_steps,
        min_decoding_length=0,
        max_input_length=0,
    )
    return [[_id(token) for token in result.hypotheses[0]] for result in results]


def _names(vocab_size: int) -> list[str]:
    """Return the names of the ids: special tokens, then numbers."""
    return SPECIAL + [str(index) for index in range(len(SPECIAL), vocab_size)]


def _id(name: str) -> int:
    return SPECIAL.index(name) if name in SPECIAL else int(name)


def _layers(layers: nn.ModuleList) -> list[Any]:
    return list(layers)


def _array(weight: torch.Tensor) -> np.ndarray:
    return weight.detach().float().contiguous().numpy()


def _set_linear(spec: LinearSpec, *linears: nn.Linear) -> None:
    """Set the weights of one linear map, or of several side by side."""
    spec.weight = _array(torch.cat([linear.weight for linear in linears]))
    spec.bias = _array(torch.cat([linear.bias for linear in linears]))


def _set_norm(spec: LayerNormSpec, norm: nn.Module) -> None:
    spec.gamma, spec.beta = (_array(each) for each in norm.parameters())


def _set_attention(spec: MultiHeadAttentionSpec, attention: MultiHeadAttention, norm: nn.Module) -> None:
    if len(spec.linear) == 2:
        _set_linear(spec.linear[0], attention.w_q, attention.w_k, attention.w_v)
    else:
        _set_linear(spec.linear[0], attention.w_q)
        _set_linear(spec.linear[1], attention.w_k, attention.w_v)
    _set_linear(spec.linear[-1], attention.w_o)
    _set_norm(spec.layer_norm, norm)


def _set_feed_forward(spec: FeedForwardSpec, feed_forward: FeedForward, norm: nn.Module) -> None:
    _set_linear(spec.linear_0, feed_forward.widen)
    _set_linear(spec.linear_1, feed_forward.narrow)
    _set_norm(spec.layer_norm, norm)
