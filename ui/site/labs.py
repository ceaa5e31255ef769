"""What the site's worker needs of a preset or a run: facts as JSON, weights and data as bytes.

Tokens are one or two bytes, whichever the vocabularies need. The data are drawn here by the task, so the split of the
site is that of the program; a training that needs more sequences than are shipped repeats them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from core.config import Preset
from core.graphs.graph import weights_of
from core.interpret.health import head_marks
from core.interpret.snapshots import SnapshotTaker
from core.runs import Run, RunFolder
from core.storage.errors import InputError, LabError
from core.storage.optional_imports import require_package
from core.tasks import Batch, Task, fixed_pairs
from core.teaching.attention_lessons import attention_lessons
from core.teaching.bugs import new_state
from core.training.loop import batches_of
from core.training.schedules import learning_rate_at
from core.training.state import TrainingState
from ui.components.attention_viewer import encoded
from ui.components.head_importance import SEQUENCES
from ui.site.graph_files import PURPOSE, decoding_graphs, lesson_graph, step_graph
from ui.site.model_facts import check_reading, model_facts, snapshot_groups
from ui.site.weight_files import bytes_of, weight_file

MAX_SEQUENCES = 64_000  # of a preset's training data
TEST_SEQUENCES = 10_000
_KNOWN = {  # of the model's settings
    "family": ("transformer", "decoder-only"),
    "attention": ("full", "window"),
    "attention_block": ("multi-head",),
    "positions": ("sinusoidal", "learned", "rope"),
    "target_bos": (True,),
}


@dataclass(frozen=True)
class Lab:
    """A preset or a run for the site.

    Attributes:
        facts: what the worker reads first; it names the other files.
        files: their contents by name.
        record: status, metrics and replay of a run; None for a preset.
    """

    facts: dict[str, Any]
    files: dict[str, bytes]
    record: dict[str, Any] | None = None


def preset_lab(preset: Preset, cache: Path) -> Lab:
    """Return a preset with the graph of its update, its initial weights and its data.

    Raises:
        InputError: the site cannot train it.
    """
    _check_model(preset, f"preset={preset.name!r}")
    _check_task(preset)
    state = new_state(preset)
    check_reading(state.task, f"preset={preset.name!r}")
    rows, widths = _training_rows(state)
    initial = weights_of(state.model)
    validation = _padded(fixed_pairs(state.task, preset.training.validation_sequences, split="validation"), widths)
    test = _padded(_held_out(state.task), widths)
    batch = rows[: preset.training.batch_size]
    graphs = decoding_graphs(preset, new_state(preset).model, cache)
    graphs["step"] = step_graph(preset, new_state(preset).model, batch, cache)
    files = {f"{name}.onnx": content for name, content in graphs.items()}
    dtype = _dtype(state.task)
    files |= {
        "weights.bin": bytes_of(initial.values()),
        "train.bin": _ids(rows, dtype),
        "validation.bin": _ids(validation, dtype),
        "test.bin": _ids(test, dtype),
    }
    training = preset.training
    taker = SnapshotTaker(state.task, state.model)
    facts = model_facts(preset, state.task, state.model, taker.inputs) | {
        "training": {
            "steps": training.steps,
            "batch_size": training.batch_size,
            "evaluate_every": training.evaluate_every,
            "learning_rates": [learning_rate_at(step, training) for step in range(1, training.steps + 1)],
            "keeps_batches": training.group_by_length,
            "state": _state_of(graphs["step"], list(initial)),
        },
        "groups": snapshot_groups(state.task, taker),
        "data": {
            "bytes": np.dtype(dtype).itemsize,
            "widths": list(widths),
            "train": len(rows),
            "validation": len(validation),
            "test": len(test),
        },
    }
    return Lab(facts, files)


def run_lab(folder: RunFolder, cache: Path) -> Lab:
    """Return a run with its best weights, its metrics and its replay.

    Raises:
        RunError: there is no such run, or it has no weights.
        InputError: its model or its task is of another kind than the site shows.
    """
    run = Run(folder)
    _check_model(run.preset, f"run={folder.name!r}")
    loaded = run.trained()
    if loaded.model.forced_start:
        raise InputError(
            f"run={folder.name!r}: its outputs are made to begin with a token, which no page without a server does"
        )
    check_reading(loaded.task, f"run={folder.name!r}")
    held_out = _held_out_if_shipped(loaded.task)
    dtype = _dtype(loaded.task)
    files = {f"{name}.onnx": content for name, content in decoding_graphs(loaded.preset, loaded.model, cache).items()}
    if any(lesson.run == folder.name for lesson in attention_lessons()):
        files["removals.onnx"] = lesson_graph(loaded.preset, loaded.model, cache)
    name, content = weight_file(weights_of(loaded.model))
    files |= {name: content, "test.bin": _ids(held_out, dtype)}
    snapshots = run.replay.snapshots()
    inputs = snapshots[-1].inputs if snapshots else ()
    facts = model_facts(loaded.preset, loaded.task, loaded.model, inputs) | {
        "data": {
            "bytes": np.dtype(dtype).itemsize,
            "widths": [held_out.src.shape[1], held_out.tgt.shape[1]],
            "test": len(held_out),
        },
        "confidence_threshold": loaded.confidence_threshold,
    }
    return Lab(facts, files, _record_of(run))


def _record_of(run: Run) -> dict[str, Any]:
    """Return what the bench shows of a run; ``scripts/runs.js`` lists the names."""
    info, history = run.info, run.history
    evaluations = history.evaluations()
    evaluations["loss"] = evaluations.pop("validation_loss")
    return {
        "title": run.title,
        "step": info.step,
        "steps": run.preset.training.steps,
        "best_step": info.best_step,
        "exact_match": info.exact_match,
        "headline": [figure.model_dump() for figure in info.figures],
        "points": history.points(),
        "evaluations": evaluations,
        "replay": [
            {
                "step": each.step,
                "attention_mass": each.attention_mass,
                "uniform_mass": each.uniform_mass,
                "num_scored": each.num_scored,
                "marks": head_marks(each.health.heads) if each.health else {},
                "outputs": [
                    {"tokens": output.tokens, "maps": {block: encoded(maps) for block, maps in output.maps.items()}}
                    for output in each.outputs
                ],
            }
            for each in run.replay.snapshots()
        ],
    }


def _check_model(preset: Preset, named: str) -> None:
    """Raise InputError for a model whose arithmetic of a cell the site's scripts do not know.

    Args:
        named: the preset or the run, for the message.
    """
    for field, known in _KNOWN.items():
        value = getattr(preset.model, field, known[0])  # some families have no choice
        if value not in known:
            allowed = " or ".join(map(str, known))
            raise InputError(f"{named}: a page without a server needs model.{field}={allowed}, not {value}")


def _check_task(preset: Preset) -> None:
    training = preset.training
    if training.gradient_accumulation_steps > 1 or training.micro_batch_tokens or training.tokens_per_batch:
        raise InputError(f"preset={preset.name!r}: the site trains one batch of a fixed size in each update")
    if training.patience:
        raise InputError(f"preset={preset.name!r}: training.patience={training.patience}: the site stops no run early")
    if training.curriculum_steps:
        raise InputError(
            f"preset={preset.name!r}: training.curriculum_steps={training.curriculum_steps}: the site trains on all "
            "lengths from the start"
        )
    if preset.bug or not getattr(preset.task, "eos_in_targets", True):
        raise InputError(f"preset={preset.name!r}: the site trains no bugs, and no targets without <EOS>")


def _training_rows(state: TrainingState) -> tuple[Batch, tuple[int, int]]:
    """Return the sequences of a run's batches in their order, padded, and the widths of source and target."""
    config = state.preset.training
    batches = batches_of(state)
    updates = min(config.steps, max(1, MAX_SEQUENCES // config.batch_size))
    drawn = [batches.at(step, state.generator) for step in range(1, updates + 1)]
    held_out = _held_out(state.task)
    source, target = (max(getattr(each, side).shape[1] for each in (*drawn, held_out)) for side in ("src", "tgt"))
    widths = (source, target)
    padded = [_padded(batch, widths) for batch in drawn]
    return Batch(torch.cat([each.src for each in padded]), torch.cat([each.tgt for each in padded])), widths


def _held_out_if_shipped(task: Task) -> Batch:
    """Return test pairs; none of a task whose pairs are not on this machine."""
    try:
        return _held_out(task)
    except LabError:
        return Batch(torch.zeros(0, 1, dtype=torch.long), torch.zeros(0, 1, dtype=torch.long))


def _held_out(task: Task) -> Batch:
    """Return test pairs; the first are those on which the program measures the importance of heads."""
    parts = [fixed_pairs(task, count, split="test") for count in (SEQUENCES, TEST_SEQUENCES)]
    widths = (max(each.src.shape[1] for each in parts), max(each.tgt.shape[1] for each in parts))
    first, more = (_padded(each, widths) for each in parts)
    known = set(map(tuple, first.src.tolist()))
    others = [row for row, ids in enumerate(more.src.tolist()) if tuple(ids) not in known]
    joined = [torch.cat([getattr(first, side), getattr(more, side)[others]]) for side in ("src", "tgt")]
    return Batch(*(ids[:TEST_SEQUENCES] for ids in joined))


def _padded(batch: Batch, widths: tuple[int, int]) -> Batch:
    source, target = (width - ids.shape[1] for ids, width in zip((batch.src, batch.tgt), widths, strict=True))
    return Batch(F.pad(batch.src, (0, source)), F.pad(batch.tgt, (0, target)))


def _dtype(task: Task) -> str:
    return "<u1" if max(len(task.src_vocab), len(task.tgt_vocab)) <= 256 else "<u2"


def _ids(batch: Batch, dtype: str) -> bytes:
    return batch.src.numpy().astype(dtype).tobytes() + batch.tgt.numpy().astype(dtype).tobytes()


def _state_of(graph: bytes, weights: list[str]) -> list[list[str]]:
    """Return the names of the optimizer's state in an update's graph, each with the weight whose shape it has."""
    onnx = require_package("onnx", purpose=PURPOSE)
    inputs = [each.name for each in onnx.load_from_string(graph).graph.input]
    return [[name, name.rpartition(".")[0]] for name in inputs if name.rpartition(".")[0] in weights]
