"""Addition of two numbers, digit by digit: ``2 7 + 5 8`` becomes ``8 5``."""

import re
from collections.abc import Sequence
from pathlib import Path

import torch

from core.config.tasks import AdditionConfig, format_range
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
    split_of,
)
from core.tasks.task import Batch, Breakdown, Split, Task
from core.text.validation import check_input_length, check_not_empty, quote
from core.text.vocab import PAD_ID, Vocab

PLUS = "+"
MAX_DIGITS = 15  # of a drawn number: a float64 between 0 and 1 has no more


class Addition(Task):
    """Sums of two integers of 1 to ``max_digits`` digits; their number of digits is uniform, or their value.

    A digit of the sum depends on two digits and on the carry, so no token has a single source. 27 + 58 and 58 + 27 are
    in the same split, however they are written: no test sum was trained on in the other order.

    Easy sums dominate where the number of digits is uniform: with three digits, a third of the operands have one digit,
    against 1 % of those drawn by value. ``breakdown`` measures on operands drawn by value, by the longest run of
    consecutive carries.

    Least significant digit first, a digit of the sum depends on what is written before it and on one digit of each
    operand (Lee et al. 2023); with zeros to a fixed width, these are always equally far away.
    """

    length_unit = "digits in the longer number"

    def __init__(self, config: AdditionConfig, pairs: Path | None = None) -> None:
        self.src_vocab = self.tgt_vocab = Vocab([*"0123456789", PLUS])
        self.max_digits, self.has_zeros = config.max_digits, config.zero_padding
        self.operands = config.operands
        self.reverses_operands, self.reverses_sum = config.digit_order == "reversed", config.digit_order != "plain"
        self.max_length = config.longest_source
        self.min_length = self.max_length if self.has_zeros else 3
        largest = "9" * self.max_digits
        self.examples = ("27 + 58", "4 + 9", "99 + 1", f"{largest} + {largest}")

    @property
    def sampling(self) -> str:
        """The distribution of the inputs, in a few words."""
        by_value = f"each operand uniform in {format_range(0, 10**self.max_digits - 1)}"
        if self.operands == "by-value":
            return by_value
        digits = format_range(1, self.max_digits)
        by_length = f"number of digits of each operand uniform in {digits}, then the operand uniform among those"
        return by_length if self.operands == "by-length" else f"half of the pairs: {by_value}; the others: {by_length}"

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
            operands = _draw_by_value(number, largest, generator)
            return split_key(operands), operands

        (operands,) = draw_distinct(lambda number: draw_split(draw, number, split="test")[1:], count)
        chains = longest_carry_chain(operands)
        return Breakdown(
            name="uniform operands",
            sampling=f"other held-out sequences, distinct; each operand uniform in {format_range(0, largest)}",
            pairs=self._with_sums(operands, self.max_digits),
            groups={
                f"longest carry chain {length}": (chains == length).nonzero().squeeze(1)
                for length in chains.unique().tolist()
            },
        )

    def tokenize(self, text: str) -> list[str]:
        """Read ``27+58`` or ``2 7 + 5 8``, as people write it, and return it as the model reads it.

        Zeros typed before a number are dropped.
        """
        check_input_length(text)
        typed = "".join(text.replace(",", " ").split())
        check_not_empty(typed, example=self.examples[0])
        self.src_vocab.encode(list(typed))
        operands = re.fullmatch(r"([0-9]+)\+([0-9]+)", typed)
        if not operands:
            raise InputError(f"input={quote(typed)} must be two numbers with one + between them: {self.examples[0]}")
        first, second = (operand.lstrip("0") or "0" for operand in operands.groups())
        width = max(self.max_digits, len(first), len(second)) if self.has_zeros else 0
        first, second = (operand.zfill(width)[:: self._step] for operand in (first, second))
        return [*first, PLUS, *second]

    def source_text(self, symbols: Sequence[str]) -> str:
        """Write an input as people do, most significant digit first; see ``Task.source_text``."""
        return f" {PLUS} ".join(" ".join(operand) for operand in self._operands(symbols))

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the digits of the sum, in the order and width that the model writes."""
        digits, carry = [], 0
        first, second = (operand[::-1] for operand in self._operands(symbols))
        # Digit by digit, because Python refuses to convert very long strings to int.
        for index in range(max(len(first), len(second))):
            carry, digit = divmod(int(first[index : index + 1] or 0) + int(second[index : index + 1] or 0) + carry, 10)
            digits.append(str(digit))
        if carry or self.has_zeros:
            digits.append(str(carry))
        return digits if self.reverses_sum else digits[::-1]

    def number(self, symbols: Sequence[str]) -> int | None:
        """Return the number that an output means; None if it means none."""
        digits = "".join(symbols)[:: -1 if self.reverses_sum else 1]
        return int(digits) if digits.isdecimal() and digits.isascii() else None

    def split_of(self, symbols: Sequence[str]) -> Split | None:
        """Return the split of two numbers of no more digits than in training; see ``Task.split_of``."""
        operands = self._operands(symbols)
        if max(map(len, operands)) > self.max_digits:
            return None
        return split_of(split_key(torch.tensor([[int(operand) for operand in operands]])))

    def note(self, symbols: Sequence[str]) -> str:
        """Report a number with more digits than the training inputs have."""
        digits = max(len(operand) for operand in self._operands(symbols))
        if digits <= self.max_digits:
            return ""
        trained = format_range(1, self.max_digits)
        return f"a number of {digits} digits is longer than any training input ({trained} digits)"

    @property
    def _step(self) -> int:
        """Step of a slice that turns an operand from the order people write into the model's, and back."""
        return -1 if self.reverses_operands else 1

    def _operands(self, symbols: Sequence[str]) -> list[str]:
        """Return the operands of an input as people write them, with their zeros."""
        return [operand[:: self._step] for operand in "".join(symbols).split(PLUS)]

    def _with_sums(self, operands: torch.Tensor, max_digits: int) -> Batch:
        """Return operands (B, 2) int64 of up to ``max_digits`` digits as token ids, paired with their sums."""
        plus = torch.full_like(operands[:, :1], self._id(PLUS))
        width = max(max_digits, self.max_digits) if self.has_zeros else max_digits
        first, second = (
            self._digit_ids(numbers, width, is_reversed=self.reverses_operands) for numbers in operands.unbind(dim=1)
        )
        sums = self._digit_ids(operands.sum(dim=1), width + 1, is_reversed=self.reverses_sum)
        return Batch(add_bos_eos(left_align(torch.cat([first, plus, second], dim=1))), add_bos_eos(left_align(sums)))

    def _draw(self, count: int, digits: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw split keys (count, 4) int64 and operands (count, 2) int64."""
        largest = 10**digits - 1
        if self.operands == "by-value":
            operands = _draw_by_value(count, largest, generator)
        else:
            operands = draw_numbers((count, 2), largest=largest, generator=generator)
        if self.operands == "mixed":
            is_by_value = torch.rand(count, 1, generator=generator, device=generator.device) < 0.5
            operands = torch.where(is_by_value, _draw_by_value(count, largest, generator), operands)
        return split_key(operands), operands

    def _digit_ids(self, numbers: torch.Tensor, width: int, *, is_reversed: bool) -> torch.Tensor:
        """Return numbers (B,) int64 as ids of their digits (B, width), with PAD for leading zeros if they have none."""
        powers = 10 ** torch.arange(width - 1, -1, -1, device=numbers.device)
        ids = numbers[:, None] // powers % 10 + self._id("0")
        if not self.has_zeros:
            is_leading_zero = (numbers[:, None] < powers) & (powers > 1)
            ids = ids.masked_fill(is_leading_zero, PAD_ID)
        return ids.flip(1) if is_reversed else ids

    def _id(self, symbol: str) -> int:
        return self.src_vocab.encode([symbol])[0]


def split_key(operands: torch.Tensor) -> torch.Tensor:
    """Return what decides the split of operands (B, 2) int64, (B, 4) int64: the same in both orders.

    The first two columns hold the last nine digits, which the hash multiplies without overflow, plus 1, so that none is
    the id of PAD. The other two hold the digits before them: 0, which changes no hash, if there are none.
    """
    ordered = operands.sort(dim=1).values
    return torch.cat([ordered % 10**9 + 1, ordered // 10**9], dim=1)


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


def _draw_by_value(count: int, largest: int, generator: torch.Generator) -> torch.Tensor:
    """Draw operands uniform in 0 to ``largest``, (count, 2) int64."""
    return torch.randint(0, largest + 1, (count, 2), generator=generator, device=generator.device)
