"""Sums of two numbers, digit by digit: ``2 7 + 5 8`` becomes ``8 5``."""

import re
from collections.abc import Sequence

import torch

from core.errors import InputError
from core.task_sections import span
from core.tasks.drawing import draw_numbers, draw_split, framed, pushed_left
from core.tasks.splits import Split
from core.tasks.task import Batch, Task
from core.tasks.typed import check_length, check_not_empty, shortened
from core.vocab import PAD_ID, Vocab

PLUS = "+"


class Addition(Task):
    """Sums of two whole numbers of 1 to ``max_digits`` digits, each number of digits as likely.

    A digit of a sum comes from two digits and from what is carried, so no token has a single source. 27 + 58 and
    58 + 27 are in the same split: no sum that is tested was trained on the other way round.
    """

    def __init__(self, *, max_digits: int) -> None:
        self.src_vocab = self.tgt_vocab = Vocab([*"0123456789", PLUS])
        self.max_digits = max_digits
        self.min_length, self.max_length = 3, 2 * max_digits + 1
        largest = "9" * max_digits
        self.examples = ("27 + 58", "4 + 9", "99 + 1", f"{largest} + {largest}")

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` sums of one split; see ``Task.sample``."""
        _, numbers = draw_split(lambda number: self._draw(number, generator), count, split=split)
        plus = torch.full_like(numbers[:, :1], self._ids(PLUS)[0])
        parts = [self._digits(numbers[:, 0], self.max_digits), plus, self._digits(numbers[:, 1], self.max_digits)]
        answers = self._digits(numbers.sum(dim=1), self.max_digits + 1)
        return Batch(framed(pushed_left(torch.cat(parts, dim=1))), framed(pushed_left(answers)))

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
        return f"a number of {digits} digits is longer than any it was trained on ({span(1, self.max_digits)} digits)"

    def _draw(self, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw pairs of numbers (count, 2) int64; before them, what decides the split: the same in either order."""
        numbers = draw_numbers((count, 2), largest=10**self.max_digits - 1, generator=generator)
        return numbers.sort(dim=1).values + 1, numbers  # plus one: the hash does not tell a 0 from PAD

    def _digits(self, numbers: torch.Tensor, width: int) -> torch.Tensor:
        """Write numbers (B,) int64 as ids of their digits (B, width), PAD in front."""
        powers = 10 ** torch.arange(width - 1, -1, -1, device=numbers.device)
        ids = numbers[:, None] // powers % 10 + self._ids("0")[0]
        is_leading_zero = (numbers[:, None] < powers) & (powers > 1)
        return ids.masked_fill(is_leading_zero, PAD_ID)

    def _ids(self, symbol: str) -> list[int]:
        return self.src_vocab.encode([symbol])
