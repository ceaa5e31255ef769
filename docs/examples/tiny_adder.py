"""A Transformer of 51 parameters that adds numbers of ten digits, and its blocks.

Train the preset and measure it by AdderBoard's protocol:

    python -m core train --plugin docs/examples/tiny_adder.py --preset tiny-adder --run tiny
    python -m core bench adder --plugin docs/examples/tiny_adder.py --run tiny

It is a decoder-only Transformer of one layer with one head, without norms. The blocks make it small:

- digits lie on an arc of a circle, which three parameters describe instead of a vector for each digit;
- queries and keys share one projection, and values are the states themselves;
- the feed-forward network has periodic activations: of the sum of two digits and a carry, which is 0 to 19, only the
  remainder modulo 10 is written, and a sine has a period, while a ReLU must learn where to subtract 10.

The arc of the digits is as in MicroAdder (Zarechnev 2026, https://github.com/evindor/MicroAdder) and in submissions to
AdderBoard, where queries and keys that differ by a rotation come from, too.
"""

from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import nn

from core import plugins
from core.config.sections import DecoderOnlyConfig
from core.models.attention import KeysValues, MultiHeadAttention
from core.models.embeddings import Embedding, Output
from core.models.kernels import Dropout
from core.models.layers import FeedForward
from core.models.positions import NO_POSITIONS, RelativePositions

NUM_DIGITS = 10  # the first symbols of the vocabulary, after the special tokens


@plugins.model
class TinyAdderConfig(DecoderOnlyConfig):
    """The decoder-only Transformer in sizes that are too small for other tasks."""

    family: Literal["tiny-adder"] = "tiny-adder"
    d_model: Annotated[int, Field(ge=3, le=16, description="embedding size: width of every token's vector")] = 3
    num_heads: Annotated[int, Field(ge=1, le=1, description="attention heads per layer")] = 1
    d_ff: Annotated[int, Field(ge=1, le=16, description="frequencies of the periodic feed-forward network")] = 2

    @property
    def d_k(self) -> int:
        """Width of queries and keys: one pair of dimensions that RoPE rotates."""
        return 2


class Arc(nn.Module):
    """Points on an arc of a circle, equally far apart: three parameters for any number of points.

    Args:
        radius, angle, step: initial radius; initial angle of the middle of the arc, and between neighbors, in radians.
    """

    def __init__(self, radius: float, angle: float, step: float) -> None:
        super().__init__()
        self.radius, self.angle, self.step = (nn.Parameter(torch.tensor(each)) for each in (radius, angle, step))

    def forward(self, count: int, width: int) -> torch.Tensor:
        """Return the points (count, width); dimensions after the first two are zero."""
        offsets = torch.arange(count, device=self.step.device) - (count - 1) / 2
        angles = self.angle + offsets * self.step
        points = self.radius * torch.stack([angles.cos(), angles.sin()], dim=1)
        return nn.functional.pad(points, (0, width - 2))


