"""The attention scores of queries and keys before the softmax, and the resulting attention weights."""

from dataclasses import dataclass

import torch

from core.generation import generate
from core.models import AttentionMaps, forward_with_attention
from core.models.hooks import hooks
from core.models.seq2seq import Block
from core.models.transformer import Transformer
from core.tasks import Task
from core.teaching.attention_lessons.source import encode_source
from core.text.vocab import BOS_ID


@dataclass(frozen=True)
class AttentionScores:
    """Scores and weights of all heads, with the model's own answer as the decoder input.

    Attributes:
        source: S tokens, BOS and EOS included.
        produced: T tokens, EOS included.
        read: T tokens of the decoder input: BOS, then the previous output tokens.
        d_k: width of a head's queries and keys.
        scores: q·k / √d_k of each block, (L, H, Tq, Tk) float, before mask and softmax.
        maps: the attention weights.
    """

    source: list[str]
    produced: list[str]
    read: list[str]
    d_k: int
    scores: dict[Block, torch.Tensor]
    maps: AttentionMaps


@torch.no_grad()
def attention_scores(model: Transformer, task: Task, text: str) -> AttentionScores:
    """Decode a typed source greedily, and return the scores of one forward pass over source and answer.

    Raises:
        InputError: the text is not valid for the task, or too long for the model.
    """
    source = encode_source(model, task, text)
    answer = generate(model, source, max_steps=model.max_seq_len).tokens
    read = torch.cat([torch.tensor([[BOS_ID]]), answer[:, :-1]], dim=1)
    found: dict[tuple[Block, int], torch.Tensor] = {}
    points = {
        module.hook_attn_scores.name: lambda x, key=key: found.__setitem__(key, x[0])
        for key, module in model.attention.items()
    }
    with hooks(points):
        _, maps = forward_with_attention(model, source, read)
    blocks = dict.fromkeys(block for block, _ in model.attention)
    return AttentionScores(
        source=[task.src_vocab.tokens[each] for each in source[0].tolist()],
        produced=task.tgt_vocab.decode(answer[0].tolist()),
        read=[task.tgt_vocab.tokens[each] for each in read[0].tolist()],
        d_k=model.config.d_k,
        scores={block: torch.stack([x for (of, _), x in found.items() if of == block]) for block in blocks},
        maps=maps,
    )
