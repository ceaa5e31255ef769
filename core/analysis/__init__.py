"""What attention shows, in numbers: how much of it falls where the task says the answer comes from, and how.

Attention tells where a head looked, not by itself why the model answered as it did.
"""

from core.analysis.chunks import recordable_chunks
from core.analysis.head_score import HeadScore, best_of_layer, score_decoded
from core.analysis.head_table import head_table, measure_heads
from core.analysis.labels import frame_labels, step_labels
from core.analysis.rollout import rollout
from core.analysis.rows import BLOCKS, Rows, rows_of
from core.analysis.step_table import step_table
from core.analysis.truth import true_cells, true_map

__all__ = [
    "BLOCKS",
    "HeadScore",
    "Rows",
    "best_of_layer",
    "frame_labels",
    "head_table",
    "measure_heads",
    "recordable_chunks",
    "rollout",
    "rows_of",
    "score_decoded",
    "step_labels",
    "step_table",
    "true_cells",
    "true_map",
]
