"""Head thumbnails with and without a gold alignment."""

import torch

from core.interpret.inspection import inspect
from core.models import build_model
from core.tasks import build_task
from ui.components.head_thumbnails import layer_value
from ui.current_decode import CurrentDecode


def viewed(preset, text: str) -> dict:
    task = build_task(preset.task)
    model = build_model(preset.model, task, torch.Generator().manual_seed(0)).eval()
    return layer_value(CurrentDecode("run-1", "run 1", 0, inspect(model, task, text)), "cross", 1)


def test_tasks_without_alignment_have_no_gold_cells_or_scores(tiny):
    shown = viewed(tiny.with_changes({"task.family": "addition", "task.max_digits": 2}), "27 + 58")
    assert shown["gold_cells"] == []
    assert shown["uniform_mass"] is shown["selected"] is None
    assert {head["label"] for head in shown["heads"]} == {""}


def test_gold_cells_follow_the_alignment_of_the_task(tiny):
    shown = viewed(tiny, "4 8 2")
    steps = len(shown["rows"])
    assert shown["gold_cells"] == [[0, 3], [1, 2], [2, 1]][:steps]
    assert shown["uniform_mass"] is not None
