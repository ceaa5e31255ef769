"""``lab.attention``: the attention of any module on one pair, as a table for each head."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from core.config.counting import counted
from core.interpret.any_module.attention import by_head, pair_attention
from core.interpret.any_module.calling import Forward, ModelCall, checked_ids, checked_number, described, module_of
from core.interpret.any_module.kept_states import examined
from core.storage.errors import InputError

if TYPE_CHECKING:  # a tenth of a second to import
    import pandas as pd

Vocab = Sequence[str] | Mapping[int, str] | Callable[[int], str]
"""Tokens by id: a list, a mapping, or a function such as ``tokenizer.convert_ids_to_tokens``."""


def attention(
    forward: Forward,
    src: torch.Tensor,
    tgt_in: torch.Tensor | None = None,
    *,
    pair: int = 0,
    model: nn.Module | None = None,
    pad: int | None = None,
    src_vocab: Vocab | None = None,
    tgt_vocab: Vocab | None = None,
    batch_first: bool = True,
) -> "dict[str, pd.DataFrame]":
    """Run one pair through any PyTorch module, and return each head's attention weights by the head's name.

    Seen are ``nn.MultiheadAttention`` and every call of softmax or ``scaled_dot_product_attention`` whose weights have
    the shape of source and decoder input. The model runs in evaluation mode, in the precision of the caller; its modes,
    hooks and buffers and the random generators of PyTorch, Python and NumPy are unchanged afterwards.

    Args:
        forward: called as ``forward(src, tgt_in)``, as by ``diagnose``: an ``nn.Module``, or a function that adds
            masks. A model of Hugging Face is called by the names of its arguments.
        src: (B, S) int64; of a language model its ids.
        tgt_in: (B, T) int64, the decoder input; None for a language model, called as ``forward(ids)``.
        pair: which row, from 0. It runs alone, not with the other rows.
        model: the module with the parameters, if ``forward`` is a function.
        pad: id of PAD, which is removed from the ends of the row; None leaves it.
        src_vocab, tgt_vocab: tokens by id, for the labels: a list, a mapping or a function; without one, the ids. A
            language model needs ``src_vocab`` only.
        batch_first: False if ``src`` and ``tgt_in`` are (S, B) and (T, B).

    Returns:
        A table a head, (queries, keys) float, named ``encoder.1.2`` for layer 1, head 2, and ``decoder`` or ``cross``
        likewise; of a language model ``decoder``. Layers are numbered in the order of their calls. The rows of
        ``decoder`` and ``cross`` are the tokens of the decoder input. A warning names blocks that may be missing.

    Raises:
        InputError: the ids are no matrices, there is no such pair, or ``pad`` is no id.
        NoAttentionError: no attention was seen; the message says what was.
    """
    import pandas as pd

    pair, pad = checked_number("pair", pair), None if pad is None else checked_number("pad", pad)
    call = ModelCall(forward, batch_first, () if pad is None else (pad,))
    source = _row("src", src, pair, call)
    target = None if tgt_in is None else _row("tgt_in", tgt_in, pair, call)
    source = without_pad(source, pad, also_first=target is not None)
    target = None if target is None else without_pad(target, pad)
    module = module_of(forward, model)
    with examined(module):
        layers, missing = pair_attention(call, module, source, target)
    if missing:
        warnings.warn(missing, stacklevel=2)
    heads = by_head(layers)
    read = token_labels(source, src_vocab)
    queries = read if target is None else token_labels(target, tgt_vocab)
    tables = {}
    for name, weights in heads.items():
        block = name.split(".")[0]
        rows, columns = (read if block == "encoder" else queries), (queries if block == "decoder" else read)
        if block == "decoder" and weights.shape[1] > len(columns):  # the lab's decoder-only models read the source too
            columns = [*read, *queries]
        tables[name] = pd.DataFrame(weights.cpu().numpy(), index=rows[: len(weights)], columns=columns)
    return tables


def without_pad(ids: torch.Tensor, pad: int | None, *, also_first: bool = False) -> torch.Tensor:
    """Remove PAD from the end of ids (T,), and from their beginning if ``also_first``; one id remains at least.

    Decoders may start with PAD, so only sources are cut at their beginning.
    """
    if pad is None:
        return ids
    tokens = torch.ne(ids, pad).nonzero()[:, 0]
    if not len(tokens):
        return ids[:1]
    return ids[int(tokens[0]) if also_first else 0 : int(tokens[-1]) + 1]


def token_labels(ids: torch.Tensor, vocab: Vocab | None) -> list[str]:
    """Return the token of each id (T,) int64; the id itself where there is none.

    Raises:
        InputError: ``vocab`` is none.
    """
    if vocab is not None and not callable(vocab) and not hasattr(vocab, "__getitem__"):
        raise InputError(f"vocab is {described(vocab)}; it must be a list, a mapping or a function")
    return [_label(each, vocab) for each in ids.tolist()]


def _label(token: int, vocab: Vocab | None) -> str:
    if vocab is None or token < 0:  # such as the -100 of targets that do not count
        return str(token)
    try:
        return str(vocab(token) if callable(vocab) else vocab[token])
    except (IndexError, KeyError):
        return str(token)


def _row(name: str, ids: torch.Tensor, pair: int, call: ModelCall) -> torch.Tensor:
    rows = call.turned(checked_ids(name, ids))
    if not 0 <= pair < len(rows):
        raise InputError(f"pair={pair} must be from 0 to {len(rows) - 1}: {name} has {counted(len(rows), 'pair')}")
    return rows[pair]
