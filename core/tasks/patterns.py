"""Patterns to continue: ``a b c a b c a b`` becomes ``c a b c``."""

from collections.abc import Sequence
from pathlib import Path

import torch

from core.config.tasks import PatternsConfig, format_range
from core.storage.errors import InputError
from core.tasks.data import OVERSAMPLING, add_bos_eos, draw_split, first_distinct, split_mask
from core.tasks.task import Batch, Split, Task
from core.text.validation import check_input_length, check_not_empty, quote
from core.text.vocab import PAD_ID, Vocab

SYMBOLS = "abcdefghij"


class Patterns(Task):
    """A motif that is repeated and cut off anywhere after its second repetition; the answer continues it.

    Two full repetitions make the motif unambiguous: no shorter one gives the same input. A motif is held out together
    with all its rotations, since a pattern of ``abc`` is one of ``bca`` that began one symbol earlier.

    Args:
        config: the preset's ``task`` section.
    """

    def __init__(self, config: PatternsConfig, pairs: Path | None = None) -> None:
        self.src_vocab = self.tgt_vocab = Vocab(SYMBOLS)
        self.min_motif, self.max_motif = config.min_motif, config.max_motif
        self.min_length, self.max_length = 2 * config.min_motif, config.max_length
        self.answer_length = config.longest_answer
        motifs = [SYMBOLS[:size] for size in range(self.min_motif, self.max_motif + 1)][:4]
        self.examples = tuple(
            " ".join((motif * self.max_length)[: self._example_length(len(motif))]) for motif in motifs
        )

    @property
    def sampling(self) -> str:
        """The distribution of the inputs, in a few words."""
        return (
            f"motif length uniform in {format_range(self.min_motif, self.max_motif)} and each symbol uniform among "
            f"{len(SYMBOLS)}, leaving out motifs that repeat a shorter one; input length uniform from two motifs to "
            f"{self.max_length}"
        )

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` patterns of a split; see ``Task.sample``."""
        _, motifs, sizes = draw_split(lambda number: self._draw(number, generator), count, split=split)
        device = generator.device
        fraction = torch.rand(count, 1, generator=generator, device=device, dtype=torch.float64)
        lengths = 2 * sizes + (fraction * (self.max_length + 1 - 2 * sizes)).long()
        return self._with_answers(motifs, sizes, lengths, self.max_length)

    def sample_of_length(self, length: int, count: int, *, generator: torch.Generator) -> Batch:
        """Draw patterns of held-out motifs; see ``Task.sample_of_length``."""
        keys, motifs, sizes = self._draw(OVERSAMPLING * count, generator)
        fits = split_mask(keys, "test") & (2 * sizes <= length).squeeze(1)
        lengths = torch.full_like(sizes, length)
        return first_distinct(self._with_answers(motifs[fits], sizes[fits], lengths[fits], length), count)

    def tokenize(self, text: str) -> list[str]:
        """Read ``a b a b a``, ``ababa`` or ``A,B,A,B,A``."""
        check_input_length(text)
        symbols = list("".join(text.lower().replace(",", " ").split()))
        check_not_empty(symbols, example=self.examples[0])
        self.src_vocab.encode(symbols)
        if not _motif_length(symbols):
            typed = quote("".join(symbols))
            raise InputError(f"input={typed} must contain its motif at least twice in full: {self.examples[0]}")
        return symbols

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the symbols that come next."""
        motif = symbols[len(symbols) - _motif_length(symbols) :]
        return [motif[index % len(motif)] for index in range(self.answer_length)]

    def gold_alignment(self, symbols: Sequence[str]) -> list[list[int]]:
        """Return the position of each next symbol in every repetition of the motif; see ``Task.gold_alignment``."""
        size = _motif_length(symbols)
        return [list(range((len(symbols) + index) % size, len(symbols), size)) for index in range(self.answer_length)]

    def note(self, symbols: Sequence[str]) -> str:
        """Report a motif or an input of another length than the training inputs."""
        size = _motif_length(symbols)
        if self.min_motif <= size <= self.max_motif:
            return super().note(symbols)
        trained = format_range(self.min_motif, self.max_motif)
        return f"a motif of {size} symbols is not in the training inputs ({trained} symbols)"

    def _with_answers(self, motifs: torch.Tensor, sizes: torch.Tensor, lengths: torch.Tensor, width: int) -> Batch:
        """Return motifs (B, max_motif) int64 of sizes (B, 1), repeated to lengths (B, 1), with the continuations."""
        device = motifs.device
        positions = torch.arange(width, device=device).expand(len(motifs), -1)
        inputs = motifs.gather(1, positions % sizes).masked_fill(positions >= lengths, PAD_ID)
        next_positions = lengths + torch.arange(self.answer_length, device=device)
        return Batch(add_bos_eos(inputs), add_bos_eos(motifs.gather(1, next_positions % sizes)))

    def _example_length(self, size: int) -> int:
        """Return the length of an example: two and a half motifs, if they fit."""
        return min(self.max_length, 2 * size + (size + 1) // 2)

    def _draw(self, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Draw split keys (B, max_motif) int64, motifs (B, max_motif) padded on the right, and their sizes (B, 1).

        The key is the same for all rotations of a motif. Motifs that repeat a shorter one are dropped, so B is less
        than ``count``.
        """
        device, first = generator.device, self.src_vocab.first_symbol_id
        sizes = torch.randint(self.min_motif, self.max_motif + 1, (count, 1), generator=generator, device=device)
        size = (count, self.max_motif)
        motifs = torch.randint(first, len(self.src_vocab), size, generator=generator, device=device)
        positions = torch.arange(self.max_motif, device=device)
        motifs = motifs.masked_fill(positions >= sizes, PAD_ID)
        rotations = torch.stack([_rotate(motifs, sizes, by) for by in range(self.max_motif)])  # (R, B, max_motif)
        numbers = (rotations * len(self.src_vocab) ** positions).sum(dim=-1)  # (R, B), a number per distinct rotation
        is_unchanged = (numbers[1:] == numbers[0]) & (positions[1:, None] < sizes[:, 0])
        is_primitive = ~is_unchanged.any(dim=0)  # no rotation gives the motif itself
        keys = rotations[numbers.argmin(dim=0), torch.arange(count, device=device)]
        return keys[is_primitive], motifs[is_primitive], sizes[is_primitive]


def _rotate(motifs: torch.Tensor, sizes: torch.Tensor, by: int) -> torch.Tensor:
    """Rotate motifs (B, M) int64 of sizes (B, 1) to the left; PAD stays at the end."""
    positions = torch.arange(motifs.shape[1], device=motifs.device)
    rotated = motifs.gather(1, (positions + by) % sizes)
    return rotated.masked_fill(positions >= sizes, PAD_ID)


def _motif_length(symbols: Sequence[str]) -> int:
    """Return the length of the shortest motif that the input repeats at least twice in full; 0 if there is none."""
    for size in range(1, len(symbols) // 2 + 1):
        if all(symbols[index] == symbols[index - size] for index in range(size, len(symbols))):
            return size
    return 0
