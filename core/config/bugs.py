"""The bugs that can be switched on, in words: what each is called, what it breaks, and in which models.

What they do to a model, its data or its training stands in ``core.teaching.bugs``.
"""

from dataclasses import dataclass
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
ALL_FAMILIES = ("transformer", "decoder-only", "gru")
_ATTENTION = ("transformer", "decoder-only")


@dataclass(frozen=True)
class BugFacts:
    """One bug in words.

    Attributes:
        title: a short name for people.
        breaks: what a run with it does wrong, as the end of a sentence that begins with "it".
        families: of models that can have it.
    """

    title: str
    breaks: str
    families: tuple[str, ...] = ALL_FAMILIES


BUG_FACTS: dict[BugName, BugFacts] = {
    "no-causal-mask": BugFacts("no causal mask", "lets every target token see the ones after it", _ATTENTION),
    "targets-not-shifted": BugFacts("targets not shifted", "feeds the decoder the very token that it is to predict"),
    "pad-attended-to": BugFacts("PAD attended to", "attends to the PAD behind a source", ("transformer", "gru")),
    "pad-in-the-loss": BugFacts("PAD counted in the loss", "learns to predict PAD behind every answer"),
    "no-positions": BugFacts("no positions", "adds no positions to the embeddings", ("transformer",)),
    "no-score-scaling": BugFacts("no 1/√d_k", "does not divide attention scores by √d_k", _ATTENTION),
    "no-embedding-scaling": BugFacts(
        "no √d_model on embeddings", "does not multiply embeddings by √d_model", _ATTENTION
    ),
    "softmax-over-queries": BugFacts(
        "softmax over the wrong axis", "lets queries share a key, not keys a query", ("transformer",)
    ),
    "no-residual": BugFacts("missing residual", "drops what goes into a sublayer: no residual connection", _ATTENTION),
    "no-eos-in-targets": BugFacts("EOS left out of the targets", "trains on answers that never end"),
    "encoder-over-pad": BugFacts(
        "encoder GRU over PAD", "lets the encoder run on over the PAD behind a source", ("gru",)
    ),
    "learning-rate-too-high": BugFacts(
        "learning rate far too high, no warm-up", "takes steps of 0.3 from the first update on, and all along"
    ),
    "heads-alike": BugFacts("all heads initialised alike", "gives all heads of a layer the same weights", _ATTENTION),
    "self-plotted-as-cross": BugFacts(
        "self-attention plotted as cross-attention",
        "shows self-attention where it says cross-attention",
        ("transformer",),
    ),
}
