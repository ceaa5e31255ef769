"""Decoding as two graphs: one reads the source, the other reads one more target token with the cache of those before.

    given = start(weights, head_gains, src)
    while ...:
        logits, attention, new = token(weights, head_gains, token, **given)   # new.target replaces that of given

An encoder-only model answers in one pass and has no use for them; see ``core.graphs.forward``.
"""

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any, cast

import torch
from torch import nn

from core.graphs.forward import HEAD_GAINS, gain_hooks, named_maps
from core.graphs.graph import Graph, check_can_be_traced, flat_names, trace, weights_of
from core.models import AttentionRecorder, Seq2Seq
from core.models.attention import KeysValues
from core.models.decoder_only import DecoderOnly
from core.models.hooks import hooks
from core.models.layers import DecoderLayer
from core.models.seq2seq import KeyValueCache, LayerCache, Memory
from core.models.transformer import Transformer
from core.storage.errors import InputError
from core.text.vocab import BOS_ID

Caches = list[list[torch.Tensor]]  # of each layer keys and values, (B, H, S or P, K) float
_ANY = torch.export.Dim.DYNAMIC


@torch.no_grad()
def start_graph(model: Seq2Seq) -> Graph:
    """Trace what is computed once for a source.

    Inputs: the parameters by name; ``head_gains`` (N,) float, as in ``forward_graph``; ``src`` (B, S) int64. Outputs
    are the inputs of the first step: ``mask`` (B, 1, 1, S) bool; with an encoder ``source.LAYER.1`` and ``.2``, keys
    and values of its output, each (B, H, S, K) float; ``target.LAYER.1`` and ``.2``, those of the tokens read so far,
    which are none, or the source in a decoder-only model. With an encoder also its attention, ``encoder``
    (L, B, H, S, S) float.

    Raises:
        InputError: the model does not decode token by token.
    """
    _check_has_cache(model)
    start = _Start(model.eval())
    example = (torch.ones(len(model.heads)), _example_src(model))
    program = trace(start, example, (None, {0: _ANY, 1: _ANY}))
    return Graph(program, (*weights_of(model), HEAD_GAINS, "src"), tuple(flat_names("", start(*example))))


@torch.no_grad()
def token_graph(model: Seq2Seq) -> Graph:
    """Trace one step: read a target token and score its successor.

    Inputs: the parameters by name, ``head_gains``, ``token`` (B, 1) int64, and ``mask``, ``source.…`` and ``target.…``
    from ``start_graph`` or the step before. Outputs: ``logits`` (B, 1, V) float; ``decoder`` and ``cross``, the token's
    row of attention, (L, B, H, 1, …) float; ``new.target.…`` for the next step.

    Raises:
        InputError: the model does not decode token by token.
    """
    _check_has_cache(model)
    step, gains, src = _Token(model.eval()), torch.ones(len(model.heads)), _example_src(model)
    read, token = _Start(model)(gains, src), torch.full((len(src), 1), BOS_ID)
    target = read["target"]
    for _ in range(3):  # 0 or 1 tokens read, or as many as the source has, would be taken for constants
        target = step(gains, token, read["mask"], read["source"], target)["new"]["target"]
    example = (gains, token, read["mask"], read["source"], target)
    caches = [[[{0: _ANY, 2: _ANY}] * 2 for _ in each] for each in (read["source"], target)]
    program = trace(step, example, (None, {0: _ANY}, {0: _ANY, 3: _ANY}, *caches))
    given = flat_names("", {"token": token, "mask": read["mask"], "source": read["source"], "target": target})
    inputs = (*weights_of(model), HEAD_GAINS, *given)
    return Graph(program, inputs, tuple(flat_names("", step(*example))))


def _check_has_cache(model: Seq2Seq) -> None:
    check_can_be_traced(model)
    if not isinstance(model, Transformer | DecoderOnly):
        raise InputError("an encoder-only model answers in one pass, so there is no graph of one step")
    if isinstance(model, DecoderOnly) and not model.config.target_bos:
        raise InputError("model.target_bos=False: the first step reads a token of the source, which has no graph")


def _example_src(model: Seq2Seq) -> torch.Tensor:
    """Return a source of a few tokens, with room for a few steps within ``max_seq_len``."""
    return torch.full((3, min(7, model.max_seq_len)), BOS_ID)


class _Start(nn.Module):
    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, gains: torch.Tensor, src: torch.Tensor) -> dict[str, Any]:
        with hooks(gain_hooks(self.model, gains)), AttentionRecorder(self.model) as recorder:
            memory = self.model.encode(src)
            maps = recorder.take()
            if memory.past is not None:
                target = [_listed(layer.target) for layer in memory.past.layers]
                return {"mask": memory.mask, "source": [], "target": target}
            layers = cast(Iterable[DecoderLayer], self.model.decoder_layers)
            source = [_listed(layer.new_cache(memory.states).source) for layer in layers]
        none_read = [[each[:, :, :0].clone() for each in layer] for layer in source]
        return {"mask": memory.mask, "source": source, "target": none_read} | named_maps(maps)


class _Token(nn.Module):
    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, gains: torch.Tensor, token: torch.Tensor, mask: torch.Tensor, source: Caches, target: Caches
    ) -> dict[str, Any]:
        pairs = zip_longest(((keys, values) for keys, values in source), ((keys, values) for keys, values in target))
        layers = tuple(LayerCache(of_source, of_target) for of_source, of_target in pairs)
        length = target[0][0].shape[2] - (0 if source else mask.shape[-1])
        memory = Memory(torch.empty(0), mask)  # the cache holds what the decoder reads of the source
        with hooks(gain_hooks(self.model, gains)), AttentionRecorder(self.model) as recorder:
            output = self.model.decode(token, memory, KeyValueCache(layers, length))
            maps = recorder.take()
        read = [_listed(layer.target) for layer in output.cache.layers]
        return {"logits": output.logits} | named_maps(maps) | {"new": {"target": read}}


def _listed(pair: KeysValues | None) -> list[torch.Tensor]:
    return list(pair or ())