class ArcTable(nn.Module):
    """An embedding table in which the digits lie on an arc; BOS and + have vectors of their own, other tokens zeros."""

    def __init__(self, d_model: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.digits = Arc(radius=5.0, angle=0.0, step=0.1)
        self.bos, self.plus = (nn.Parameter(_normal(d_model, generator)) for _ in range(2))

    @property
    def weight(self) -> torch.Tensor:
        """The table (V, D) in the order of the vocabulary: PAD, BOS, EOS, the digits, +."""
        zero = torch.zeros_like(self.bos)[None]
        return torch.cat([zero, self.bos[None], zero, self.digits(NUM_DIGITS, len(self.bos)), self.plus[None]])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the vectors (B, T, D) of ids (B, T)."""
        return self.weight[ids]


@plugins.block("embedding", "digits-on-an-arc")
class ArcEmbedding(Embedding):
    """Embedding with an ``ArcTable`` as its table, unscaled."""

    def __init__(self, config: DecoderOnlyConfig, generator: torch.Generator | None, vocab_size: int) -> None:
        super().__init__(vocab_size, config.d_model, Dropout(config.dropout, generator))
        self.tokens, self.scale = ArcTable(config.d_model, generator), 1.0  # type: ignore[assignment] # used as a table


@plugins.block("output", "digits-on-an-arc")
class ArcOutput(Output):
    """Output layer that scores a digit by its point on an arc, EOS by its own vector, and other tokens by 0.

    The arc is not that of the embedding: there the digits add up, here 9 is beside 0. It starts as a whole circle. From
    half of one, most seeds shrank it to a line, and did not learn sums above 9.
    """

    def __init__(self, config: DecoderOnlyConfig, generator: torch.Generator | None, vocab_size: int) -> None:
        super().__init__(config.d_model, vocab_size, is_tied=True)  # without a matrix
        self.register_parameter("bias", None)
        self.digits, self.eos = Arc(radius=5.0, angle=1.5, step=0.63), nn.Parameter(_normal(config.d_model, generator))

    def forward(self, input: torch.Tensor, embedding: Embedding | None = None) -> torch.Tensor:
        """Map states (B, T, D) to logits (B, T, V)."""
        zero = torch.zeros_like(self.eos)[None]
        rows = [zero, zero, self.eos[None], self.digits(NUM_DIGITS, len(self.eos)), zero]
        return self.hook_logits(input @ torch.cat(rows).T)


@plugins.block("attention", "rotated-keys")
class RotatedKeyAttention(MultiHeadAttention):
    """One head; its queries are its keys rotated by a learned angle, and its values are the states.

    With RoPE, a position then attends most to those at one distance: the angle, in positions. Training starts at half a
    position, where digits of like significance in both operands and their neighbors get the largest weights.
    """

    def __init__(self, config: DecoderOnlyConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config.d_model, config.num_heads, config.dropout, generator)
        self.w_q = self.w_k = self.w_v = nn.Identity()  # type: ignore[assignment] # replaced by the parameters below
        self.w_o = nn.Linear(config.d_model, config.d_model, bias=False)
        self.key_weight = nn.Parameter(0.05 * _normal((config.d_k, config.d_model), generator))
        self.key_bias = nn.Parameter(torch.tensor([4.6, 0.0]))
        self.angle = nn.Parameter(0.3 + 0.2 * _normal(1, generator))

    def keys_values(self, x: torch.Tensor, positions: RelativePositions = NO_POSITIONS) -> KeysValues:
        """Project states (B, Tk, D) to keys (B, 1, Tk, 2); the values are the states, (B, 1, Tk, D)."""
        key = self._keys(x)
        return self.hook_k(key if positions.rope is None else positions.rope.apply(key)), self.hook_v(x[:, None])

    def forward(
        self,
        x: torch.Tensor,
        keys_values: KeysValues,
        mask: torch.Tensor | None = None,
        positions: RelativePositions = NO_POSITIONS,
    ) -> torch.Tensor:
        """Let every position of ``x`` (B, Tq, D) attend to keys and values; see ``MultiHeadAttention.forward``."""
        first, second = self._keys(x).unbind(-1)
        cosine, sine = self.angle.cos(), self.angle.sin()
        query = torch.stack([first * cosine - second * sine, first * sine + second * cosine], dim=-1)
        query = self.hook_q(query if positions.rope is None else positions.rope.apply(query))
        z = self.attend(query, keys_values, mask if mask is None else self.hook_mask(mask), positions.bias)
        return self.hook_out(self.w_o(self.hook_z(z)[:, 0]))

    def _needs_weights(self, query: torch.Tensor) -> bool:
        return True  # the fused kernel needs values as wide as the keys

    def _keys(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.key_weight, self.key_bias)[:, None]  # (B, 1, T, 2)


@plugins.block("feed_forward", "periodic")
class PeriodicFeedForward(FeedForward):
    """Feed-forward network of the sine and the cosine of each hidden unit (Gorishniy et al. 2022), without biases."""

    def __init__(self, config: DecoderOnlyConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.widen = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.narrow = nn.Linear(2 * config.d_ff, config.d_model, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, T, D) float to the same shape."""
        phase = self.widen(x)  # (B, T, d_ff)
        hidden = self.hook_post(torch.cat([phase.sin(), phase.cos()], dim=-1))
        return self.hook_out(self.narrow(self.dropout(hidden)))


@plugins.block("norm", "no-norm")
def no_norm(config: DecoderOnlyConfig, generator: torch.Generator | None = None) -> nn.Module:
    """Return a module that leaves the states as they are."""
    return nn.Identity()


def _normal(size: int | tuple[int, ...], generator: torch.Generator | None) -> torch.Tensor:
    """Draw from the normal distribution, on the CPU, so that a seed means the same numbers on every device."""
    on_cpu = generator is None or generator.device.type == "cpu"
    return torch.randn(size, generator=generator if on_cpu else torch.Generator().manual_seed(generator.initial_seed()))


plugins.preset(Path(__file__).with_name("tiny-adder.yaml"))
