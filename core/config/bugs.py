"""The bugs that a preset can switch on, and the model families each one applies to.

``core.teaching.bugs`` implements and describes them.
"""

from typing import Literal

BugName = Literal[
    "no-causal-mask",
    "targets-not-shifted",
    "pad-attended-to",
    "pad-in-the-loss",
    "no-positions",
    "no-score-scaling",
    "no-embedding-scaling",
    "softmax-over-queries",
    "no-residual",
    "no-eos-in-targets",
    "encoder-over-pad",
    "learning-rate-too-high",
    "heads-alike",
    "self-plotted-as-cross",
]
_ALL = ("transformer", "decoder-only", "gru")
_ATTENTION = ("transformer", "decoder-only")

BUG_FAMILIES: dict[BugName, tuple[str, ...]] = {
    "no-causal-mask": _ATTENTION,
    "targets-not-shifted": _ALL,
    "pad-attended-to": ("transformer", "gru"),
    "pad-in-the-loss": _ALL,
    "no-positions": ("transformer",),
    "no-score-scaling": _ATTENTION,
    "no-embedding-scaling": _ATTENTION,
    "softmax-over-queries": ("transformer",),
    "no-residual": _ATTENTION,
    "no-eos-in-targets": _ALL,
    "encoder-over-pad": ("gru",),
    "learning-rate-too-high": _ALL,
    "heads-alike": _ATTENTION,
    "self-plotted-as-cross": ("transformer",),
}
