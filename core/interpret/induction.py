"""Induction heads: heads that attend to the token after an earlier occurrence of the token that they read.

Olsson et al. 2022, "In-context Learning and Induction Heads", https://arxiv.org/abs/2209.11895: on random tokens that
are repeated, a head can use nothing but the repetition. ``induction_score`` is their prefix-matching score. An
induction head needs a head of an earlier layer that writes into each token which one is before it;
``previous_token_score`` finds such heads.
"""

from dataclasses import dataclass

import torch

from core.evaluation.passes import evaluation_mode
from core.models import Seq2Seq
from core.models.decoder_only import DecoderOnly
from core.models.hooks import hooks
from core.tasks import Batch, Task
from core.text.vocab import BOS_ID, EOS_ID

NUM_SEQUENCES = 16
MAX_TOKENS = 25  # before they are repeated, as in the paper
MIN_TOKENS = 3
_SEED = 42  # the same sequences for all runs of a task and at every step


@dataclass(frozen=True)
class InductionScores:
    """The scores of all heads of a decoder-only model, means over sequences.

    Attributes:
        induction: (L, H) float, 0-1; see ``induction_score``.
        previous_token: (L, H) float, 0-1; see ``previous_token_score``.
    """

    induction: torch.Tensor
    previous_token: torch.Tensor


@dataclass(frozen=True)
class RepeatedTokens:
    """Sequences of N distinct random tokens and the same tokens again, for a decoder-only model.

    Attributes:
        src: (B, S + 2) int64, the first S of the 2 N tokens between BOS and EOS.
        tgt_in: (B, T + 1) int64, BOS and the other T.
        has_bos: whether the model reads that BOS, or the last token of the source in its place.
    """

    src: torch.Tensor
    tgt_in: torch.Tensor
    has_bos: bool

    @classmethod
    def like(cls, pairs: Batch, task: Task, model: Seq2Seq) -> "RepeatedTokens | None":
        """Draw sequences that are as long as the longest source and answer of some pairs together.

        Longer ones would have positions that the model was not trained on. If source and target have different
        vocabularies, all tokens are in the target.

        Returns:
            None if the model is not decoder-only or the pairs are too short for a repetition.
        """
        if not isinstance(model, DecoderOnly) or not len(pairs):
            return None
        source, target = (int(length) - 2 for length in pairs.lengths().amax(dim=0))  # without BOS and EOS
        source = min(source, model.max_seq_len - 2) if task.src_vocab is task.tgt_vocab else 0
        target = min(target, model.max_seq_len - 1)
        first = task.tgt_vocab.first_symbol_id
        num_symbols = len(task.tgt_vocab) - first
        count = min(MAX_TOKENS, (source + target) // 2, num_symbols)
        if count < MIN_TOKENS:
            return None
        generator = torch.Generator().manual_seed(_SEED)
        once = first + torch.rand(NUM_SEQUENCES, num_symbols, generator=generator).argsort(dim=1)[:, :count]
        tokens = torch.cat([once, once], dim=1)
        bos, eos = (torch.full((NUM_SEQUENCES, 1), marker) for marker in (BOS_ID, EOS_ID))
        src = torch.cat([bos, tokens[:, :source], eos], dim=1)
        tgt_in = torch.cat([bos, tokens[:, source:]], dim=1)
        return cls(src.to(model.device), tgt_in.to(model.device), model.config.target_bos)

    @torch.no_grad()
    def scores(self, model: Seq2Seq) -> InductionScores:
        """Score every head of a decoder-only model; its mode and all random generators are unchanged."""
        recorded: list[list[torch.Tensor]] = [[] for _ in model.attention]
        points = (module.hook_pattern.name for module in model.attention.values())
        with evaluation_mode(model), hooks(dict(zip(points, (calls.append for calls in recorded), strict=True))):
            model.decode(self.tgt_in, model.encode(self.src))
        of_source, of_target = (torch.stack(call).float() for call in zip(*recorded, strict=True))
        weights, follows = self._among_tokens(of_source, of_target)
        scores = (score(weights, follows) for score in (induction_score, previous_token_score))
        return InductionScores(*(each.mean(dim=1).cpu() for each in scores))

    def _among_tokens(self, of_source: torch.Tensor, of_target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weights among the 2 N tokens, without BOS and EOS.

        Args:
            of_source: (L, B, H, S + 2, S + 2) float, the weights of the source.
            of_target: (L, B, H, T + 1, S + 2 + T + 1) float, those of the target.

        Returns:
            (L, B, H, 2 N, 2 N) float, and whether a token follows the one before it with no BOS between, (2 N,) bool.
        """
        width = self.src.shape[1]
        read = width - 2 if self.has_bos else max(width - 3, 0)  # tokens that the source's maps have
        first = int(self.has_bos or width == 2)  # the target's first token
        of_target = of_target[..., first:, :]
        of_target = torch.cat([of_target[..., 1 : read + 1], of_target[..., width + first :]], dim=-1)
        count = of_target.shape[-1]
        weights = of_target.new_zeros(*of_target.shape[:-2], count, count)
        weights[..., :read, :read] = of_source[..., 1 : read + 1, 1 : read + 1]
        weights[..., read:, :] = of_target
        follows = torch.arange(count, device=weights.device) > 0
        if self.has_bos and read < count:
            follows[read] = False
        return weights, follows


def induction_score(weights: torch.Tensor, follows: torch.Tensor) -> torch.Tensor:
    """Return the mean weight from each token's second occurrence to the token after its first.

    Args:
        weights: (…, 2 N, 2 N) float, queries × keys, of N distinct tokens and the same tokens again.
        follows: (2 N,) bool, whether a token comes directly after the one before it; other keys are not counted.

    Returns:
        (…) float, 0-1: 1 for a perfect induction head; uniform attention scores 1 / (number of visible keys).
    """
    count = len(follows) // 2
    to_next = weights.diagonal(1 - count, dim1=-2, dim2=-1)[..., 1:]  # query N + n, key n + 1
    return to_next[..., follows[1 : count + 1]].mean(dim=-1)


def previous_token_score(weights: torch.Tensor, follows: torch.Tensor) -> torch.Tensor:
    """Return the mean weight from each token to the token before it, (…) float, 0-1; see ``induction_score``."""
    return weights.diagonal(-1, dim1=-2, dim2=-1)[..., follows[1:]].mean(dim=-1)
