"""The current decode, which the Decode and Attention tabs share."""

from dataclasses import dataclass, field

from core.interpret.health import HeadMarks
from core.interpret.inspection import Inspection
from core.tasks.alignment import gold_cells
from ui.attention_blocks import BLOCK_NAMES, Block, source_block
from ui.interventions import NO_INTERVENTIONS, InterventionSpec


@dataclass(frozen=True)
class CurrentDecode:
    """One decoded input with everything that was recorded.

    Attributes:
        run: name of the run that decoded it.
        title: its title at that time.
        step: training step of its weights.
        inspection: input, output, steps and attention maps.
        interventions: interventions during the decode.
        baseline: the same decode without interventions; None if there were none.
        marks: of the heads, at the run's snapshot nearest to the step, {} without any; see ``core.interpret.health``.
    """

    run: str
    title: str
    step: int
    inspection: Inspection
    interventions: InterventionSpec = NO_INTERVENTIONS
    baseline: Inspection | None = None
    marks: HeadMarks = field(default_factory=dict)

    def num_layers(self, block: Block) -> int:
        """Return the number of layers with this attention block; 0 if the model has none."""
        maps = getattr(self.inspection.maps, block)
        return 0 if maps is None else maps.shape[0]

    @property
    def blocks(self) -> list[Block]:
        """The attention blocks of the model."""
        return [block for block in BLOCK_NAMES if self.num_layers(block)]

    @property
    def source_block(self) -> Block | None:
        """The attention block through which the answer attends to the source; None without attention."""
        return source_block(self.blocks) if self.blocks else None

    @property
    def gold_cells(self) -> list[list[int]]:
        """[step, source column] of every output token that is copied from the source, by the gold alignment."""
        return [list(cell) for cell in gold_cells(self.inspection.sources, steps=len(self.inspection.steps))]
