"""Sequences of digits, reversed or copied: ``4 8 2 9`` becomes ``9 2 8 4``."""

from collections.abc import Sequence

import torch

from core.errors import InputError
from core.tasks.splits import SHARES, Split, split_mask
from core.tasks.task import Batch
from core.vocab import BOS_ID, EOS_ID, PAD_ID, Vocab

MAX_TYPED_CHARACTERS = 2_000


class Digits:
    """Digit sequences of every length from ``min_length`` to ``max_length``, each length as likely.

    Data is made on the fly by tensor code, on the device of the generator it is drawn from.
    """

    def __init__(self, *, transform: str, min_length: int, max_length: int) -> None:
        self.src_vocab = self.tgt_vocab = Vocab("0123456789")
        self.transform = transform
        self.min_length = min_length
        self.max_length = max_length
        self.examples = tuple(
            " ".join(digits) for digits in ("4829", "123", "1111", "9876543210") if self._in_range(len(digits))
        ) or (" ".join("1234567890"[place % 10] for place in range(min_length)),)

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` sequences of one split with their answers; see ``Task.sample``."""
        kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        missing = count
        while missing > 0:
            digits, lengths = self._draw(int(missing / SHARES[split] * 1.1) + 16, generator)
            inside = split_mask(digits, split).nonzero().squeeze(1)[:missing]
            kept.append((digits[inside], lengths[inside]))
            missing -= len(inside)
        digits, lengths = (torch.cat(parts) for parts in zip(*kept, strict=True))
        return Batch(_framed(digits, lengths), _framed(self._answers(digits, lengths), lengths))

    def read(self, text: str) -> list[str]:
        """Split typed text into digits: ``4 8 2 9``, ``4829`` and ``4,8,2,9`` are the same."""
        if len(text) > MAX_TYPED_CHARACTERS:
            raise InputError(f"input has {len(text)} characters; at most {MAX_TYPED_CHARACTERS} are read")
        symbols = list("".join(text.replace(",", " ").split()))
        if not symbols:
            raise InputError(f"input is empty; type some digits, for example {self.examples[0]}")
        self.src_vocab.encode(symbols)
        return symbols

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the digits reversed or copied."""
        return [symbols[index] for index in self.alignment(symbols)]

    def alignment(self, symbols: Sequence[str]) -> list[int]:
        """Return the index of the input digit that each digit of the answer comes from."""
        places = list(range(len(symbols)))
        return places[::-1] if self.transform == "reverse" else places

    def _in_range(self, length: int) -> bool:
        return self.min_length <= length <= self.max_length

    def _draw(self, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw digits (count, max_length) int64, PAD behind each one's length, and lengths (count,)."""
        device, first = generator.device, self.src_vocab.first_symbol_id
        lengths = torch.randint(self.min_length, self.max_length + 1, (count,), generator=generator, device=device)
        digits = torch.randint(first, len(self.src_vocab), (count, self.max_length), generator=generator, device=device)
        places = torch.arange(self.max_length, device=device)
        return digits.masked_fill(places >= lengths[:, None], PAD_ID), lengths

    def _answers(self, digits: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        if self.transform == "copy":
            return digits
        mirrored = lengths[:, None] - 1 - torch.arange(self.max_length, device=digits.device)
        return digits.gather(1, mirrored.clamp(min=0)).masked_fill(mirrored < 0, PAD_ID)


def _framed(symbols: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Put BOS before and EOS behind each row: (B, N) to (B, N + 2) int64."""
    framed = torch.nn.functional.pad(symbols, (1, 1), value=PAD_ID)
    framed[:, 0] = BOS_ID
    return framed.scatter(1, lengths[:, None] + 1, EOS_ID)
