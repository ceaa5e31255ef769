"""Masked digits: fill in ``4 8 2 <MASK> 8 4``, where every digit stands in both halves of the input."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from core.config.counting import percent
from core.config.tasks import MaskedDigitsConfig, format_range
from core.tasks.data import OVERSAMPLING, add_bos_eos, draw_split, first_distinct, split_mask
from core.tasks.task import Batch, Split, Task
from core.text.validation import check_input_length, check_not_empty
from core.text.vocab import PAD_ID, Vocab

MASK = "<MASK>"
_DIGITS = "0123456789"
_VOCAB = Vocab((*_DIGITS, MASK))
MASK_ID = _VOCAB.encode([MASK])[0]
_EXAMPLE = "482913057648"


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """Inputs with masked tokens and, as targets, the same sequences without masks."""

    @property
    def is_scored(self) -> torch.Tensor:
        """(B, T) bool, True where the source is masked; see ``Batch.is_scored``."""
        is_masked = self.src[:, 1:] == MASK_ID  # target t stands at source position t + 1, after BOS
        return F.pad(is_masked, (0, self.tgt_out.shape[1] - is_masked.shape[1]))


class MaskedDigits(Task):
    """Digits followed by the same digits, reversed or repeated; some are masked, and the answer is all of them.

    Masked language modeling (Devlin et al. 2019, section 3.1) on sequences in which each answer is known: at most one
    of the two occurrences of a digit is masked, so the other shows what it was. A sequence of n digits has
    max(1, round(n × ``masked_share``)) masks at random positions; all maskings of a sequence are in the same split.
    Every chosen digit becomes a mask; BERT leaves 10 % of them and replaces 10 % by random tokens.

    The loss covers the whole answer, so the model also learns to copy the digits that it sees; token accuracy counts
    the masked ones only.

    Args:
        config: the preset's ``task`` section.
    """

    scored_tokens = "masked tokens"

    def __init__(self, config: MaskedDigitsConfig, pairs: Path | None = None) -> None:
        self.src_vocab = self.tgt_vocab = _VOCAB
        self.masked_share = config.masked_share
        self.min_half, self.max_half = min_half, max_half = config.min_half, config.max_half
        self.min_length, self.max_length = 2 * min_half, 2 * max_half
        sizes = {min_half, (min_half + max_half) // 2, max_half}
        self.examples = tuple(self._example(size) for size in sorted(sizes) if size <= len(_EXAMPLE)) or (
            self._example(min_half),
        )

    @property
    def sampling(self) -> str:
        """The distribution of the inputs, in a few words."""
        return (
            f"length of a half uniform in {format_range(self.min_half, self.max_half)}, each digit uniform among "
            f"{len(_DIGITS)}, second half mirrored; {percent(self.masked_share, 0)} of the digits masked, at least "
            "one, never both occurrences of one"
        )

    @property
    def trained_lengths(self) -> range:
        """Lengths of the training inputs, which are even."""
        return range(self.min_length, self.max_length + 1, 2)

    @property
    def lengths(self) -> range:
        """The lengths that are evaluated separately; only even ones have two halves."""
        return range(2, 2 * self.max_length + 1, 2)

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` masked sequences of a split; see ``Task.sample``."""
        (halves,) = draw_split(
            lambda number: (self._draw_halves(number, self.min_half, self.max_half, generator),), count, split=split
        )
        return self._masked(halves, generator)

    def sample_of_length(self, length: int, count: int, *, generator: torch.Generator) -> Batch:
        """Draw held-out masked sequences of one length; see ``Task.sample_of_length``.

        Raises:
            ValueError: the length is odd.
        """
        if length % 2:
            return super().sample_of_length(length, count, generator=generator)
        halves = self._draw_halves(OVERSAMPLING * count, length // 2, length // 2, generator)
        if length in self.trained_lengths:
            halves = halves[split_mask(halves, "test")]
        return first_distinct(self._masked(halves, generator), count)

    def tokenize(self, text: str) -> list[str]:
        """Read ``4 8 <MASK> <mask> 8 4`` or ``48<mask><mask>84``."""
        check_input_length(text)
        symbols = re.findall(rf"{MASK}|\S", text.upper().replace(",", " "))
        check_not_empty(symbols, example=self.examples[0])
        self.src_vocab.encode(symbols)
        return symbols

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the sequence without masks; [] if its halves do not match or do not show every digit."""
        partners = self._partners(len(symbols))
        filled = [symbols[partners[index]] if symbol == MASK else symbol for index, symbol in enumerate(symbols)]
        is_determined = len(symbols) % 2 == 0 and MASK not in filled
        return filled if is_determined and all(filled[index] == filled[at] for index, at in enumerate(partners)) else []

    def references(self, symbols: Sequence[str]) -> list[list[str]]:
        """Return the one correct answer, or [] if there is none; see ``answer``."""
        return [answer] if (answer := self.answer(symbols)) else []

    def gold_alignment(self, symbols: Sequence[str]) -> list[list[int]]:
        """Return the position of the other occurrence of each masked digit; [] for digits that are not masked."""
        if not self.answer(symbols):
            return []
        partners = self._partners(len(symbols))
        return [[partners[index]] if symbol == MASK else [] for index, symbol in enumerate(symbols)]

    def note(self, symbols: Sequence[str]) -> str:
        """Report an input without an answer, or of another length than the training inputs."""
        if self.answer(symbols):
            return super().note(symbols)
        return "not two mirrored halves that show every digit, so there is no reference answer"

    def _partners(self, length: int) -> list[int]:
        """Return the index of the other occurrence of each digit of a sequence of even length."""
        return [length - 1 - index for index in range(length)]

    def _example(self, size: int) -> str:
        half = [_EXAMPLE[index % len(_EXAMPLE)] for index in range(size)]
        symbols = half + half[::-1]
        masked = [size, 1][: int(self._num_masks(torch.tensor(2 * size)))]  # in the second half, and in the first
        return " ".join(MASK if index in masked else symbol for index, symbol in enumerate(symbols))

    def _num_masks(self, lengths: torch.Tensor) -> torch.Tensor:
        """Return how many tokens are masked in sequences of these lengths, int64."""
        return (lengths.double() * self.masked_share + 0.5).floor().long().clamp(min=1)

    def _draw_halves(self, count: int, shortest: int, longest: int, generator: torch.Generator) -> torch.Tensor:
        """Draw first halves (count, longest) int64, padded on the right."""
        device, first = generator.device, self.src_vocab.first_symbol_id
        sizes = torch.randint(shortest, longest + 1, (count, 1), generator=generator, device=device)
        digits = torch.randint(first, first + len(_DIGITS), (count, longest), generator=generator, device=device)
        return digits.masked_fill(torch.arange(longest, device=device) >= sizes, PAD_ID)

    def _masked(self, halves: torch.Tensor, generator: torch.Generator) -> MaskedBatch:
        """Return the sequences that begin with halves (B, N) int64, with random masks, and the same without masks."""
        device, longest = halves.device, halves.shape[1]
        sizes = (halves != PAD_ID).sum(dim=1, keepdim=True)  # (B, 1)
        positions = torch.arange(2 * longest, device=device).expand(len(halves), -1)
        in_second = 2 * sizes - 1 - positions
        first_occurrence = torch.where(positions < sizes, positions, in_second)
        is_inside = positions < 2 * sizes
        answers = halves.gather(1, first_occurrence.clamp(0, longest - 1)).masked_fill(~is_inside, PAD_ID)

        order = torch.rand(halves.shape, generator=generator, device=device).masked_fill(halves == PAD_ID, 2)
        rank = order.argsort(dim=1).argsort(dim=1)  # of each digit of the half, at random, PAD last
        is_chosen = rank < self._num_masks(2 * sizes)
        in_first_half = torch.rand(halves.shape, generator=generator, device=device) < 0.5
        digits = positions[:, :longest]
        second = 2 * sizes - 1 - digits
        masked_at = torch.where(in_first_half, digits, second)
        is_masked = torch.zeros_like(answers, dtype=torch.bool)
        rows, chosen = is_chosen.nonzero(as_tuple=True)
        is_masked[rows, masked_at[rows, chosen]] = True
        return MaskedBatch(add_bos_eos(answers.masked_fill(is_masked, MASK_ID)), add_bos_eos(answers))
