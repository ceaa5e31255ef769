"""The five milestones as data: the document's words beside ours, and where each is tested, taught and shown."""

import importlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.teaching.milestones.names import NAMES, OPTIONAL, PartName

REPOSITORY = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Term:
    """A word of the document and the object of the lab for it.

    Attributes:
        document: the word, several ones with commas.
        module, name: the object's module, and its name in it.
    """

    document: str
    module: str
    name: str

    @property
    def path(self) -> str:
        """The file, from the root of the repository."""
        path = self.module.replace(".", "/")
        return f"{path}/__init__.py" if (REPOSITORY / path).is_dir() else f"{path}.py"

    @property
    def line(self) -> int:
        """The line where the object begins; this imports its module."""
        found = importlib.import_module(self.module)
        for part in self.name.split("."):
            found = getattr(found, part)
        return inspect.getsourcelines(found)[1]


@dataclass(frozen=True)
class Milestone:
    """One of the document's milestones.

    Attributes:
        number, title: as in the document.
        parts: what a file is searched for.
        terms: the document's words and ours.
        tests: of the lab's own modules.
        lessons: names of lessons about bugs.
        attention_file: of the lesson on attention, in presets/attention-lessons.
        command: shows it.
    """

    number: int
    title: str
    parts: tuple[PartName, ...]
    terms: tuple[Term, ...]
    tests: tuple[str, ...]
    lessons: tuple[str, ...]
    attention_file: str
    command: str

    def as_data(self) -> dict[str, Any]:
        """Return what is known of it, with the lines of our objects, as plain data."""
        terms = [vars(each) | {"path": each.path, "line": each.line} for each in self.terms]
        return vars(self) | {"terms": terms}


