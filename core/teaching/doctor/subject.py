"""A run of the lab under examination: the model, with its task, its loss and a sample of its training data."""

from dataclasses import dataclass, field

import torch

from core.interpret.any_module.attention_calls import AttentionCall, record_lab_attention
from core.models import AttentionMaps, Seq2Seq
from core.models.embeddings import Embedding
from core.tasks import Batch
from core.teaching.doctor.black_box import BlackBox, SpecialIds, largest_change
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from core.training.history import History
from core.training.state import TrainingState

NUM_PAIRS = 64  # sampled training pairs
FEW = 8  # number of pairs for checks that need only a few
LAB_IDS = SpecialIds(PAD_ID, PAD_ID, BOS_ID, EOS_ID)


@dataclass(frozen=True)
class Subject(BlackBox):
    """A run of the lab.

    Attributes:
        state: training state with the model in evaluation mode.
        history: metrics of its training, if there was any.
        pairs: a sample of training pairs, as training draws them.
    """

    special = LAB_IDS
    state: TrainingState
    history: History | None
    pairs: Batch = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        object.__setattr__(self, "reads_target", self.state.preset.model.family != "encoder-only")
        object.__setattr__(self, "pairs", self.state.task.sample(NUM_PAIRS, split="train", generator=generator))

    @property
    def model(self) -> Seq2Seq:
        """The model under examination."""
        return self.state.model

    @property
    def is_trained(self) -> bool:
        """Whether the model has been trained, here or, if it was imported, elsewhere."""
        return self.state.step > 0 or self.is_imported

    @property
    def is_imported(self) -> bool:
        """Whether the model comes from another program, so that its training is unknown."""
        return self.state.preset.task.family == "imported"

    @property
    def few(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A few sources (B, S) int64 and their correct decoder inputs (B, T) int64, shifted right."""
        return self.pairs.src[:FEW], self.pairs.tgt[:FEW, :-1]

    @property
    def is_real(self) -> torch.Tensor:
        """Where the targets of ``few`` are not PAD, (B, T) bool."""
        return self.pairs.tgt[:FEW, 1:] != PAD_ID

    def shortest(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the shortest source (1, S) int64, without PAD, and its correct decoder input (1, T) int64."""
        row = int((self.pairs.src != PAD_ID).sum(dim=1).argmin())
        pair = self.pairs[row : row + 1].trimmed()
        return pair.src, pair.tgt[:, :-1]

    @torch.no_grad()
    def logits(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        """Return the logits (B, T, V) float under teacher forcing."""
        return self.model(src, tgt_in)

    def record_attention(self) -> tuple[AttentionMaps, list[AttentionCall]]:
        """Run a few pairs through the model; return the attention maps and every call of an attention module."""
        return record_lab_attention(self.model, *self.few)

    def attention_calls(self, src: torch.Tensor, tgt_in: torch.Tensor) -> list[AttentionCall]:
        """Run pairs through the model; return every call of an attention module."""
        return record_lab_attention(self.model, src, tgt_in)[1]

    def room_after(self, length: int) -> int:
        """Return how many tokens can be appended to a source of that length; 0 or less for none."""
        return self.model.max_seq_len - length

    @torch.no_grad()
    def final_state_changes(self, src: torch.Tensor, padded: torch.Tensor) -> bool:
        """Whether PAD changes the final state of a recurrent encoder; False if there is none."""
        final, padded_final = (self.model.encode(each).final for each in (src, padded))
        return (
            final is not None
            and padded_final is not None
            and not self.rounding.explains(largest_change(final, padded_final))
        )

    @torch.no_grad()
    def lacks_positions(self) -> bool:
        """Whether every embedding maps a token to the same vector at two positions."""
        pairs = [
            module(torch.full((1, 2), EOS_ID, device=module.tokens.weight.device))[0]
            for module in self.model.modules()
            if isinstance(module, Embedding)
        ]
        return all(torch.equal(one, other) for one, other in pairs)
