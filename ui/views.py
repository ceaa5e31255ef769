"""What the page's components are given: plain data made from runs, decodes and maps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.config import ConfigError, Preset, load_preset
from core.generation import Strategy
from core.interpret import HeadScore, gold_cells
from core.interpret.inspection import Inspection
from core.runs import RunError
from core.server import Progress, Runs
from core.server.access import without_secret
from ui.blocks import BLOCK_NAMES, Block, columns_of, how_to_read, source_block
from ui.interventions import ALL_HEADS, RequestedInterventions

LISTED_RUNS = 50


@dataclass(frozen=True)
class Seen:
    """The current decode: which run answered, with the weights of which step, and what was seen.

    Attributes:
        asked: what was done to heads meanwhile.
        intact: the same decode with all heads as they are, where something was done to some.
    """

    run: str
    step: int
    inspection: Inspection
    asked: RequestedInterventions = ALL_HEADS
    intact: Inspection | None = None

    def layers(self, block: Block) -> int:
        """Return how many layers have maps of a kind; 0 where the model has no such attention."""
        maps = getattr(self.inspection.maps, block)
        return 0 if maps is None else maps.shape[0]

    @property
    def source_block(self) -> Block:
        """The kind of attention that looks at the input while the answer is written."""
        return source_block(self.blocks)

    @property
    def blocks(self) -> list[Block]:
        """The kinds of attention that the model has."""
        return [block for block in BLOCK_NAMES if self.layers(block)]


def run_list(runs: Runs) -> dict[str, Any]:
    """Return the runs for the bar at the top of the page."""
    listed = []
    for name in runs.names()[:LISTED_RUNS]:
        progress = runs.progress(name)
        listed.append(
            {
                "id": name,
                "preset": runs.preset(name).name,
                "status": progress.info.status,
                "shipped": progress.info.shipped,
                "step": progress.info.step,
                "steps": progress.steps,
                "exact_match": progress.info.exact_match,
                "place": progress.place,
            }
        )
    return {"runs": listed}


def can_open(runs: Runs, name: str) -> bool:
    """Tell whether there is a run to be opened of a name that somebody's link gives."""
    try:
        runs.info(name)
        runs.preset(name)
    except RunError:
        return False
    return True


def progress_since(runs: Runs, name: str, *, since_step: int, since_evaluation: int) -> dict[str, Any]:
    """Return where a run stands and its figures after the steps a chart already has."""
    progress, history = runs.progress(name), runs.history(name)
    evaluations = history.evaluations(since=since_evaluation)
    evaluations["loss"] = evaluations.pop("validation_loss")
    return {
        "run": name,
        "status": progress.info.status,
        "message": _message(progress),
        "step": progress.info.step,
        "steps": progress.steps,
        "steps_per_second": progress.steps_per_second,
        "seconds_left": progress.seconds_left,
        "best_step": progress.info.best_step,
        "points": history.points(since=since_step),
        "evaluations": evaluations,
        "restart": progress.info.step < since_step,  # it was rewound to its last saved state
    }


def settings_line(runs: Runs, name: str) -> str:
    """Describe a run's settings: its preset and what was changed in it."""
    preset = runs.preset(name)
    changes = changes_in_words(preset, base_of(preset))
    line = f"{without_secret(name)}: preset {preset.name}, {changes or 'unchanged'}; seed {preset.training.seed}"
    return f"{line}. {preset.broken}" if preset.broken else line


def base_of(preset: Preset) -> Preset:
    """Return the shipped preset that one was made from, or itself where there is none of its name."""
    try:
        return load_preset(preset.name)
    except ConfigError:
        return preset


def changes_in_words(preset: Preset, base: Preset) -> str:
    """List what a preset changes, as ``training.steps 1000 → 500, …``; without the old value where there is none."""
    changes = preset.changed_from(base).items()
    return ", ".join(f"{key} {new}" if old is None else f"{key} {old} → {new}" for key, (old, new) in changes)


def answer_value(seen: Seen) -> dict[str, Any]:
    """Return a decode for the answer component."""
    inspection = seen.inspection
    return {
        "input": inspection.symbols,
        "output": inspection.output,
        "expected": inspection.expected,
        "correct": inspection.correct,
        "stopped": inspection.stopped,
        "note": inspection.note,
        "milliseconds": inspection.seconds * 1000,
        "log_prob": inspection.log_prob,
        "ranked": [
            {"output": each.output, "log_prob": each.log_prob, "score": each.score, "stopped": each.stopped}
            for each in inspection.ranked
        ],
        "steps": [
            {
                "token": step.produced,
                "read": step.read,
                "probability": step.probability,
                "forced": step.forced,
                "candidates": [{"token": token, "probability": share} for token, share in step.candidates],
            }
            for step in inspection.steps
        ],
    }


