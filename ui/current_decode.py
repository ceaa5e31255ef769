"""What the page's components are given: plain data made from runs, decodes and maps."""

from dataclasses import dataclass

from core.interpret.alignment import gold_cells
from core.interpret.inspection import Inspection
from ui.attention_blocks import BLOCK_NAMES, Block, source_block
from ui.interventions import ALL_HEADS, RequestedInterventions


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


def true_cells_of(inspection: Inspection) -> list[list[int]]:
    """Return the [step, source column] cells of a decode's map where the symbols of its answer come from."""
    return [list(cell) for cell in gold_cells(inspection.sources, steps=len(inspection.steps))]
