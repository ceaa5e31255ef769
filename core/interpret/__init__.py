"""What attention shows, in numbers: how much of it falls where the task says the answer comes from, and how.

Attention tells where a head looked, not by itself why the model answered as it did.
"""

from core.interpret.alignment import gold_alignment, gold_cells
from core.interpret.chunks import recordable_chunks
from core.interpret.head_scores import HeadScore, best_of_layer, score_decoded
from core.interpret.head_table import head_table, measure_heads
from core.interpret.labels import frame_labels, step_labels
from core.interpret.rows import BLOCKS, Rows, rows_of
from core.interpret.step_table import step_table

__all__ = [
    "BLOCKS",
    "HeadScore",
    "Rows",
    "best_of_layer",
    "frame_labels",
    "gold_alignment",
    "gold_cells",
    "head_table",
    "measure_heads",
    "recordable_chunks",
    "rows_of",
    "score_decoded",
    "step_labels",
    "step_table",
]