def tree_value(seen: Seen) -> dict[str, Any] | None:
    """Return what a beam search held for the tree component; None of a decode that was no search."""
    nodes = [
        {
            "step": branch.node.step,
            "token": branch.token,
            "parent": branch.node.parent,
            "probability": math.exp(branch.node.log_prob),
            "total": branch.node.total,
            "finished": branch.node.finished,
            "winning": branch.node.winning,
        }
        for branch in seen.inspection.tree
    ]
    return {"nodes": nodes} if nodes else None


def comparison_value(inspections: Sequence[Inspection], asked: RequestedInterventions = ALL_HEADS) -> dict[str, Any]:
    """Return decodes of one input by several strategies for the comparison component."""
    interventions = f", {asked}" if asked else ""
    return {
        "heading": f"Side by side: {' '.join(inspections[0].symbols)}{interventions}",
        "note": "Marked: where an answer first differs from the first one. Log P is the log-probability of the whole "
        "answer in the model's own distribution, in nats, whatever wrote it.",
        "rows": [_row(_in_words(each.strategy), each) | {"log_prob": each.log_prob} for each in inspections],
    }


def edited_value(seen: Seen | None) -> dict[str, Any] | None:
    """Return a decode with and without what was done to heads, for the comparison component; None if nothing was."""
    if seen is None or seen.intact is None:
        return None
    return {
        "heading": "",
        "note": "",
        "rows": [_row("with all heads", seen.intact), _row(str(seen.asked), seen.inspection)],
        "button": "Restore all heads",
    }


def viewer_value(seen: Seen, block: Block, layer: int) -> dict[str, Any]:
    """Return one layer's heads, with what is to be known to read them; layer and head are numbered from 1."""
    inspection = seen.inspection
    weights = getattr(inspection.maps, block)[layer - 1, 0].numpy()  # (H, Tq, Tk)
    scores = {score.head: score for score in inspection.scores if score.layer == layer and block == seen.source_block}
    layers = seen.layers(block)
    return {
        "title": f"{BLOCK_NAMES[block].capitalize()}, layer {layer} of {layers}",
        "caption": how_to_read(block, seen.blocks),
        "block": block,
        "layer": layer,
        "rows": _row_labels(inspection, block),
        "columns": _columns(seen, block),
        "heads": [_head(number, weights[number - 1], scores.get(number)) for number in range(1, len(weights) + 1)],
        "uniform": next(iter(scores.values())).uniform if scores else None,
        "marked": true_cells_of(inspection) if block == seen.source_block else [],
        "selected": _best_head(scores),
    }


def true_cells_of(inspection: Inspection) -> list[list[int]]:
    """Return the [step, source column] cells of a decode's map where the symbols of its answer come from."""
    return [list(cell) for cell in gold_cells(inspection.sources, steps=len(inspection.steps))]


def _in_words(strategy: Strategy) -> str:
    changed = strategy.model_dump(exclude={"kind"}, exclude_defaults=True)
    return ", ".join([strategy.kind, *(f"{name.replace('_', ' ')} {value:g}" for name, value in changed.items())])


def _row(label: str, inspection: Inspection) -> dict[str, Any]:
    return {
        "label": label,
        "output": inspection.output,
        "correct": inspection.correct,
        "stopped": inspection.stopped,
    }


def _message(progress: Progress) -> str:
    if progress.place is not None:
        return f"waiting for a free place: number {progress.place} in the queue"
    return progress.info.message


def _columns(seen: Seen, block: Block) -> list[str]:
    source, read = seen.inspection.source_labels, [step.read for step in seen.inspection.steps]
    return {"source": source, "read": read, "source and read": [*source, *read]}[columns_of(block, seen.blocks)]


def _row_labels(inspection: Inspection, block: Block) -> list[dict[str, str]]:
    if block == "encoder":
        return [{"token": token} for token in inspection.source_labels]
    return [{"produced": step.produced, "read": step.read} for step in inspection.steps]


def _head(number: int, weights: np.ndarray, score: HeadScore | None) -> dict[str, Any]:
    return {
        "head": number,
        "weights": weights.round(4).tolist(),
        "score": score.share if score else None,
        "label": f"{score.share:.2f} on the true token" if score else "",
    }


def _best_head(scores: dict[int, HeadScore]) -> int | None:
    return max(scores.values(), key=lambda score: score.share).head if scores else None
