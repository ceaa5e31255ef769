"""A user's language model under examination: a function from ids to logits, and a batch of its sequences."""

import torch

from core.config.counting import counted
from core.interpret.any_module.attention_calls import AttentionCall, record_torch_attention
from core.interpret.any_module.calling import checked_ids
from core.interpret.any_module.function_calls import FunctionCalls
from core.models.seq2seq import Block
from core.storage.errors import InputError
from core.teaching.doctor.any_model import AnyModel
from core.teaching.doctor.black_box import NotCheckableError, lengths

SHORTEST = 4  # tokens: a prompt of two, one to read after it and one to predict


class LanguageModel(AnyModel):
    """A model called as ``forward(ids)``, with a batch of its sequences; see ``diagnose``.

    The checks see a sequence-to-sequence model. The first half of the shortest sequence is the number of tokens that
    are the source of every sequence, its prompt; those after it are read and predicted.
    """

    source = "prompt"

    def _take(self, batch_first: bool | None) -> None:
        """Read the sequences that were given."""
        (given,) = self._given
        self.batch_first = True if batch_first is None else batch_first
        ids = self.turned(checked_ids("tgt", given))
        shortest = int(lengths(ids, self.special.tgt_pad).min())
        if shortest < SHORTEST:
            raise InputError(
                f"tgt has a sequence of {counted(shortest, 'token')}; a language model needs {SHORTEST} or more"
            )
        self.ids, num_prompt = ids, shortest // 2
        self.src, self.tgt = ids[:, :num_prompt], ids[:, num_prompt:]

    @property
    def sides(self) -> dict[str, torch.Tensor]:
        """The ids that were given, (B, T) int64 by the name of the argument."""
        return {"tgt": self.ids}

    @property
    def targets(self) -> torch.Tensor:
        """(B, T) int64: the tokens that training predicts, those of the prompt included."""
        return self.ids[:, 1:]

    def begun(self, src: torch.Tensor, decoded: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the prompts (B, S) without their last token, and that token with what was decoded after it (B, T)."""
        length = src.shape[1]
        if decoded.shape[1] >= length and torch.equal(decoded[:, :length], src):
            decoded = decoded[:, length:]
        if not decoded.numel():
            raise NotCheckableError("decode returns no token after the prompt.")
        return src[:, :-1], torch.cat([src[:, -1:], decoded], dim=1)

    def read_ids(self) -> dict[Block, torch.Tensor]:
        """Return the ids (B, T) int64 whose keys the attention of ``few`` reads."""
        return {"decoder": torch.cat(self.few, dim=1)}

    def differentiable_logits(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        """Return the differentiable logits (B, T, V) float after the prompt."""
        return self.call.logits(torch.cat([src, tgt_in], dim=1))[:, src.shape[1] :]

    def attention_calls(self, src: torch.Tensor, tgt_in: torch.Tensor) -> list[AttentionCall]:
        """Run sequences through the model; return the calls of attention, all of them of the block "decoder"."""
        ids = torch.cat([src, tgt_in], dim=1)
        nothing = ids[:, :0]
        if self.model is not None and (
            calls := record_torch_attention(
                self.model, lambda: self.logits(src, tgt_in), src_length=0, tgt_length=ids.shape[1]
            )
        ):
            return calls
        with FunctionCalls(nothing, ids) as seen:
            logits = self.logits(src, tgt_in)
        return [] if logits.shape[-1] == ids.shape[1] else seen.attention
