"""What notebooks use: ``from core import lab``, then ``lab.load("digits-reversal-shipped").decode("4 8 2 9").output``.

docs/python.md shows every name of ``__all__``; they stay as they are from version to version.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.config import Preset, load_preset, parse_preset, read_preset
from core.config.listing import listed_presets
from core.evaluation.accuracy import Evaluation, evaluate
from core.generation import GREEDY, Strategy
from core.interpret.ablation import parse_interventions
from core.interpret.attribution.activation_patching import ActivationPatching, activation_patching
from core.interpret.attribution.prediction import prediction_at
from core.interpret.inspection import Inspection, inspect
from core.interpret.interventions import Ablation, Interventions
from core.models import Seq2Seq
from core.runs.folder import DEFAULT_ROOT, RunFolder, list_runs
from core.runs.load import LoadedRun, SavedRuns
from core.storage.errors import InputError
from core.tasks import Task, fixed_pairs
from core.tasks.data import Split
from core.teaching.doctor import diagnose
from core.training.history import History
from core.training.loop import EndEvent, EvaluationEvent, Event, StepEvent

if TYPE_CHECKING:  # a tenth of a second to import
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

__all__ = [
    "EndEvent",
    "EvaluationEvent",
    "Run",
    "StepEvent",
    "diagnose",
    "load",
    "plot_attention",
    "presets",
    "runs",
    "train",
]

Root = str | Path


@dataclass(frozen=True, eq=False)
class Run:
    """A trained model with its task, and what is changed in its heads; made by ``load`` and ``train``.

    Attributes:
        loaded: model, task, preset, and the training step of the weights.
        interventions: applied in every method but ``patch``; None leaves the model as it was trained.
        root: the folder of runs that it is in.
    """

    loaded: LoadedRun
    interventions: Interventions | None = None
    root: Path = DEFAULT_ROOT

    def __repr__(self) -> str:
        changes = f", {self.interventions}" if self.interventions else ""
        return f"<Run {self.name}, step {self.loaded.step}{changes}>"

    @property
    def name(self) -> str:
        """The run's name."""
        return self.loaded.run

    @property
    def preset(self) -> Preset:
        """The preset that the run was trained with."""
        return self.loaded.preset

    @property
    def task(self) -> Task:
        """The task, with its vocabularies and data."""
        return self.loaded.task

    @property
    def model(self) -> Seq2Seq:
        """The model, in evaluation mode, on the CPU."""
        return self.loaded.model

    @property
    def heads(self) -> tuple[str, ...]:
        """The names of all attention heads: block, layer and head, from 1, as ``cross.2.1``."""
        return tuple(str(head) for head in self.model.heads)

    def history(self) -> "pd.DataFrame":
        """Return the metrics of the training by step.

        Returns:
            A row for each training step that is recorded and each evaluation, indexed by ``step``, with the float
            columns ``loss``, ``learning_rate``, ``gradient_norm``, ``validation_loss``, ``token_accuracy`` and
            ``exact_match``, and those that only some runs have, such as ``bleu``; NaN where a metric was not measured.
            Losses are in nats per token, accuracies 0-1.
        """
        import pandas as pd

        history = SavedRuns(self.root).history(self.name)
        series = (pd.DataFrame(each).set_index("step") for each in (history.points(), history.evaluations()))
        return pd.concat(series, axis="columns").sort_index().astype(float)

    def decode(self, text: str, *, strategy: Strategy = GREEDY, prefix: str = "") -> Inspection:
        """Decode an input, and record the probabilities of every step and the weights of every head.

        Args:
            text: the input as one would type it on the page, such as ``"4 8 2 9"``.
            strategy: ``GREEDY``, ``Beam(beam_size=4)`` or another of ``core.generation``.
            prefix: tokens that the answer must begin with, as typed.

        Raises:
            InputError: the task cannot read the text, or it is too long for the model.
        """
        return inspect(self.model, self.task, text, strategy=strategy, prefix=prefix, interventions=self.interventions)

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
        """
        from core.interpret.head_table import measure_heads  # pandas

        with self._changed():
            table = measure_heads(self.model, self.task, fixed_pairs(self.task, sequences, split=split))
        return table.set_index(table["block"] + "." + table["layer"].astype(str) + "." + table["head"].astype(str))

    def ablate(self, *heads: str, ablation: Ablation = "zero", patterns: Iterable[str] = ()) -> "Run":
        """Return this run with heads ablated; this run itself stays as it is.

        Args:
            heads: names of heads (``cross.2.1``), layers (``cross.2``) or blocks (``cross``).
            ablation: what replaces their output: ``zero``, or its ``mean`` over held-out inputs.
            patterns: cross-attention heads that follow a pattern: ``cross.2.1=diagonal``, ``anti-diagonal`` or
                ``position 3``.

        Raises:
            InputError: the model has no such head, or a pattern is not valid.
        """
        parsed = parse_interventions(self.model, self.task, ablate=heads, patterns=patterns, ablation=ablation)
        return replace(self, interventions=parsed)

    def patch(
        self, text: str, changed: str | None = None, *, step: int = 0, foil: str | None = None
    ) -> ActivationPatching:
        """Put activations of one input into the run on a changed one, and measure what each restores of one token.

        Args:
            text: the input.
            changed: an input with as many tokens; None replaces the token whose change moves the prediction most.
            step: which token of the answer, from 0.
            foil: the token to compare it with; None is what the model predicts on the changed input.

        Raises:
            InputError: the inputs differ in length or not at all, the answer has no such step, or heads of this run are
                ablated.
        """
        if self.interventions:
            raise InputError("patch measures the run as it was trained; call it on the run before ablate")
        corrupted = None if changed is None else self._symbols(changed)
        prediction = prediction_at(self.model, self.task, self._symbols(text), step=step, foil=foil)
        return activation_patching(self.model, self.task, prediction, corrupted=corrupted)

    def evaluate(self, sequences: int = 1_000, *, split: Split = "test") -> Evaluation:
        """Measure loss, token accuracy and exact match on held-out pairs.

        Args:
            sequences: how many; all that there are if fewer.
            split: ``test`` or ``validation``.
        """
        with self._changed():
            return evaluate(self.model, fixed_pairs(self.task, sequences, split=split), task=self.task)

    def _changed(self) -> AbstractContextManager[Any]:
        """Return a context in which the interventions, if any, apply to the model."""
        return self.interventions.applied_to(self.model) if self.interventions else nullcontext()

    def _symbols(self, text: str) -> list[str]:
        return self.task.src_vocab.decode(self.task.src_vocab.encode(self.task.tokenize(text)))


def presets() -> list[str]:
    """Return the names of all presets, the quickest to train first."""
    return [preset.name for preset in listed_presets()]


def runs(root: Root = DEFAULT_ROOT) -> list[str]:
    """Return the names of the runs in a folder, newest first."""
    return [folder.name for folder in list_runs(Path(root))]


def load(name: str, root: Root = DEFAULT_ROOT) -> Run:
    """Load the best weights of a run.

    Args:
        name: of the run, such as ``"digits-reversal-shipped"``.
        root: the folder of runs.

    Raises:
        RunError: there is no such run, it has no weights yet, or they cannot be read.
    """
    return Run(SavedRuns(Path(root)).loaded(name), root=Path(root))


def plot_attention(table: "pd.DataFrame", ax: "Axes | None" = None) -> "AxesImage":
    """Draw an attention map with matplotlib: the darker, the more attention; the colors cover 0 to 1.

    Args:
        table: one head's weights, (queries, keys) float, as ``Run.attention`` returns them.
        ax: the axes to draw into; None is pyplot's current axes.

    Returns:
        The image, for ``figure.colorbar``.
    """
    from matplotlib import pyplot

    from core.reports.plotting import draw_attention

    axes = pyplot.gca() if ax is None else ax
    return draw_attention(axes, table.to_numpy(), rows=list(table.index), columns=list(table.columns))


def train(
    preset: str | Mapping[str, Any] | Preset,
    *,
    changes: Mapping[str, Any] | None = None,
    name: str | None = None,
    root: Root = DEFAULT_ROOT,
    on_event: Callable[[Event], None] = lambda event: None,
) -> Run:
    """Train a preset to its end, and save it as a run that the page and the command line know too.

    Args:
        preset: a preset or its name; or its sections, as a mapping or as YAML text of several lines.
        changes: settings by key, such as ``{"training.steps": 500}``; as ``--set`` on the command line.
        name: of the new run; None is the preset's with a number.
        root: the folder of runs.
        on_event: called with every ``StepEvent``, ``EvaluationEvent`` and, at last, ``EndEvent``. An exception that it
            raises ends the training.

    Returns:
        The run with its best weights.

    Raises:
        ConfigError: there is no such preset, or a setting is not valid.
        RunError: there is a run of that name.
    """
    from core.runs.recorder import train_recorded  # not needed to look at a run
    from core.teaching.bugs import new_state

    chosen = _preset_of(preset).with_changes(dict(changes or {}))
    state = new_state(chosen)
    folder = RunFolder.create(Path(root), chosen, name=name)
    lock = folder.lock()
    try:
        train_recorded(folder, state, History(), on_event=on_event)
    finally:
        lock.release()
    return load(folder.name, root)


def _preset_of(given: str | Mapping[str, Any] | Preset) -> Preset:
    if isinstance(given, Preset):
        return given
    if isinstance(given, Mapping):
        return parse_preset(dict(given), name="notebook")
    return read_preset(given, name="notebook") if "\n" in given else load_preset(given)
