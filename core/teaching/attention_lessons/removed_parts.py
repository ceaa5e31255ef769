"""A trained model without its positional encodings or without its masks, to show their effect.

The weights are unchanged; hooks remove only the part.
"""

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F

from core.generation import generate
from core.interpret.inspection import Inspection, inspect
from core.models import AttentionMaps, forward_with_attention
from core.models.hooks import Hook, hook_names, hooks
from core.models.seq2seq import Block
from core.models.transformer import Transformer
from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.tasks import Task
from core.teaching.attention_lessons.source import encode_source
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

MAX_PADDING = 8


def inspect_without_positions(model: Transformer, task: Task, text: str) -> Inspection:
    """Decode a typed source with zeros in place of all positional encodings; see ``inspect``."""
    zeros: dict[str, Hook] = {name: torch.zeros_like for name in hook_names(model) if name.endswith(".hook_pos_embed")}
    with hooks(zeros):
        return inspect(model, task, text)


@dataclass(frozen=True)
class CausalityCheck:
    """The decoder's self-attention over a whole answer, and the steps that depend on its last token.

    Attributes:
        read: T tokens of the decoder input, BOS first.
        produced: T tokens, the most probable one after each input token.
        weights: (L, H, T, T) float.
        changed_to: the replacement of the last token of ``read``.
        changes: T numbers, 0-1: the effect on each step's probabilities (total variation distance).
    """

    read: list[str]
    produced: list[str]
    weights: torch.Tensor
    changed_to: str
    changes: list[float]


@torch.no_grad()
def check_causality(model: Transformer, task: Task, text: str, *, masked: bool) -> CausalityCheck:
    """Read the answer to a typed source in one call, as in training, with or without the causal mask.

    Raises:
        InputError: the text is not valid for the task or too long for the model, or its answer is empty.
    """
    source, tokens = encode_source(model, task, text), task.tgt_vocab.tokens
    answer = generate(model, source, max_steps=model.max_seq_len).tokens[0]
    answer = answer[answer != EOS_ID][: model.max_seq_len - 1]
    if not len(answer):
        raise InputError(f"input={short_repr(text)} has an empty answer; type another input")
    read = torch.cat([torch.tensor([BOS_ID]), answer])[None]
    changed = read.clone()
    changed[0, -1] = len(tokens) - (2 if read[0, -1] == len(tokens) - 1 else 1)
    with hooks({} if masked else _open_masks(model, "decoder")):
        logits, maps = forward_with_attention(model, source, read)
        logits_changed, _ = forward_with_attention(model, source, changed)
    moved = (logits_changed.softmax(dim=-1) - logits.softmax(dim=-1)).abs().sum(dim=-1)[0] / 2
    return CausalityCheck(
        read=[tokens[each] for each in read[0].tolist()],
        produced=[tokens[each] for each in logits[0].argmax(dim=-1).tolist()],
        weights=cast(torch.Tensor, maps.decoder)[:, 0],
        changed_to=tokens[int(changed[0, -1])],
        changes=moved.tolist(),
    )


@dataclass(frozen=True)
class PaddedDecode:
    """An input decoded with PAD after it; S tokens, PAD included.

    Attributes:
        source: S tokens.
        produced: T tokens, EOS included.
        weights: (L, H, T, S) float, the cross-attention.
        mass_on_pad: mean attention weight on all PAD together, over layers, heads and steps, 0-1.
    """

    source: list[str]
    produced: list[str]
    weights: torch.Tensor
    mass_on_pad: float


@torch.no_grad()
def decode_padded(model: Transformer, task: Task, text: str, *, num_pad: int, masked: bool) -> PaddedDecode:
    """Decode a typed source with some PAD after it, with or without the masks that hide PAD.

    Args:
        num_pad: 0 to ``MAX_PADDING``.

    Raises:
        InputError: the text is not valid for the task, or too long for the model with its padding.
    """
    source = F.pad(encode_source(model, task, text, room=num_pad), (0, num_pad), value=PAD_ID)
    with hooks({} if masked else _open_masks(model, "encoder", "cross")):
        result = generate(model, source, max_steps=model.max_seq_len, need_weights=True)
    weights = cast(torch.Tensor, cast(AttentionMaps, result.maps).cross)[:, 0]
    return PaddedDecode(
        source=[task.src_vocab.tokens[each] for each in source[0].tolist()],
        produced=task.tgt_vocab.decode(result.tokens[0].tolist()),
        weights=weights,
        mass_on_pad=weights[..., source[0] == PAD_ID].sum(dim=-1).mean().item(),
    )


def _open_masks(model: Transformer, *blocks: Block) -> dict[str, Hook]:
    """Return hooks that let every query of these blocks attend to every key."""
    return {module.hook_mask.name: torch.ones_like for (block, _), module in model.attention.items() if block in blocks}
