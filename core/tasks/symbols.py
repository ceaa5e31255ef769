"""Sequences of symbols whose answer is made of the same symbols: what digits, numbers and words have in common."""

from collections.abc import Sequence

import torch

from core.tasks.drawing import draw_split, framed
from core.tasks.splits import Split, split_mask
from core.tasks.task import DRAWN_PER_KEPT, Batch, Task, first_distinct
from core.tasks.transforms import BY_KIND, gathered, source_places
from core.text.task_input import check_length, check_not_empty
from core.text.vocab import PAD_ID, Vocab


class SymbolTask(Task):
    """Sequences of every length from ``min_length`` to ``max_length``, each length and each symbol as likely.

    Data is made on the fly by tensor code, on the device of the generator it is drawn from. A subclass says how typed
    text is split, and may change what is trained on: a mistake, say, that is to be looked at.

    Args:
        vocab: of both sides.
        transform: one that ``transforms.source_places`` knows.
        candidates: inputs to offer as examples, as typed; those of other lengths are left out.
        eos_in_targets: whether targets end with EOS.
    """

    any_length = True

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
        (symbols,) = draw_split(
            lambda number: (self._draw(number, self.min_length, self.max_length, generator),), count, split=split
        )
        if split == "train":
            symbols = self.as_trained_on(symbols, generator)
        return self._answered(symbols)

    def of_length(self, length: int, count: int, *, generator: torch.Generator) -> Batch:
        """Draw pairs with inputs of one length; see ``Task.of_length``."""
        symbols = self._draw(DRAWN_PER_KEPT * count, length, length, generator)
        if length in self.trained_lengths:
            symbols = symbols[split_mask(symbols, "test")]
        return first_distinct(self._answered(symbols), count)

    def as_trained_on(self, symbols: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Return training sequences (B, N) int64 as the model gets to see them: here, as they were drawn."""
        return symbols

    def read(self, text: str) -> list[str]:
        """Split typed text into symbols; see ``Task.read``."""
        check_length(text)
        symbols = self.split_text(text)
        check_not_empty(symbols, example=self.examples[0])
        self.src_vocab.encode(symbols)
        return symbols

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the symbols in the order of the answer."""
        return [symbols[index] for index in self.alignment(symbols)]

    def alignment(self, symbols: Sequence[str]) -> list[int]:
        """Return the index of the input symbol that each symbol of the answer comes from."""
        places = source_places(self.transform, torch.tensor([self.src_vocab.encode(symbols)]))
        return [place for place in places[0].tolist() if place >= 0]

    def sources(self, symbols: Sequence[str]) -> list[list[int]]:
        """Return the indices of all input symbols that each one of the answer may come from; see ``Task.sources``."""
        if self.transform not in BY_KIND:
            return super().sources(symbols)
        return [
            [place for place, symbol in enumerate(symbols) if symbol == symbols[aligned]]
            for aligned in self.alignment(symbols)
        ]

    def _made_up_example(self) -> str:
        symbols = self.src_vocab.symbols
        return " ".join(symbols[(place + 1) % len(symbols)] for place in range(self.min_length))

    def _answered(self, symbols: torch.Tensor) -> Batch:
        """Return sequences (B, N) int64, PAD behind each, with their answers."""
        answers = gathered(symbols, source_places(self.transform, symbols))
        return Batch(framed(symbols), framed(answers, has_eos=self.eos_in_targets))

    def _draw(self, count: int, shortest: int, longest: int, generator: torch.Generator) -> torch.Tensor:
        """Draw sequences (count, longest) int64, PAD behind each."""
        device, first = generator.device, self.src_vocab.first_symbol_id
        lengths = torch.randint(shortest, longest + 1, (count, 1), generator=generator, device=device)
        symbols = torch.randint(first, len(self.src_vocab), (count, longest), generator=generator, device=device)
        return symbols.masked_fill(torch.arange(longest, device=device) >= lengths, PAD_ID)
