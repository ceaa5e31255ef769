"""Patterns to continue: ``a b c a b c a b`` becomes ``c a b c``."""

from collections.abc import Sequence

import torch

from core.config.tasks import format_range
from core.storage.errors import InputError
from core.tasks.drawing import draw_split, framed
from core.tasks.splits import Split, split_mask
from core.tasks.task import DRAWN_PER_KEPT, Batch, Task, first_distinct
from core.text.task_input import check_length, check_not_empty, shortened
from core.text.vocab import PAD_ID, Vocab

SYMBOLS = "abcdefghij"


class Patterns(Task):
    """A motif repeated and cut off anywhere after its second showing; the answer is what comes next.

    Having been shown twice, the motif is certain: no shorter one would give the same input. Held out are motifs, and
    with each all its rotations, since a pattern of ``abc`` is one of ``bca`` that began a little earlier.

    Args:
        min_motif, max_motif: symbols in a motif, each number as likely.
        max_length: symbols in the longest input, at least two of the longest motif.
        answer_length: symbols to write.
    """

    def __init__(self, *, min_motif: int, max_motif: int, max_length: int, answer_length: int) -> None:
        self.src_vocab = self.tgt_vocab = Vocab(SYMBOLS)
        self.min_motif, self.max_motif = min_motif, max_motif
        self.min_length, self.max_length = 2 * min_motif, max_length
        self.answer_length = answer_length
        motifs = [SYMBOLS[:size] for size in range(min_motif, max_motif + 1)][:4]
        self.examples = tuple(" ".join((motif * max_length)[: self._cut(len(motif))]) for motif in motifs)

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` patterns of one split; see ``Task.sample``."""
        _, motifs, sizes = draw_split(lambda number: self._draw(number, generator), count, split=split)
        device = generator.device
        share = torch.rand(count, 1, generator=generator, device=device, dtype=torch.float64)
        lengths = 2 * sizes + (share * (self.max_length + 1 - 2 * sizes)).long()
        return self._answered(motifs, sizes, lengths, self.max_length)

    def of_length(self, length: int, count: int, *, generator: torch.Generator) -> Batch:
        """Draw patterns of motifs that are held out, also where the length is; see ``Task.of_length``."""
        deciding, motifs, sizes = self._draw(DRAWN_PER_KEPT * count, generator)
        kept = split_mask(deciding, "test") & (2 * sizes <= length).squeeze(1)
        lengths = torch.full_like(sizes, length)
        return first_distinct(self._answered(motifs[kept], sizes[kept], lengths[kept], length), count)

    def read(self, text: str) -> list[str]:
        """Read ``a b a b a``, ``ababa`` or ``A,B,A,B,A``."""
        check_length(text)
        symbols = list("".join(text.lower().replace(",", " ").split()))
        check_not_empty(symbols, example=self.examples[0])
        self.src_vocab.encode(symbols)
        if _period(symbols) is None:
            shown = shortened("".join(symbols))
            raise InputError(f"input={shown} must show its motif twice in full before it ends: {self.examples[0]}")
        return symbols

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the symbols that come next."""
        return [symbols[place] for place in self.alignment(symbols)]

    def alignment(self, symbols: Sequence[str]) -> list[int]:
        """Return where the motif showed each next symbol last; it may have done so before."""
        start = len(symbols) - _period(symbols)
        return [start + place % (len(symbols) - start) for place in range(self.answer_length)]

    def sources(self, symbols: Sequence[str]) -> list[list[int]]:
        """Return the place of each next symbol in every showing of the motif."""
        size = _period(symbols)
        return [list(range(place % size, len(symbols), size)) for place in self.alignment(symbols)]

    def note(self, symbols: Sequence[str]) -> str:
        """Say in what way an input is unlike those trained on: by its motif, or by its length."""
        size = _period(symbols)
        if self.min_motif <= size <= self.max_motif:
            return super().note(symbols)
        return f"a motif of {size} is none it was trained on ({format_range(self.min_motif, self.max_motif)} symbols)"

    def _answered(self, motifs: torch.Tensor, sizes: torch.Tensor, lengths: torch.Tensor, longest: int) -> Batch:
        """Return motifs (B, max_motif) int64 of some sizes (B, 1), repeated to lengths (B, 1), with what comes next."""
        device = motifs.device
        places = torch.arange(longest, device=device).expand(len(motifs), -1)
        shown = motifs.gather(1, places % sizes).masked_fill(places >= lengths, PAD_ID)
        following = lengths + torch.arange(self.answer_length, device=device)
        return Batch(framed(shown), framed(motifs.gather(1, following % sizes)))

    def _cut(self, size: int) -> int:
        """Return how much of a pattern to show in an example: two motifs and a half, if there is room."""
        return min(self.max_length, 2 * size + (size + 1) // 2)

    def _draw(self, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Draw motifs (B, max_motif) int64, PAD behind each, and their sizes (B, 1).

        Before them, (B, max_motif), what decides the split: of a motif's rotations always the same one. A motif that
        repeats a shorter one is left out, so fewer than ``count`` are returned.
        """
        device, first = generator.device, self.src_vocab.first_symbol_id
        sizes = torch.randint(self.min_motif, self.max_motif + 1, (count, 1), generator=generator, device=device)
        size = (count, self.max_motif)
        motifs = torch.randint(first, len(self.src_vocab), size, generator=generator, device=device)
        places = torch.arange(self.max_motif, device=device)
        motifs = motifs.masked_fill(places >= sizes, PAD_ID)
        rotations = torch.stack([_rotated(motifs, sizes, by) for by in range(self.max_motif)])  # (R, B, max_motif)
        numbers = (rotations * len(self.src_vocab) ** places).sum(dim=-1)  # (R, B), each rotation's own
        is_own = (numbers[1:] == numbers[0]) & (places[1:, None] < sizes[:, 0])  # a rotation that changes nothing
        whole = ~is_own.any(dim=0)
        first_rotation = rotations[numbers.argmin(dim=0), torch.arange(count, device=device)]
        return first_rotation[whole], motifs[whole], sizes[whole]


def _rotated(motifs: torch.Tensor, sizes: torch.Tensor, by: int) -> torch.Tensor:
    """Rotate motifs (B, M) int64 of some sizes (B, 1) to the left; PAD stays behind them."""
    places = torch.arange(motifs.shape[1], device=motifs.device)
    rotated = motifs.gather(1, (places + by) % sizes)
    return rotated.masked_fill(places >= sizes, PAD_ID)


def _period(symbols: Sequence[str]) -> int | None:
    """Return the size of the shortest motif that is shown twice in full and never left; None where there is none."""
    for size in range(1, len(symbols) // 2 + 1):
        if all(symbols[place] == symbols[place - size] for place in range(size, len(symbols))):
            return size
    return None
