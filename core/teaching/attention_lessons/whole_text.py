"""The attention of a decoder-only model between all tokens of its text: the source, then the answer."""

from dataclasses import dataclass

import torch

from core.generation import generate
from core.models.decoder_only import DecoderOnly
from core.models.hooks import hooks
from core.tasks import Task
from core.teaching.attention_lessons.source import encode_source
from core.text.vocab import BOS_ID


@dataclass(frozen=True)
class TextAttention:
    """Attention weights of all heads, with the model's own answer as the end of the text.

    Attributes:
        tokens: N tokens that the model reads: the source from BOS to EOS, then BOS and the answer without its EOS.
        source_length: S, the tokens of the source.
        produced: N - S tokens of the answer, EOS included; the first is produced by the token at S.
        weights: (L, H, N, N) float. A row belongs to a token; it is 0 at later tokens.
    """

    tokens: list[str]
    source_length: int
    produced: list[str]
    weights: torch.Tensor


@torch.no_grad()
def text_attention(model: DecoderOnly, task: Task, text: str) -> TextAttention:
    """Decode a typed source greedily, and return the attention of one pass over source and answer.

    Raises:
        InputError: the text is not valid for the task, or too long for the model.
    """
    source = encode_source(model, task, text)
    answer = generate(model, source, max_steps=model.max_seq_len).tokens
    read = torch.cat([torch.tensor([[BOS_ID]]), answer[:, :-1]], dim=1)
    calls: list[list[torch.Tensor]] = [[] for _ in model.attention]  # by layer: the source, then the answer
    points = (module.hook_pattern.name for module in model.attention.values())
    with hooks(dict(zip(points, (each.append for each in calls), strict=True))):
        model.decode(read, model.encode(source))
    size, length = source.shape[1], source.shape[1] + read.shape[1]
    weights = torch.zeros(len(calls), model.config.num_heads, length, length)
    for layer, (of_source, of_answer) in zip(weights, calls, strict=True):
        layer[:, :size, :size], layer[:, size:] = of_source[0], of_answer[0]
    labels = [task.src_vocab.tokens[each] for each in source[0].tolist()]
    labels += [task.tgt_vocab.tokens[each] for each in read[0].tolist()]
    return TextAttention(labels, size, task.tgt_vocab.decode(answer[0].tolist()), weights)
