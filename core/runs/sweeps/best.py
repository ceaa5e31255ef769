"""The best trial of a sweep: chosen by the validation set, then measured on the test set; no other trial is."""

from dataclasses import dataclass

from core.config import Preset
from core.config.counting import counted
from core.evaluation.accuracy import Evaluation, evaluate
from core.evaluation.significance import Spread, t_interval
from core.interpret.trained import Trained
from core.runs import load_run
from core.runs.sweeps.folder import SweepError, SweepFile, SweepFolder
from core.runs.sweeps.sweep import Metric
from core.runs.sweeps.table import Row, SweepTable, sweep_table
from core.tasks import Split, fixed_pairs, input_lengths

MAX_DESCRIPTION = 500


@dataclass(frozen=True)
class TestFigure:
    """A figure on the test set, over the seeds of the best trial.

    Attributes:
        values: of each seed's best weights.
        interval: 95 % t interval of the mean; None for a single seed.
    """

    values: tuple[float, ...]
    spread: Spread
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Best:
    """The best trial.

    Attributes:
        row: the trial with its validation figures.
        candidates: number of complete trials that it is the best of.
        open_trials: number of trials that are not complete, so were not considered; pruned ones do not count.
        test: figures on the test set, by metric.
        sequences: number of test sequences.
        lengths: number of inputs by their number of tokens, of the validation and of the test set.
        preset: with the best settings and the first seed.
    """

    row: Row
    candidates: int
    open_trials: int
    test: dict[Metric, TestFigure]
    sequences: int
    lengths: dict[Split, dict[int, int]]
    preset: Preset


def find_best(folder: SweepFolder, *, sequences: int) -> tuple[SweepFile, Best]:
    """Choose the trial with the best mean of the goal's metric on the validation set, and measure it on the test set.

    Args:
        folder: the sweep's folder.
        sequences: number of test sequences; all that there are if fewer.

    Raises:
        SweepError: there is no such sweep, or no trial has all its seeds done.
        RunError: the weights of a run cannot be read.
    """
    table = sweep_table(folder)
    candidates = [row for row in table.rows if row.is_complete and row.pruned is None]
    if not candidates:
        raise SweepError(f"sweep={folder.name!r}: no trial has all its {len(table.file.seeds)} seeds done yet")
    row = candidates[0]
    tested = [load_run(folder.root / run) for run in row.runs]
    evaluations = [_tested(loaded, sequences) for loaded in tested]
    preset = folder.run(row.trial, table.file.seeds[0]).read_preset()
    sets: dict[Split, int] = {"validation": preset.training.validation_sequences, "test": sequences}
    task = tested[0].task
    lengths = {split: input_lengths(fixed_pairs(task, count, split=split)) for split, count in sets.items()}
    figures, measured = _figures(evaluations), evaluations[0].sequences
    best = Best(row, len(candidates), _open_trials(table), figures, measured, lengths, preset)
    return table.file, best


def saved_preset(file: SweepFile, best: Best) -> Preset:
    """Return the best trial's preset with a name and a description of its own, to be written to a file."""
    goal = file.sweep.goal
    description = f"Best of {counted(best.candidates, 'trial')} of the sweep {file.sweep.name} by {goal.metric}. "
    description += best.preset.description
    changes = {"name": f"{file.sweep.name}-best", "description": description[:MAX_DESCRIPTION]}
    return best.preset.model_copy(update=changes)


def _tested(loaded: Trained, sequences: int) -> Evaluation:
    pairs = fixed_pairs(loaded.task, sequences, split="test")
    free_running = loaded.preset.training.free_running_validation
    return evaluate(loaded.model, pairs, free_running_loss=free_running, task=loaded.task)


def _figures(evaluations: list[Evaluation]) -> dict[Metric, TestFigure]:
    fields: dict[Metric, str] = {
        "validation_loss": "loss",
        "free_running_loss": "free_running_loss",
        "token_accuracy": "token_accuracy",
        "exact_match": "exact_match",
        "bleu": "bleu",
        "chrf": "chrf",
    }
    figures: dict[Metric, TestFigure] = {}
    for metric, name in fields.items():
        values = tuple(getattr(each, name) for each in evaluations)
        if None not in values:
            figures[metric] = TestFigure(values, Spread.of(values), t_interval(values))
    return figures


def _open_trials(table: SweepTable) -> int:
    return table.num_unbegun + sum(not row.is_complete and row.pruned is None for row in table.rows)
