"""A trained model with its task, which the command line, the page, reports and notebooks decode and measure with."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from core.config import Preset
from core.generation import GREEDY, Strategy
from core.generation.reading import read_input
from core.interpret.any_module.calling import checked_number
from core.interpret.inspection import Inspection, inspect
from core.interpret.interventions import NO_INTERVENTIONS, Ablation, Interventions
from core.models import Seq2Seq
from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.tasks import Batch, Task, fixed_pairs
from core.tasks.data import Split
from core.text.validation import quote

if TYPE_CHECKING:  # decoding needs none of them
    import pandas as pd

    from core.evaluation.accuracy import Evaluation
    from core.interpret.attribution.activation_patching import ActivationPatching

WeightsKind = Literal["latest", "best", "kept"]


@dataclass(frozen=True, eq=False)
class Trained:
    """A run's model in evaluation mode, with its task, its preset, and what is changed in its heads.

    Attributes:
        run: name of the run.
        kind: which weights: "best" (lowest validation loss), "latest" while the run is training, or "kept" at an
            earlier training step (``core.runs.weights_by_step``).
        step: number of training steps after which these weights were saved.
        preset: the preset that the run was started with.
        task: the preset's task, with its vocabularies and data.
        model: the model with the weights loaded, in evaluation mode, on the CPU.
        facts: metadata saved with the weights: step, validation_loss, exact_match, the figures that decide (headline),
            quality of translations, confidence_threshold, preset, provenance; empty unless "best".
        interventions: applied in every method but ``patch``; none of them leaves the model as it was trained.
    """

    run: str
    kind: WeightsKind
    step: int
    preset: Preset
    task: Task
    model: Seq2Seq
    facts: Mapping[str, Any] = field(default_factory=dict)
    interventions: Interventions = NO_INTERVENTIONS

    def __repr__(self) -> str:
        changes = f", {self.interventions}" if self.interventions else ""
        return f"<Trained {self.run}, step {self.step}{changes}>"

    @property
    def heads(self) -> tuple[str, ...]:
        """The names of all attention heads: block, layer and head, from 1, as ``cross.2.1``."""
        return tuple(str(head) for head in self.model.heads)

    @property
    def confidence_threshold(self) -> float | None:
        """See ``core.evaluation.confidence``; None if it was not measured for these weights."""
        threshold = self.facts.get("confidence_threshold")
        return threshold if isinstance(threshold, float) else None

    def with_pairs(self, pairs: str | Path) -> "Trained":
        """Return this model with the pairs of a file to measure it on, if it is published without them.

        Raises:
            InputError: the model was not trained on pairs of a file.
            ConfigError: the file is missing or holds other pairs.
        """
        from core.tasks.own_pairs import OwnPairs

        if not isinstance(self.task, OwnPairs):
            raise InputError(f"pairs={quote(str(pairs))}: run={self.run!r} was not trained on pairs of a file")
        return replace(self, task=self.task.with_pairs(Path(pairs)))

    def decode(self, text: str, *, strategy: Strategy = GREEDY, prefix: str = "") -> Inspection:
        """Decode an input, and record the probabilities of every step and the weights of every head.

        Args:
            text: the input as one would type it on the page, such as ``"4 8 2 9"``.
            strategy: ``GREEDY``, ``Beam(beam_size=4)`` or another of ``core.generation``.
            prefix: tokens that the answer must begin with, as typed.

        Raises:
            InputError: the task cannot read the text, it is too long for the model, or ``strategy`` is none.
        """
        _checked_texts(text=text, prefix=prefix)
        if not isinstance(strategy, Strategy):
            raise InputError(f"strategy={short_repr(strategy)} must be of core.generation, such as Beam(beam_size=4)")
        decoded = inspect(
            self.model, self.task, text, strategy=strategy, prefix=prefix, interventions=self.interventions
        )
        # The threshold is that of outputs which the unchanged model chooses
        is_comparable = strategy.kind in ("greedy", "beam") and not prefix.strip() and not self.interventions
        return replace(decoded, confidence_threshold=self.confidence_threshold) if is_comparable else decoded

    def attention(self, text: str, *, strategy: Strategy = GREEDY) -> "dict[str, pd.DataFrame]":
        """Decode an input and return each head's attention weights, by the head's name.

        Returns:
            A table a head, (queries, keys) float: of the encoder's heads source by source tokens; of the others a row
            for each token produced, and columns for the tokens read: the source's, or the decoder's own.

        Raises:
            InputError: as ``decode``.
        """
        import pandas as pd

        decoded = self.decode(text, strategy=strategy)
        source = decoded.source_labels
        produced, read = [step.produced for step in decoded.steps], [step.read for step in decoded.steps]
        rows = {"encoder": source, "decoder": produced, "cross": produced}
        columns = {"encoder": source, "decoder": read, "cross": source}
        tables = {}
        for head in self.model.heads:
            block = getattr(decoded.maps, head.block)  # (L, 1, H, queries, keys)
            weights = block[head.layer - 1, 0, head.head - 1].numpy()
            keys = columns[head.block]
            if weights.shape[1] > len(keys):  # a decoder without encoder attends to the source too
                keys = [*source, *keys][: weights.shape[1]]
            tables[str(head)] = pd.DataFrame(weights, index=rows[head.block][: len(weights)], columns=keys)
        return tables

    def score_heads(self, sequences: int = 500, *, split: Split = "test") -> "pd.DataFrame":
        """Measure every head on the model's answers to held-out inputs.

        Args:
            sequences: how many; all that there are if fewer.
            split: ``test`` or ``validation``.

        Returns:
            A row for each head, indexed by its name, with the columns of ``core.interpret.head_table.head_table``:
            among them ``mass_produced``, the attention mass on the source of the token that a step produces, 0-1, with
            ``uniform_produced``, that of uniform attention; ``entropy``, 0-1; and ``offset`` of the argmax, in tokens.
            Of a decoder-only model also ``induction`` and ``previous_token``, 0-1; see ``core.interpret.induction``.

        Raises:
            InputError: the model has no heads, ``sequences`` is below 1, or there is no such split.
        """
        from core.interpret.head_table import measure_heads

        with self.changed():
            table = measure_heads(self.model, self.task, self._pairs(sequences, split))
        return table.set_index(table["block"] + "." + table["layer"].astype(str) + "." + table["head"].astype(str))

    def ablate(self, *heads: str, ablation: Ablation = "zero", patterns: Iterable[str] = ()) -> "Trained":
        """Return this model with heads ablated, those included that already are; this one itself stays as it is.

        Args:
            heads: names of heads (``cross.2.1``), layers (``cross.2``) or blocks (``cross``).
            ablation: what replaces their output: ``zero``, or its ``mean`` over held-out inputs.
            patterns: cross-attention heads that follow a pattern: ``cross.2.1=diagonal``, ``anti-diagonal`` or
                ``position 3``.

        Raises:
            InputError: the model has no such head, ``ablation`` or a pattern is not valid, or ``ablation`` is not that
                of the heads that are already ablated.
        """
        from core.interpret.ablation import parse_interventions

        for head in heads:
            if not isinstance(head, str):
                raise InputError(f"heads={short_repr(head)} must be names, such as 'cross.2.1', one argument each")
        patterns = [*patterns] if isinstance(patterns, Iterable) and not isinstance(patterns, str) else [patterns]
        if not all(isinstance(each, str) for each in patterns):
            raise InputError(f"patterns={short_repr(patterns)} must be texts, such as 'cross.2.1=diagonal'")
        parsed = parse_interventions(self.model, self.task, ablate=heads, patterns=patterns, ablation=ablation)
        return replace(self, interventions=self.interventions.joined(parsed).checked(self.model.heads))

    def patch(
        self, text: str, changed: str | None = None, *, step: int = 0, foil: str | None = None
    ) -> "ActivationPatching":
        """Put activations of one input into the run on a changed one, and measure what each restores of one token.

        Args:
            text: the input.
            changed: an input with as many tokens; None replaces the token whose change moves the prediction most.
            step: which token of the answer, from 0.
            foil: the token to compare it with; None is what the model predicts on the changed input.

        Raises:
            InputError: the inputs differ in length or not at all, the answer has no such step, or heads are ablated.
        """
        from core.interpret.attribution.activation_patching import activation_patching
        from core.interpret.attribution.prediction import prediction_at

        if self.interventions:
            raise InputError("patch measures the run as it was trained; call it on the run before ablate")
        _checked_texts(text=text, **({} if changed is None else {"changed": changed}))
        step = checked_number("step", step)
        corrupted = None if changed is None else self._symbols(changed)
        prediction = prediction_at(self.model, self.task, self._symbols(text), step=step, foil=foil)
        return activation_patching(self.model, self.task, prediction, corrupted=corrupted)

    def evaluate(self, sequences: int = 1_000, *, split: Split = "test") -> "Evaluation":
        """Measure loss, token accuracy and exact match on held-out pairs.

        Args:
            sequences: how many; all that there are if fewer.
            split: ``test`` or ``validation``.

        Raises:
            InputError: ``sequences`` is below 1, or there is no such split.
        """
        from core.evaluation.accuracy import evaluate

        with self.changed():
            return evaluate(self.model, self._pairs(sequences, split), task=self.task)

    def fourier_power(self) -> "pd.Series":
        """Measure the frequencies of the embeddings of numbers modulo a prime; see ``core.interpret.fourier``.

        Returns:
            The share of each frequency in the power of the embeddings, 0-1, of sum 1, indexed by frequency from 1.

        Raises:
            InputError: the task has no such numbers, or the model's embedding is not a table.
        """
        import pandas as pd

        from core.interpret.fourier import fourier_power, number_embeddings

        vectors = number_embeddings(self.model, self.task)
        if vectors is None:
            raise InputError(
                f"run={self.run!r} has no embeddings of numbers modulo a prime: "
                f"task.family={self.preset.task.family!r}, model.family={self.preset.model.family!r}"
            )
        power = fourier_power(vectors)
        return pd.Series(power.tolist(), index=pd.RangeIndex(1, len(power) + 1, name="frequency"), name="power")

    def changed(self) -> AbstractContextManager[Any]:
        """Return a context in which the interventions, if any, apply to whatever computes with the model."""
        return self.interventions.applied_to(self.model) if self.interventions else nullcontext()

    def _pairs(self, sequences: int, split: Split) -> Batch:
        sequences = checked_number("sequences", sequences, 1)
        if split not in get_args(Split):
            raise InputError(f"split={short_repr(split)} is not one of {', '.join(get_args(Split))}")
        return fixed_pairs(self.task, sequences, split=split)

    def _symbols(self, text: str) -> list[str]:
        return read_input(self.model, self.task, text).symbols


def _checked_texts(**texts: Any) -> None:
    """Raise InputError, which names the argument, if one is no text."""
    for name, given in texts.items():
        if not isinstance(given, str):
            raise InputError(f"{name}={short_repr(given)} must be a text, such as '4 8 2 9'")
