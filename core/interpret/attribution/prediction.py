"""The prediction to explain: one step of an answer, its token, and the token to compare it with."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from core.generation import generate
from core.interpret.inspection import label_source
from core.models import Seq2Seq
from core.models.encoder_only import EncoderOnly
from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.tasks import Task
from core.text.vocab import BOS, BOS_ID, EOS_ID, Vocab, until_eos


@dataclass(frozen=True, eq=False)
class Prediction:
    """One step of an answer and the score to explain: the logit of a token, or the difference of two logits.

    The model has read the source and the answer's tokens before the step; an encoder-only model only the source. The
    model's own prediction may differ from ``target``.

    Attributes:
        symbols: the input, S - 2 tokens as text.
        src: (1, S) int64, BOS and EOS included.
        tgt_in: (1, T) int64, BOS and the T - 1 tokens of the answer before the step. An encoder-only model only counts
            them.
        target: id of the token to explain.
        foil: id of the token to compare with ("why 9, not 2?"); None explains the logit of the target alone.
        answer: ids of the whole answer, with EOS if it ends.
        target_token, foil_token: both as text; None without a foil.
        source_labels: S labels of the source's positions: BOS, the input, EOS.
        prefix_labels: T labels of the decoder's positions: BOS and the tokens before the step; empty for an
            encoder-only model.
        position: the source position, from 0, BOS, at which an encoder-only model predicts the token; None for others.
    """

    symbols: tuple[str, ...]
    src: torch.Tensor
    tgt_in: torch.Tensor
    target: int
    foil: int | None
    answer: tuple[int, ...]
    target_token: str
    foil_token: str | None
    source_labels: tuple[str, ...]
    prefix_labels: tuple[str, ...]
    position: int | None

    @property
    def step(self) -> int:
        """The decoding step, from 0."""
        return self.tgt_in.shape[1] - 1

    @property
    def row(self) -> int:
        """The index of the position that predicts the token, in the states of the stack that scores it."""
        return self.step if self.position is None else self.position

    def __str__(self) -> str:
        return f"why {self.target_token}" + (f", not {self.foil_token}?" if self.foil is not None else "?")

    def score(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the explained score, (…) float: the target's logit minus the foil's, from logits (…, V)."""
        target = logits[..., self.target]
        return target if self.foil is None else target - logits[..., self.foil]


@torch.no_grad()
def prediction_at(
    model: Seq2Seq,
    task: Task,
    symbols: Sequence[str],
    *,
    step: int = 0,
    target: str | None = None,
    foil: str | None = None,
    answer: Sequence[str] | None = None,
    first_step: int = 0,
) -> Prediction:
    """Return the prediction of one step of an answer, to be passed to the methods of this package.

    Args:
        model: in evaluation mode.
        symbols: the input, as ``read_input`` or ``Inspection.symbols`` returns it.
        step: the decoding step, from 0; the last one of an answer produces EOS.
        target: the token to explain; None for the answer's token at that step.
        foil: the token to compare with; None explains the target alone.
        answer: the answer without EOS, such as ``Inspection.output``; None decodes greedily.
        first_step: the number that the first step has in messages.

    Raises:
        InputError: the input is too long or has an unknown symbol, the answer has no such step, a token is not in the
            vocabulary, or target and foil are the same token.
    """
    ids = task.src_vocab.encode(symbols)
    if len(ids) + 2 > model.max_seq_len:
        raise InputError(
            f"input has {len(ids) + 2} tokens with BOS and EOS; this model reads at most {model.max_seq_len}"
        )
    src = torch.tensor([[BOS_ID, *ids, EOS_ID]], device=model.device)
    if answer is None:
        produced = generate(model, src, max_steps=model.max_seq_len).tokens[0].tolist()
    else:
        produced = [token_id(task.tgt_vocab, token, field="answer") for token in answer]
        produced += [EOS_ID] if len(produced) < model.max_seq_len else []
    symbols_before = until_eos(produced)
    steps = len(symbols_before) + (EOS_ID in produced)
    if not 0 <= step < steps:
        has = f"{first_step} to {first_step + steps - 1}"
        raise InputError(f"step={step + first_step} is not a step of this answer, which has {has}")
    produced = produced[:steps]
    target_id = produced[step] if target is None else token_id(task.tgt_vocab, target, field="target")
    foil_id = None if foil is None else token_id(task.tgt_vocab, foil, field="foil")
    if foil_id == target_id:
        raise InputError(f"foil={short_repr(foil, 40)} must be another token than the target")
    text = task.tgt_vocab.tokens
    reads_prefix = not isinstance(model, EncoderOnly)
    return Prediction(
        symbols=tuple(task.src_vocab.decode(ids)),
        src=src,
        tgt_in=torch.tensor([[BOS_ID, *produced[:step]]], device=model.device),
        target=target_id,
        foil=foil_id,
        answer=tuple(produced),
        target_token=text[target_id],
        foil_token=None if foil_id is None else text[foil_id],
        source_labels=tuple(label_source(task.src_vocab.decode(ids))),
        prefix_labels=(BOS, *task.tgt_vocab.decode(produced[:step])) if reads_prefix else (),
        position=None if reads_prefix else min(step + 1, len(ids) + 1),  # at EOS, all later ones
    )


def token_id(vocab: Vocab, token: str, *, field: str) -> int:
    """Return the id of a token, special tokens included; InputError, which names the field, if it does not exist."""
    if token not in vocab.tokens:
        raise InputError(f"{field}={short_repr(token, 40)} is not in the vocabulary of {len(vocab)} tokens")
    return vocab.tokens.index(token)
