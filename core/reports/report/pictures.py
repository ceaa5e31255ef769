"""The report's pictures."""

from core.evaluation.by_length import AccuracyByLength
from core.interpret.alignment import gold_cells
from core.interpret.head_scores import HeadScore
from core.interpret.inspection import Inspection
from core.training.history import History

LOSS, ACCURACY = "loss.png", "accuracy.png"
LENGTHS, HEATMAP = "accuracy_by_length.png", "attention_heatmap.png"
PICTURES = (LOSS, ACCURACY, LENGTHS, HEATMAP)
STEPS_TOO_MANY = 5  # drawn of an answer that goes on behind its end


def draw(
    history: History, curve: AccuracyByLength | None, example: Inspection, head: HeadScore | None
) -> dict[str, bytes]:
    """Return PNG files by name; those for which there is nothing to draw are left out.

    Args:
        curve: by length.
        example: whose attention is drawn.
        head: which head's.
    """
    # Not at the top: matplotlib takes half a second, in which the page could have opened.
    from core.reports.plotting import accuracy_figure, as_png, lengths_figure, loss_figure

    pictures = {}
    if curve is not None:
        columns = (
            [getattr(point, name) for point in curve.points] for name in ("length", "exact_match", "token_accuracy")
        )
        pictures[LENGTHS] = as_png(lengths_figure(*columns, trained=curve.trained, unit=curve.unit))
    evaluations = history.evaluations()
    if evaluations["step"]:
        pictures[LOSS] = as_png(loss_figure(history.points(), evaluations))
        pictures[ACCURACY] = as_png(accuracy_figure(evaluations))
    if head is not None:
        pictures[HEATMAP] = _heatmap(example, head)
    return pictures


def _heatmap(example: Inspection, head: HeadScore) -> bytes:
    from core.reports.plotting import as_png, attention_figure

    steps = example.steps[: len(example.expected) + 1 + STEPS_TOO_MANY]
    figure = attention_figure(
        example.over_source[head.layer - 1, 0, head.head - 1, : len(steps)].cpu().numpy(),
        rows=[step.produced for step in steps],
        columns=example.source_labels,
        title=f"attention over the input, layer {head.layer}, head {head.head}",
        marked=gold_cells(example.sources, steps=len(steps)),
    )
    return as_png(figure)
