"""RMSNorm, SwiGLU and grouped-query attention, the blocks of LLaMA, for the Transformers of Attention Lab.

Train the preset:

    python -m core train --plugin docs/examples/modern_blocks.py --preset modern-reversal

Presets name them one by one: ``--set model.norm_block=rms`` on any Transformer. ``num_kv_heads`` is a setting of the
family "modern", which is otherwise the encoder-decoder Transformer.
"""

from pathlib import Path
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import nn

from core import plugins
from core.config.sections import BlocksConfig, TransformerConfig
from core.models.attention import KeysValues, MultiHeadAttention
from core.models.layers import FeedForward

EPSILON = 1e-6  # added to the mean square


@plugins.block("norm", "rms")
class RMSNorm(nn.Module):
    """Divide by the root mean square, without centering or bias (Zhang & Sennrich 2019, eq. 4)."""

    def __init__(self, config: BlocksConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.d_model))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize (B, T, D) float over the last dimension."""
        return x * (x.pow(2).mean(dim=-1, keepdim=True) + EPSILON).rsqrt() * self.weight


@plugins.block("feed_forward", "swiglu")
class SwiGLU(FeedForward):
    """Feed-forward network with a gated hidden layer: SiLU(x G) ⊙ x W₁, then W₂ (Shazeer 2020, eq. 6).

    The gate is a third matrix; for the same number of parameters, set ``d_ff`` to two thirds.
    """

    def __init__(self, config: BlocksConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.gate = nn.Linear(config.d_model, config.d_ff)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, T, D) float to the same shape."""
        hidden = self.hook_post(F.silu(self.gate(x)) * self.widen(x))  # (B, T, d_ff)
        return self.hook_out(self.narrow(self.dropout(hidden)))


@plugins.block("attention", "grouped-query")
class GroupedQueryAttention(MultiHeadAttention):
    """Multi-head attention in which groups of heads share keys and values (Ainslie et al. 2023).

    The cache holds ``num_kv_heads`` heads, G, instead of H. With G = H it is multi-head attention; with G = 1, the
    value for presets without this setting, it is multi-query attention (Shazeer 2019).
    """

    def __init__(self, config: BlocksConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config.d_model, config.num_heads, config.dropout, generator)
        self.group = config.num_heads // getattr(config, "num_kv_heads", 1)  # heads that share keys and values
        self.w_k = nn.Linear(config.d_model, config.d_model // self.group)
        self.w_v = nn.Linear(config.d_model, config.d_model // self.group)

    def attend(
        self,
        query: torch.Tensor,
        keys_values: KeysValues,
        mask: torch.Tensor | None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return each head's weighted sum of its group's values, (B, H, Tq, K); keys and values are (B, G, Tk, K)."""
        key, value = (each.repeat_interleave(self.group, dim=1) for each in keys_values)
        return super().attend(query, (key, value), mask, bias)


@plugins.model
class ModernConfig(TransformerConfig):
    """The encoder-decoder Transformer with a setting for grouped-query attention."""

    family: Literal["modern"] = "modern"
    num_kv_heads: Annotated[int, Field(ge=1, le=16, description="heads of keys and values, which groups share")] = 2

    @model_validator(mode="after")
    def _check_groups(self) -> "ModernConfig":
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"model.num_heads={self.num_heads} must be divisible by model.num_kv_heads={self.num_kv_heads}"
            )
        return self


plugins.preset(Path(__file__).with_name("modern-reversal.yaml"))
