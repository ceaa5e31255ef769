"""The attention of any module on one pair: each head's weights by block, recorded while the module runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import nn

from core.interpret.any_module.attention_calls import AttentionCall, record_lab_attention, record_torch_attention
from core.interpret.any_module.calling import ModelCall, logits_of
from core.interpret.any_module.function_calls import FunctionCalls
from core.models import Seq2Seq
from core.models.seq2seq import BLOCKS, Block
from core.storage.errors import InputError

ROUNDING = 1e-4  # of weights that are equal but for the order of sums
MAX_SEEN = 4  # shapes that a refusal names

PairAttention = dict[Block, list[torch.Tensor]]
"""By block, the weights of each layer, (H, Tq, Tk) float; layers are in the order of the calls."""


class NoAttentionError(InputError):
    """No attention was seen; the message says what shape it must have, and what was seen."""


@dataclass(frozen=True)
class BlockOrder:
    """The blocks of a model's attention in the order of its calls, but for the steps of a recurrent decoder.

    Attributes:
        modules: of ``nn.MultiheadAttention``.
        functions: of softmax and ``scaled_dot_product_attention``.
    """

    modules: tuple[Block | None, ...]
    functions: tuple[Block | None, ...]


@torch.no_grad()
def block_order(
    call: ModelCall, model: nn.Module | None, src: torch.Tensor, tgt_in: torch.Tensor | None
) -> BlockOrder | None:
    """Return the order of the blocks where their shapes do not tell them apart; None where they do.

    The model runs with a decoder input of another length. Arguments as for ``pair_attention``.
    """
    if tgt_in is None or len(src) != len(tgt_in):
        return None
    other = tgt_in[:-1] if len(tgt_in) > 2 else torch.cat([tgt_in, tgt_in[-1:]])
    modules, functions, _ = _recorded(call, model, src.expand(2, -1), other.expand(2, -1))
    return BlockOrder(*(tuple(each.block for each in calls if not _is_step(each)) for calls in (modules, functions)))


@torch.no_grad()
def pair_attention(
    call: ModelCall,
    model: nn.Module | None,
    src: torch.Tensor,
    tgt_in: torch.Tensor | None,
    order: BlockOrder | None = None,
) -> tuple[PairAttention, str]:
    """Run one pair through a model; return the attention weights of every layer, and which blocks may be missing.

    These are the weights of the lab's modules or of ``nn.MultiheadAttention``; of other attention, those of the calls
    of softmax and of ``scaled_dot_product_attention`` whose weights have the shape of the block. The steps of a
    recurrent decoder become the rows of one map. Call it inside ``kept_states.examined``.

    Args:
        call: how the model is called.
        model: the module with the parameters, if ``call`` has a function; None if there is none.
        src: (S,) int64.
        tgt_in: (T,) int64; None for a language model, whose ids are ``src``.
        order: ``block_order`` of this pair, if it is known.

    Raises:
        NoAttentionError: no attention was seen.
    """
    order = order or (None if isinstance(model, Seq2Seq) else block_order(call, model, src, tgt_in))
    # The pair is run twice in one batch: equal rows show whether heads or rows come first in (B·H, Tq, Tk), and a
    # model that squeezes its tensors keeps their dimensions.
    src, tgt_in = src.expand(2, -1), None if tgt_in is None else tgt_in.expand(2, -1)
    if isinstance(model, Seq2Seq) and tgt_in is not None:
        maps = record_lab_attention(model, src, tgt_in)[0]
        found = {block: getattr(maps, block) for block in BLOCKS}
        return {block: list(weights[:, 0]) for block, weights in found.items() if weights is not None}, ""
    modules, functions, others = _recorded(call, model, src, tgt_in)
    if order is not None:
        modules, functions = _renamed(modules, order.modules), _renamed(functions, order.functions)
    length = src.shape[1] if tgt_in is None else tgt_in.shape[1]
    layers = {block: _layers(modules, block, length) or _layers(functions, block, length) for block in BLOCKS}
    if not any(layers.values()):
        raise NoAttentionError(_nothing(src, tgt_in, others, call.batch_first))
    missing = [block for block in (BLOCKS if tgt_in is not None else ("decoder",)) if not layers[block]]
    return {block: of_block for block, of_block in layers.items() if of_block}, _missing(missing, others)


def by_head(layers: PairAttention) -> dict[str, torch.Tensor]:
    """Return the weights (Tq, Tk) float of each head by its name, such as ``cross.2.4``."""
    return {
        f"{block}.{layer}.{head}": weights
        for block, of_block in layers.items()
        for layer, of_layer in enumerate(of_block, start=1)
        for head, weights in enumerate(of_layer, start=1)
    }


def _recorded(
    call: ModelCall, model: nn.Module | None, src: torch.Tensor, tgt_in: torch.Tensor | None
) -> tuple[list[AttentionCall], list[AttentionCall], Sequence[str]]:
    """Return the calls of ``nn.MultiheadAttention``, those of functions, and what else called softmax."""
    outputs: list[object] = []
    modules: list[AttentionCall] = []

    def run() -> None:
        outputs.append(call.output(src, tgt_in))

    with FunctionCalls(src, tgt_in) as seen:
        if model is None:
            run()
        else:
            num_tgt = None if tgt_in is None else tgt_in.shape[1]
            modules = record_torch_attention(model, run, src_length=src.shape[1], tgt_length=num_tgt)
    torch.clear_autocast_cache()  # it holds weights without gradients now, which training would use
    functions = [each for each in seen.attention if not _is_output(each, outputs[0])]
    return [each for each in modules if each.block], functions, _without_output(seen.others, outputs[0])


def _is_output(call: AttentionCall, output: object) -> bool:
    """Whether the weights are the model's probabilities, which have attention's shape if the vocabulary is as small."""
    try:
        logits = logits_of(output)
    except InputError:
        return False
    if call.weights.shape[1] != 1 or call.weights.numel() != logits.numel():
        return False
    weights = call.weights[:, 0].float()
    results = (logits, logits.exp(), logits.softmax(dim=-1))  # probabilities, their logarithms, or logits
    return any(torch.allclose(weights, each.reshape(weights.shape).float(), atol=ROUNDING) for each in results)


def _without_output(others: Sequence[str], output: object) -> list[str]:
    """Leave out calls of softmax whose weights have the shape of the logits."""
    try:
        shape = str(tuple(logits_of(output).shape))
    except InputError:
        shape = ""
    return [each for each in others if not shape or not each.endswith(shape)]


def _is_step(call: AttentionCall) -> bool:
    return call.weights.shape[2] == 1


def _renamed(calls: Sequence[AttentionCall], blocks: Sequence[Block | None]) -> list[AttentionCall]:
    """Give calls these blocks, in order; the steps of a recurrent decoder keep theirs."""
    if sum(not _is_step(each) for each in calls) != len(blocks):
        return [each for each in calls if _is_step(each)]
    rest = iter(blocks)
    return [each if _is_step(each) else replace(each, block=next(rest)) for each in calls]


def _layers(calls: Sequence[AttentionCall], block: Block, length: int) -> list[torch.Tensor]:
    """Return the weights of a block's layers, (H, Tq, Tk) float.

    Args:
        length: tokens of the decoder input.
    """
    layers = []
    of_block = [each for each in calls if each.block == block]
    for is_step, group in groupby(of_block, key=lambda each: _is_step(each) and length > 1):
        weights = [_of_first_row(each.weights) for each in group]
        layers += _joined(weights, length) if is_step else weights
    return layers


def _joined(steps: Sequence[torch.Tensor], length: int) -> list[torch.Tensor]:
    """Join the steps (H, 1, S) of a recurrent decoder to a map for each of its layers; some decoders skip one step."""
    rows = next((each for each in (length, length - 1) if len(steps) % each == 0), len(steps))
    num_layers = len(steps) // rows
    return [torch.cat(list(steps[layer::num_layers]), dim=1) for layer in range(num_layers)]


def _of_first_row(weights: torch.Tensor) -> torch.Tensor:
    """Return the weights (H, Tq, Tk) of the first of two equal rows, whichever of heads and rows came first."""
    weights = weights.float()
    swapped = weights.reshape(-1, 2, *weights.shape[2:]).transpose(0, 1)  # if the heads came first
    is_swapped = not _equal(weights[0], weights[1]) and _equal(swapped[0], swapped[1])
    return (swapped if is_swapped else weights)[0]


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, atol=ROUNDING, equal_nan=True)


def _missing(blocks: Sequence[Block], others: Sequence[str]) -> str:
    """Return which blocks have no weights, if a softmax was seen that may be theirs; "" otherwise."""
    seen = [each for each in dict.fromkeys(others) if each.count(",") > 1]  # of matrices
    if not blocks or not seen:
        return ""  # such as a recurrent encoder, which has no attention
    shapes = ", ".join(seen[:MAX_SEEN])
    return f"no heads of {' and '.join(blocks)}: other calls have other shapes, {shapes} on one pair, run twice"


def _nothing(src: torch.Tensor, tgt_in: torch.Tensor | None, others: Sequence[str], batch_first: bool) -> str:
    """Return why there is no attention, with the shapes that were expected and seen."""
    num_src = src.shape[1]
    shapes = [(num_src, num_src)]
    if tgt_in is not None:
        shapes += [(tgt_in.shape[1], tgt_in.shape[1]), (tgt_in.shape[1], num_src)]
    wanted = " or ".join(f"(…, {queries}, {keys})" for queries, keys in dict.fromkeys(shapes))
    seen = ", ".join(dict.fromkeys(others[:MAX_SEEN])) or "no softmax at all"
    hint = "" if others else "; attention that PyTorch compiled, or that a kernel of its own computes, cannot be seen"
    layout = f", and see batch_first={batch_first}" if others else ""
    return f"no softmax whose weights have the shape {wanted} on one pair, run twice; seen: {seen}{hint}{layout}"
