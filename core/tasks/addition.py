"""Addition of two numbers, digit by digit: ``2 7 + 5 8`` becomes ``8 5``."""

import re
from collections.abc import Sequence

import torch

from core.config.tasks import format_range
from core.storage.errors import InputError
from core.tasks.data import (
    OVERSAMPLING,
    add_bos_eos,
    draw_distinct,
    draw_numbers,
    draw_split,
    first_distinct,
    left_align,
    split_mask,
)
from core.tasks.task import Batch, Breakdown, Split, Task
from core.text.validation import check_input_length, check_not_empty, quote
from core.text.vocab import PAD_ID, Vocab

PLUS = "+"
MAX_DIGITS = 15  # of a drawn number: a float64 between 0 and 1 has no more


class Addition(Task):
    """Sums of two integers of 1 to ``max_digits`` digits; the number of digits of each is uniform.

    A digit of the sum depends on two digits and on the carry, so no token has a single source. 27 + 58 and 58 + 27 are
    in the same split: no test sum was trained on in the other order.

    Easy sums dominate these draws: with three digits, a third of the operands have one digit, against 1 % of uniformly
    drawn ones. ``breakdown`` measures on uniform operands, by the longest run of consecutive carries.
    """

    length_unit = "digits in the longer number"

    def __init__(self, *, max_digits: int) -> None:
        self.src_vocab = self.tgt_vocab = Vocab([*"0123456789", PLUS])
        self.max_digits = max_digits
        self.min_length, self.max_length = 3, 2 * max_digits + 1
        largest = "9" * max_digits
        self.examples = ("27 + 58", "4 + 9", "99 + 1", f"{largest} + {largest}")

    @property
    def sampling(self) -> str:
        """See ``Task.sampling``."""
        digits = format_range(1, self.max_digits)
        return f"number of digits of each operand uniform in {digits}, then the operand uniform among those"

    @property
    def trained_lengths(self) -> range:
        """Digits in the longer number."""
        return range(1, self.max_digits + 1)

    @property
    def lengths(self) -> range:
        """Digits in the longer number, up to twice those of the training inputs."""
        return range(1, min(2 * self.max_digits, MAX_DIGITS) + 1)

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` sums of a split; see ``Task.sample``."""
        _, operands = draw_split(lambda number: self._draw(number, self.max_digits, generator), count, split=split)
        return self._with_sums(operands, self.max_digits)

    def sample_of_length(self, length: int, count: int, *, generator: torch.Generator) -> Batch:
        """Draw held-out sums whose longer number has ``length`` digits; see ``Task.sample_of_length``."""
        keys, operands = self._draw(OVERSAMPLING * count, length, generator)
        fits = operands.amax(dim=1) >= (10 ** (length - 1) if length > 1 else 0)
        if length in self.trained_lengths:
            fits &= split_mask(keys, "test")
        return first_distinct(self._with_sums(operands[fits], length), count)

    def breakdown(self, count: int, *, generator: torch.Generator) -> Breakdown:
        """Draw test sums of uniform operands, grouped by their longest carry chain; see ``Task.breakdown``."""
        largest = 10**self.max_digits - 1

        def draw(number: int) -> tuple[torch.Tensor, ...]:
            size = (number, 2)
            operands = torch.randint(0, largest + 1, size, generator=generator, device=generator.device)
            return split_key(operands), operands

        (operands,) = draw_distinct(lambda number: draw_split(draw, number, split="test")[1:], count)
        chains = longest_carry_chain(operands)
        return Breakdown(
            name="uniform operands",
            sampling=f"each operand uniform in {format_range(0, largest)}",
            pairs=self._with_sums(operands, self.max_digits),
            groups={
                f"longest carry chain {length}": (chains == length).nonzero().squeeze(1)
                for length in chains.unique().tolist()
            },
        )

    def tokenize(self, text: str) -> list[str]:
        """Read ``27+58`` or ``2 7 + 5 8``; leading zeros are dropped."""
        check_input_length(text)
        typed = "".join(text.replace(",", " ").split())
        check_not_empty(typed, example=self.examples[0])
        self.src_vocab.encode(list(typed))
        operands = re.fullmatch(r"([0-9]+)\+([0-9]+)", typed)
        if not operands:
            raise InputError(f"input={quote(typed)} must be two numbers with one + between them: {self.examples[0]}")
        first, second = (operand.lstrip("0") or "0" for operand in operands.groups())
        return [*first, PLUS, *second]

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the digits of the sum."""
        digits, carry = [], 0
        first, second = (operand[::-1] for operand in "".join(symbols).split(PLUS))
        # Digit by digit, because Python refuses to convert very long strings to int.
        for index in range(max(len(first), len(second))):
            carry, digit = divmod(int(first[index : index + 1] or 0) + int(second[index : index + 1] or 0) + carry, 10)
            digits.append(str(digit))
        return (digits + ["1"] * carry)[::-1]

    def note(self, symbols: Sequence[str]) -> str:
        """Report a number with more digits than the training inputs have."""
        digits = max(len(operand) for operand in "".join(symbols).split(PLUS))
        if digits <= self.max_digits:
            return ""
        trained = format_range(1, self.max_digits)
        return f"a number of {digits} digits is longer than any training input ({trained} digits)"

    def _with_sums(self, operands: torch.Tensor, max_digits: int) -> Batch:
        """Return operands (B, 2) int64 of up to ``max_digits`` digits as token ids, paired with their sums."""
        plus = torch.full_like(operands[:, :1], self._id(PLUS))
        parts = [self._digit_ids(operands[:, 0], max_digits), plus, self._digit_ids(operands[:, 1], max_digits)]
        sums = self._digit_ids(operands.sum(dim=1), max_digits + 1)
        return Batch(add_bos_eos(left_align(torch.cat(parts, dim=1))), add_bos_eos(left_align(sums)))

    def _draw(self, count: int, digits: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw split keys and operands, (count, 2) int64 each."""
        operands = draw_numbers((count, 2), largest=10**digits - 1, generator=generator)
        return split_key(operands), operands

    def _digit_ids(self, numbers: torch.Tensor, width: int) -> torch.Tensor:
        """Return numbers (B,) int64 as ids of their digits (B, width), PAD before the first digit."""
        powers = 10 ** torch.arange(width - 1, -1, -1, device=numbers.device)
        ids = numbers[:, None] // powers % 10 + self._id("0")
        is_leading_zero = (numbers[:, None] < powers) & (powers > 1)
        return ids.masked_fill(is_leading_zero, PAD_ID)

    def _id(self, symbol: str) -> int:
        return self.src_vocab.encode([symbol])[0]


def split_key(operands: torch.Tensor) -> torch.Tensor:
    """Return what decides the split of operands (B, 2) int64: the same in both orders, and above 0, the id of PAD."""
    return operands.sort(dim=1).values + 1


def longest_carry_chain(operands: torch.Tensor) -> torch.Tensor:
    """Return the longest run of consecutive digit positions that produce a carry when operands (B, 2) are added, (B,).

    0 if there is no carry; 27 + 58 has one (7 + 8), 999 + 1 a chain of three.
    """
    first, second = operands.unbind(dim=1)
    carry = run = longest = torch.zeros_like(first)
    while bool((first > 0).any() or (second > 0).any()):
        carry = (first % 10 + second % 10 + carry) // 10
        run = (run + 1) * carry  # a position without a carry ends the run
        longest = torch.maximum(longest, run)
        first, second = first // 10, second // 10
    return longest
