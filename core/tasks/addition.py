"""Sums of two numbers, digit by digit: ``2 7 + 5 8`` becomes ``8 5``."""

import re
from collections.abc import Sequence

import torch

from core.config.tasks import format_range
from core.storage.errors import InputError
from core.tasks.drawing import draw_numbers, draw_split, framed, pushed_left
from core.tasks.splits import Split, split_mask
from core.tasks.task import DRAWN_PER_KEPT, Batch, Task, first_distinct
from core.text.task_input import check_length, check_not_empty, shortened
from core.text.vocab import PAD_ID, Vocab

PLUS = "+"
MOST_DIGITS = 15  # of a number drawn: a random share has no more


class Addition(Task):
    """Sums of two whole numbers of 1 to ``max_digits`` digits, each number of digits as likely.

    A digit of a sum comes from two digits and from what is carried, so no token has a single source. 27 + 58 and
    58 + 27 are in the same split: no sum that is tested was trained on the other way round.
    """

    length_unit = "digits in the longer number"

    def __init__(self, *, max_digits: int) -> None:
        self.src_vocab = self.tgt_vocab = Vocab([*"0123456789", PLUS])
        self.max_digits = max_digits
        self.min_length, self.max_length = 3, 2 * max_digits + 1
        largest = "9" * max_digits
        self.examples = ("27 + 58", "4 + 9", "99 + 1", f"{largest} + {largest}")

    @property
    def trained_lengths(self) -> range:
        """Digits in the longer number."""
        return range(1, self.max_digits + 1)

    @property
    def lengths(self) -> range:
        """Digits in the longer number, up to twice those trained on."""
        return range(1, min(2 * self.max_digits, MOST_DIGITS) + 1)

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` sums of one split; see ``Task.sample``."""
        _, numbers = draw_split(lambda number: self._draw(number, self.max_digits, generator), count, split=split)
        return self._answered(numbers, self.max_digits)

    def of_length(self, length: int, count: int, *, generator: torch.Generator) -> Batch:
        """Draw sums whose longer number has ``length`` digits; see ``Task.of_length``."""
        deciding, numbers = self._draw(DRAWN_PER_KEPT * count, length, generator)
        kept = numbers.amax(dim=1) >= (10 ** (length - 1) if length > 1 else 0)
        if length in self.trained_lengths:
            kept &= split_mask(deciding, "test")
        return first_distinct(self._answered(numbers[kept], length), count)

    def read(self, text: str) -> list[str]:
        """Read ``27+58`` or ``2 7 + 5 8``; zeros that lead a number are dropped."""
        check_length(text)
        typed = "".join(text.replace(",", " ").split())
        check_not_empty(typed, example=self.examples[0])
        self.src_vocab.encode(list(typed))
        numbers = re.fullmatch(r"([0-9]+)\+([0-9]+)", typed)
        if not numbers:
            raise InputError(
                f"input={shortened(typed)} must be two numbers with one + between them: {self.examples[0]}"
            )
        first, second = (number.lstrip("0") or "0" for number in numbers.groups())
        return [*first, PLUS, *second]

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the digits of the sum."""
        digits, carry = [], 0
        first, second = (number[::-1] for number in "".join(symbols).split(PLUS))
        # Digit by digit, as by hand: what is typed may have more digits than Python makes an int of.
        for place in range(max(len(first), len(second))):
            carry, digit = divmod(int(first[place : place + 1] or 0) + int(second[place : place + 1] or 0) + carry, 10)
            digits.append(str(digit))
        return (digits + ["1"] * carry)[::-1]

    def note(self, symbols: Sequence[str]) -> str:
        """Say if a number has more digits than those trained on."""
        digits = max(len(number) for number in "".join(symbols).split(PLUS))
        if digits <= self.max_digits:
            return ""
        return f"a number of {digits} digits is longer than any it was trained on ({format_range(1, self.max_digits)} digits)"

    def _answered(self, numbers: torch.Tensor, digits: int) -> Batch:
        """Return pairs of numbers (B, 2) int64 of up to so many digits, written out, with their sums."""
        plus = torch.full_like(numbers[:, :1], self._ids(PLUS)[0])
        parts = [self._digits(numbers[:, 0], digits), plus, self._digits(numbers[:, 1], digits)]
        answers = self._digits(numbers.sum(dim=1), digits + 1)
        return Batch(framed(pushed_left(torch.cat(parts, dim=1))), framed(pushed_left(answers)))

    def _draw(self, count: int, digits: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw pairs of numbers (count, 2) int64; before them, what decides the split: the same in either order."""
        numbers = draw_numbers((count, 2), largest=10**digits - 1, generator=generator)
        return numbers.sort(dim=1).values + 1, numbers  # plus one: the hash does not tell a 0 from PAD

    def _digits(self, numbers: torch.Tensor, width: int) -> torch.Tensor:
        """Write numbers (B,) int64 as ids of their digits (B, width), PAD in front."""
        powers = 10 ** torch.arange(width - 1, -1, -1, device=numbers.device)
        ids = numbers[:, None] // powers % 10 + self._ids("0")[0]
        is_leading_zero = (numbers[:, None] < powers) & (powers > 1)
        return ids.masked_fill(is_leading_zero, PAD_ID)

    def _ids(self, symbol: str) -> list[int]:
        return self.src_vocab.encode([symbol])
