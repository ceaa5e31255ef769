"""Attention of recurrent models: additive, with the weights of the previous step too, or to the last token only.

Bahdanau et al. 2015 and Chorowski et al. 2015. Shape letters and masks are those of ``core.models.attention``.
"""

import torch
import torch.nn.functional as F
from torch import nn

from core.models.attention import KeysValues, log_length, masked_softmax
from core.models.hooks import HookPoint
from core.models.shape_checks import check_additive_attention, check_states


class SingleHeadAttention(nn.Module):
    """Base class of the attention of recurrent models: one head, one query per sequence; encoder states are the values.

    Args:
        d_hidden: width of the encoder states h and of the decoder states s.
    """

    num_heads = 1

    def __init__(self, d_hidden: int) -> None:
        super().__init__()
        self.d_hidden = d_hidden
        self.hook_q, self.hook_k, self.hook_v, self.hook_mask = (HookPoint() for _ in range(4))
        self.hook_attn_scores, self.hook_pattern, self.hook_z = (HookPoint() for _ in range(3))

    def keys_values(self, states: torch.Tensor) -> KeysValues:
        """Compute the keys of encoder states (B, S, D), once for all steps; the states are their own values."""
        raise NotImplementedError

    def forward(
        self,
        query: torch.Tensor,
        keys_values: KeysValues,
        mask: torch.Tensor,
        previous: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attend to the source with one query per sequence.

        Args:
            query: (B, D) float, the decoder states s.
            keys_values: what ``keys_values`` returned.
            mask: (B, 1, 1, S) bool, True = may attend.
            previous: (B, S) float, the weights of the previous step; None at the first.

        Returns:
            (B, D) float context, the weighted sum of the values, and the weights (B, S).
        """
        raise NotImplementedError

    def _read(self, scores: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the context (B, D) and the weights (B, S) of scores (B, S)."""
        scores = self.hook_attn_scores(scores[:, None, None])  # (B, H = 1, Tq = 1, S), as of multi-head attention
        pattern = self.hook_pattern(masked_softmax(scores, self.hook_mask(mask)))
        return self.hook_z(pattern @ value[:, None])[:, 0, 0], pattern[:, 0, 0]  # z is (B, 1, 1, D)


class LastTokenAttention(SingleHeadAttention):
    """All weight is on the last token, so the context is always the encoder's final state.

    It has no parameters. Every score is zero, and the mask hides the other tokens.
    """

    def keys_values(self, states: torch.Tensor) -> KeysValues:
        """Return encoder states (B, S, D) as keys, which no score depends on, and as values."""
        check_states("states", states, self.d_hidden)
        return self.hook_k(states), self.hook_v(states)

    def forward(
        self,
        query: torch.Tensor,
        keys_values: KeysValues,
        mask: torch.Tensor,
        previous: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read the state of the last token; see ``SingleHeadAttention.forward``."""
        key, value = keys_values
        check_additive_attention(query, key, value, mask)
        self.hook_q(query)
        return self._read(key.new_zeros(key.shape[:2]), value, mask & is_last(mask))


class AdditiveAttention(SingleHeadAttention):
    """Additive attention, v·tanh(W_h h + W_s s) (Bahdanau et al. 2015, appendix A.1.2).

    Args:
        d_hidden: width of the encoder states h, of the decoder states s, and of the space where they are added.
    """

    def __init__(self, d_hidden: int) -> None:
        super().__init__(d_hidden)
        self.w_h = nn.Linear(d_hidden, d_hidden, bias=False)
        self.w_s = nn.Linear(d_hidden, d_hidden, bias=False)
        self.v = nn.Linear(d_hidden, 1, bias=False)

    def keys_values(self, states: torch.Tensor) -> KeysValues:
        """Project encoder states (B, S, D) to keys W_h h, once for all steps; the states are their own values."""
        check_states("states", states, self.d_hidden)
        return self.hook_k(self.w_h(states)), self.hook_v(states)

    def forward(
        self,
        query: torch.Tensor,
        keys_values: KeysValues,
        mask: torch.Tensor,
        previous: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attend to the source with one query per sequence; see ``SingleHeadAttention.forward``."""
        key, value = keys_values
        check_additive_attention(query, key, value, mask)
        scores = self.v((key + self.hook_q(self.w_s(query))[:, None]).tanh()).squeeze(-1)  # (B, S)
        return self._read(scores, value, mask)


class LocationSensitiveAttention(AdditiveAttention):
    """Additive attention that also reads the previous weights, v·tanh(W_h h + W_s s + W_f f) (Chorowski et al. 2015).

    At each position, f is the previous weights of the positions up to ``REACH`` before and after it. This is eq. 8 and
    9 of the paper, whose matrix U and filters F are both linear: W_f is their product. The decoder can move its
    attention by a fixed number of positions, along a source of any length. Three details differ from the paper: f is -1
    at positions outside the source, so that its ends can be told from its middle; before the first step all weight is
    on the last token, whose state the decoder starts from; and scores are sharpened (section 2.3) by ``log_length``.

    Args:
        d_hidden: as of additive attention.
    """

    REACH = 3

    def __init__(self, d_hidden: int) -> None:
        super().__init__(d_hidden)
        self.w_f = nn.Linear(2 * self.REACH + 1, d_hidden, bias=False)
        self.hook_location = HookPoint()

    def forward(
        self,
        query: torch.Tensor,
        keys_values: KeysValues,
        mask: torch.Tensor,
        previous: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attend to the source with one query per sequence; see ``SingleHeadAttention.forward``."""
        key, value = keys_values
        check_additive_attention(query, key, value, mask)
        in_source = mask[:, 0, 0]
        if previous is None:
            previous = is_last(in_source).to(key.dtype)
        previous = F.pad(previous.masked_fill(~in_source, -1.0), (self.REACH, self.REACH), value=-1.0)
        location = self.w_f(previous.unfold(1, 2 * self.REACH + 1, 1))  # (B, S, D)
        location = self.hook_location(location[:, None, None])[:, 0, 0]  # (B, H = 1, Tq = 1, S, D), as the scores
        scores = self.v((key + self.hook_q(self.w_s(query))[:, None] + location).tanh()).squeeze(-1)
        return self._read(scores * log_length(value, in_source), value, mask)


def is_last(in_source: torch.Tensor) -> torch.Tensor:
    """Return which of the positions (…, S) bool is the last True one; at least the first."""
    position = torch.arange(in_source.shape[-1], device=in_source.device)
    return position == (in_source * position).amax(dim=-1, keepdim=True)
