"""Descriptions of the bugs: a title for each, and its effect on a run."""

from dataclasses import dataclass

from core.config import BugName, Preset


@dataclass(frozen=True)
class BugDescription:
    """A bug in words.

    Attributes:
        title: short name.
        effect: its effect on a run, as the end of a sentence that begins with "it".
    """

    title: str
    effect: str


BUG_DESCRIPTIONS: dict[BugName, BugDescription] = {
    "no-causal-mask": BugDescription("no causal mask", "lets every target token attend to later ones"),
    "targets-not-shifted": BugDescription("targets not shifted", "feeds the decoder the token that it has to predict"),
    "pad-attended-to": BugDescription("PAD attended to", "attends to the PAD after a source"),
    "pad-in-the-loss": BugDescription("PAD counted in the loss", "learns to predict PAD after every target"),
    "no-positions": BugDescription("no positions", "adds no positional encoding to the embeddings"),
    "no-score-scaling": BugDescription("no 1/√d_k", "does not divide attention scores by √d_k"),
    "no-embedding-scaling": BugDescription("no √d_model on embeddings", "does not multiply embeddings by √d_model"),
    "softmax-over-queries": BugDescription(
        "softmax over the wrong axis", "normalizes attention weights over queries instead of keys"
    ),
    "no-residual": BugDescription("missing residual", "leaves out the residual connections around its sublayers"),
    "no-eos-in-targets": BugDescription("EOS left out of the targets", "trains on targets without EOS"),
    "encoder-over-pad": BugDescription("encoder GRU over PAD", "runs the encoder over the PAD after a source"),
    "learning-rate-too-high": BugDescription(
        "learning rate far too high, no warm-up", "uses a constant learning rate of 0.3 without warm-up"
    ),
    "heads-alike": BugDescription(
        "all heads initialized alike", "initializes all heads of a layer with the same weights"
    ),
    "self-plotted-as-cross": BugDescription(
        "self-attention plotted as cross-attention", "shows self-attention maps as cross-attention"
    ),
}


def bug_notice(preset: Preset) -> str:
    """Return a sentence about the bug of a preset; "" if it has none."""
    return f"Broken on purpose ({preset.bug}): it {BUG_DESCRIPTIONS[preset.bug].effect}." if preset.bug else ""