MILESTONES = (
    Milestone(
        1,
        "Scaled dot-product attention",
        ("attention", "causal_mask", "padding_mask"),
        (
            Term("ScaledDotProductAttention", "core.models.attention", "MultiHeadAttention.attend"),
            Term("apply_attention_mask", "core.models.attention", "masked_softmax"),
            Term("create_causal_mask", "core.models.transformer", "causal_mask"),
            Term("create_padding_mask", "core.models.transformer", "Transformer.encode"),
            Term("attention_weights", "core.models.attention_maps", "AttentionMaps"),
        ),
        (
            "tests/models/test_attention.py::test_identity_queries_and_keys_of_width_two_give_the_textbook_weights",
            "tests/models/test_attention.py::test_rows_sum_to_one_and_masked_weights_are_exactly_zero",
        ),
        ("no-score-scaling", "softmax-over-queries", "no-causal-mask", "pad-attended-to"),
        "2-queries.yaml",
        'python -m core analyze --run digits-reversal-shipped --why "4 8 2 9" --step 2',
    ),
    Milestone(
        2,
        "Multi-head attention",
        ("heads",),
        (
            Term("MultiHeadAttention", "core.models.attention", "MultiHeadAttention"),
            Term("split_heads", "core.models.attention", "MultiHeadAttention._split_heads"),
            Term("combine_heads", "core.models.attention", "MultiHeadAttention.forward"),
            Term("create_multi_head_attention", "core.models.layers", "build_attention"),
            Term("create_head_mask", "core.interpret.trained", "Trained.ablate"),
        ),
        (
            "tests/models/test_attention.py::test_output_weights_and_gradients_equal_pytorchs_with_copied_weights",
            "tests/models/test_attention.py::test_batched_heads_equal_one_head_at_a_time",
        ),
        ("heads-alike",),
        "5-heads.yaml",
        "python -m core analyze --run digits-reversal-shipped --sequences 200",
    ),
    Milestone(
        3,
        "Feed-forward network, embeddings and positions",
        ("positions", "embedding", "feed_forward"),
        (
            Term("PositionalEncoding, SinusoidalPositionEncoding", "core.models.positions", "sinusoidal_positions"),
            Term("TokenEmbedding", "core.models.embeddings", "Embedding"),
            Term("combine_embeddings", "core.models.embeddings", "Embedding.forward"),
            Term("PositionwiseFeedForward", "core.models.layers", "FeedForward"),
        ),
        (
            "tests/models/test_transformer.py::test_positions_follow_the_formula_in_double_precision",
            "tests/models/test_transformer.py::test_embedding_scales_tokens_and_adds_positions_from_start",
        ),
        ("no-positions", "no-embedding-scaling"),
        "3-positions.yaml",
        "python -m core describe --preset digits-reversal --shapes",
    ),
    Milestone(
        4,
        "Encoder and decoder layers",
        ("encoder_layer", "decoder_layer"),
        (
            Term("EncoderLayer", "core.models.layers", "EncoderLayer"),
            Term("DecoderLayer", "core.models.layers", "DecoderLayer"),
            Term("create_residual_connection", "core.models.layers", "Layer.residual"),
            Term("PreNormResidualConnection", "core.models.layers", "Layer.sublayer_input"),
            Term("self_attention_mask, cross_attention_mask", "core.models.layers", "DecoderContext"),
            Term("encoder_output", "core.models.layers", "DecoderLayer.new_cache"),
        ),
        (
            "tests/models/test_model_options.py::test_pre_norm_keeps_the_residual_stream_when_sublayers_give_zero",
            "tests/models/test_every_model.py::test_future_targets_do_not_change_earlier_logits",
            "tests/models/test_every_model.py::test_source_padding_changes_nothing",
        ),
        ("no-residual", "encoder-over-pad", "self-plotted-as-cross"),
        "6-alignment.yaml",
        'python -m core decode --run digits-reversal-shipped "4 8 2 9" --ablate cross.2.1',
    ),
    Milestone(
        5,
        "The whole Transformer and its training",
        ("model",),
        (
            Term("Transformer", "core.models.transformer", "Transformer"),
            Term("TransformerConfig", "core.config.sections", "TransformerConfig"),
            Term("init_transformer_weights", "core.models.initialization", "initialize"),
            Term("TransformerTrainer", "core.training.loop", "train"),
            Term("collate_translation_batch", "core.tasks.task", "Batch"),
            Term("label smoothing", "core.training.loss", "smoothed_loss"),
            Term("generate_greedy, generate_beam_search", "core.generation", "generate"),
            Term("save and load", "core.training.checkpoint", "save_state"),
        ),
        (
            "tests/models/test_parity.py::test_logits_and_every_gradient_equal_those_of_pytorchs_transformer_with_copied_weights",
            "tests/models/test_transformer.py::test_a_tiny_model_overfits_one_small_batch",
        ),
        ("targets-not-shifted", "pad-in-the-loss", "no-eos-in-targets", "learning-rate-too-high"),
        "1-tokens.yaml",
        "python -m core train --preset digits-reversal --run first",
    ),
)
"""The milestones in order."""


def terms_in_markdown() -> str:
    """Return a table of the document's words, our objects, and the lessons and commands of each milestone."""
    rows = []
    for each in MILESTONES:
        lessons = ", ".join(f"`{name}`" for name in each.lessons)
        rows += [
            f"### {each.number}. {each.title}",
            "",
            "| the document | here |",
            "|---|---|",
            *(
                f"| {', '.join(f'`{word}`' for word in term.document.split(', '))} | [`{term.name}`](../{term.path}) |"
                for term in each.terms
            ),
            "",
            f"- Bugs that raise no error: {lessons} (`python -m core lesson NAME`, or the tab *Lessons*)",
            f"- Lesson on attention: [`{each.attention_file}`](../presets/attention-lessons/{each.attention_file})",
            f"- Seen with: `{each.command}`",
            "",
        ]
    return "\n".join(rows)


def parts_in_markdown() -> str:
    """Return a table of what a file is searched for, and of the names that it may have there."""
    rows = ["| milestone | looked for | or |", "|---|---|---|"]
    for each in MILESTONES:
        for part in (*each.parts, *(OPTIONAL if each.number == len(MILESTONES) else ())):
            first, *others = NAMES[part]
            rows.append(f"| {each.number} | `{first}` | {', '.join(f'`{name}`' for name in others)} |")
    return "\n".join(rows) + "\n"
