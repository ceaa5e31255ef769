"""Sequences of symbols, reversed or copied: what the tasks of digits, numbers and words have in common."""

from collections.abc import Sequence

import torch

from core.errors import InputError
from core.tasks.splits import SHARES, Split, split_mask
from core.tasks.task import Batch
from core.vocab import BOS_ID, EOS_ID, PAD_ID, Vocab

MAX_TYPED_CHARACTERS = 2_000


class SymbolTask:
    """Sequences of every length from ``min_length`` to ``max_length``, each length and each symbol as likely.

    Data is made on the fly by tensor code, on the device of the generator it is drawn from. A subclass says how typed
    text is split, and may change what is trained on: a mistake, say, that is to be looked at.

    Args:
        vocab: of both sides.
        transform: "reverse" or "copy".
        candidates: inputs to offer as examples, as typed; those of other lengths are left out.
        eos_in_targets: whether targets end with EOS.
    """

    def __init__(
        self,
        vocab: Vocab,
        *,
        transform: str,
        min_length: int,
        max_length: int,
        candidates: Sequence[str],
        eos_in_targets: bool = True,
    ) -> None:
        self.src_vocab = self.tgt_vocab = vocab
        self.transform = transform
        self.min_length = min_length
        self.max_length = max_length
        self.eos_in_targets = eos_in_targets
        fitting = (text for text in candidates if min_length <= len(self.split_text(text)) <= max_length)
        self.examples = tuple(fitting) or (self._made_up_example(),)

    def split_text(self, text: str) -> list[str]:
        """Split what a person typed where there are spaces or commas."""
        return text.replace(",", " ").split()

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` sequences of one split with their answers; see ``Task.sample``."""
        kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        missing = count
        while missing > 0:
            symbols, lengths = self._draw(int(missing / SHARES[split] * 1.1) + 16, generator)
            inside = split_mask(symbols, split).nonzero().squeeze(1)[:missing]
            kept.append((symbols[inside], lengths[inside]))
            missing -= len(inside)
        symbols, lengths = (torch.cat(parts) for parts in zip(*kept, strict=True))
        if split == "train":
            symbols = self.as_trained_on(symbols, generator)
        answers = self._answers(symbols, lengths)
        return Batch(_framed(symbols, lengths), _framed(answers, lengths, has_eos=self.eos_in_targets))

    def as_trained_on(self, symbols: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Return training sequences (B, N) int64 as the model gets to see them: here, as they were drawn."""
        return symbols

    def read(self, text: str) -> list[str]:
        """Split typed text into symbols; see ``Task.read``."""
        if len(text) > MAX_TYPED_CHARACTERS:
            raise InputError(f"input has {len(text)} characters; at most {MAX_TYPED_CHARACTERS} are read")
        symbols = self.split_text(text)
        if not symbols:
            raise InputError(f"input is empty; type something like: {self.examples[0]}")
        self.src_vocab.encode(symbols)
        return symbols

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the symbols reversed or copied."""
        return [symbols[index] for index in self.alignment(symbols)]

    def alignment(self, symbols: Sequence[str]) -> list[int]:
        """Return the index of the input symbol that each symbol of the answer comes from."""
        places = list(range(len(symbols)))
        return places[::-1] if self.transform == "reverse" else places

    def _made_up_example(self) -> str:
        symbols = self.src_vocab.symbols
        return " ".join(symbols[(place + 1) % len(symbols)] for place in range(self.min_length))

    def _draw(self, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw symbols (count, max_length) int64, PAD behind each one's length, and lengths (count,)."""
        device, first = generator.device, self.src_vocab.first_symbol_id
        lengths = torch.randint(self.min_length, self.max_length + 1, (count,), generator=generator, device=device)
        size = (count, self.max_length)
        symbols = torch.randint(first, len(self.src_vocab), size, generator=generator, device=device)
        places = torch.arange(self.max_length, device=device)
        return symbols.masked_fill(places >= lengths[:, None], PAD_ID), lengths

    def _answers(self, symbols: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        if self.transform == "copy":
            return symbols
        mirrored = lengths[:, None] - 1 - torch.arange(self.max_length, device=symbols.device)
        return symbols.gather(1, mirrored.clamp(min=0)).masked_fill(mirrored < 0, PAD_ID)


def _framed(symbols: torch.Tensor, lengths: torch.Tensor, *, has_eos: bool = True) -> torch.Tensor:
    """Put BOS before and EOS behind each row: (B, N) to (B, N + 2) int64."""
    framed = torch.nn.functional.pad(symbols, (1, 1), value=PAD_ID)
    framed[:, 0] = BOS_ID
    return framed.scatter(1, lengths[:, None] + 1, EOS_ID) if has_eos else framed
