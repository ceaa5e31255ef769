"""The task of a formal language: inputs of every length up to the longest trained on, and longer ones to test."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import torch

from core.config.suites import FormalLanguageConfig
from core.config.tasks import format_range
from core.tasks.data import OVERSAMPLING, add_bos_eos, draw_split, first_distinct, pad_rows, split_mask, split_of
from core.tasks.formal_languages import LANGUAGES
from core.tasks.task import Batch, Split, Task
from core.text.validation import check_input_length, check_not_empty
from core.text.vocab import PAD_ID, Vocab

_EXAMPLES = (4, 7, 10, 15)  # symbols, or one fewer


class FormalLanguage(Task):
    """Inputs of a formal language and their answers; ``core.tasks.formal_languages`` has all of them.

    Args:
        config: the preset's ``task`` section.
    """

    any_length = True

    def __init__(self, config: FormalLanguageConfig, pairs: Path | None = None) -> None:
        self.language = LANGUAGES[config.language]
        self.src_vocab = self.tgt_vocab = Vocab(self.language.symbols)
        if not config.shared_vocabulary:
            self.tgt_vocab = Vocab(self.language.answers)
        self.min_length, self.max_length = self.language.shortest, config.max_length
        self.longest_answer = config.longest_answer
        drawn = [self.language.draw(self._nearest(length), Random(length)) for length in _EXAMPLES]  # noqa: S311
        self.examples = tuple(map(" ".join, drawn))

    @property
    def sampling(self) -> str:
        """The distribution of the inputs, in a few words."""
        lengths = format_range(self.min_length, self._nearest(self.max_length))
        odd_or_even = {(1, 2): " that are odd", (2, 2): " that are even"}
        which = odd_or_even.get((self.language.shortest, self.language.step), "")
        return f"length uniform in {lengths}{which}, each input as in Delétang et al. 2023"

    @property
    def trained_lengths(self) -> range:
        """Lengths of the training inputs."""
        return range(self.min_length, self.max_length + 1, self.language.step)

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` inputs of a split with their answers; see ``Task.sample``."""
        lengths = self.trained_lengths
        (inputs,) = draw_split(lambda number: (self._draw(number, lengths, generator),), count, split=split)
        return self._with_answers(inputs, self.longest_answer)

    def sample_of_length(self, length: int, count: int, *, generator: torch.Generator) -> Batch:
        """Draw held-out inputs of one length, none of a length that no input has; see ``Task.sample_of_length``."""
        lengths = range(length, length + 1 if length == self._nearest(length) else length)
        if length in self.trained_lengths:
            inputs = self._draw(OVERSAMPLING * count, lengths, generator)
            inputs = inputs[split_mask(inputs, "test")]
        else:
            inputs = self._draw(2 * count, lengths, generator)
        pairs = self._with_answers(inputs, 2 * length)
        return first_distinct(pairs.trimmed(), count) if len(pairs) else pairs

    def tokenize(self, text: str) -> list[str]:
        """Split typed text at spaces and commas, or into characters if every symbol is one; see ``Task.tokenize``."""
        check_input_length(text)
        words = text.lower().replace(",", " ").split()
        symbols = words if max(map(len, self.src_vocab.symbols)) > 1 else list("".join(words))
        check_not_empty(symbols, example=self.examples[0])
        self.src_vocab.encode(symbols)
        self.answer(symbols)
        return symbols

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the answer; InputError if the language does not have the input."""
        return self.language.answer(symbols)

    def split_of(self, symbols: Sequence[str]) -> Split | None:
        """Return the split of an input of a training length; see ``Task.split_of``."""
        is_drawn = len(symbols) in self.trained_lengths
        return split_of(torch.tensor([self.src_vocab.encode(symbols)])) if is_drawn else None

    def gold_alignment(self, symbols: Sequence[str]) -> list[list[int]]:
        """Return where each symbol of the answer stands in the input, if it does; see ``Task.gold_alignment``."""
        if self.language.positions is None:
            return super().gold_alignment(symbols)
        return self.language.positions(symbols)

    def _nearest(self, length: int) -> int:
        """Return the longest length that inputs have up to this one, or the shortest of all."""
        first = self.language.shortest
        return max(first, length - (length - first) % self.language.step)

    def _draw(self, count: int, lengths: range, generator: torch.Generator) -> torch.Tensor:
        """Draw inputs (count, longest) int64 of lengths drawn uniformly, padded on the right; (0, 0) without any."""
        device = generator.device
        if not lengths:
            return torch.empty(0, 0, dtype=torch.int64, device=device)
        seed = torch.randint(2**62, (1,), generator=generator, device=device).item()
        rng = Random(seed)  # noqa: S311 - inputs to learn from
        drawn = [self.language.draw(rng.choice(lengths), rng) for _ in range(count)]
        return pad_rows([self.src_vocab.encode(each) for each in drawn], lengths[-1], device=device)

    def _with_answers(self, inputs: torch.Tensor, width: int) -> Batch:
        """Return inputs (B, N) int64, padded on the right, paired with their answers of at most ``width`` symbols."""
        symbols = [self.src_vocab.decode([each for each in row if each != PAD_ID]) for row in inputs.tolist()]
        answers = [self.tgt_vocab.encode(self.answer(each)) for each in symbols]
        return Batch(add_bos_eos(inputs), add_bos_eos(pad_rows(answers, width, device=inputs.device)))
