"""Recall of what followed: ``c a d b . a`` becomes ``a d b .``, and of pairs, ``a 4 b 3 c 6 b`` becomes ``b 3``.

The first is what an induction head does (Olsson et al. 2022, https://arxiv.org/abs/2209.11895). The second is the
multi-query associative recall (MQAR) of Arora et al. 2023, https://arxiv.org/abs/2312.04927, whose queries are the end
of the source here, because a sequence-to-sequence model answers after it has read its source.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import count, islice, product
from pathlib import Path
from string import ascii_lowercase

import torch

from core.config.tasks import InductionConfig, RecallConfig, format_range
from core.storage.errors import InputError
from core.tasks.data import OVERSAMPLING, add_bos_eos, draw_split, first_distinct, left_align, split_mask, split_of
from core.tasks.task import Batch, Split, Task
from core.text.validation import check_input_length, check_not_empty, quote
from core.text.vocab import PAD_ID, Vocab

STOP = "."


class Induction(Task):
    """Distinct letters up to a full stop, then one of them again; the answer repeats the letters from that one on.

    After the first, every step writes the token that followed the token it reads. The full stop ends the answer, so the
    model need not count. Inputs with the same letters in the same order are in one split, whichever is repeated.

    Args:
        config: the preset's ``task`` section.
    """

    def __init__(self, config: InductionConfig, pairs: Path | None = None) -> None:
        self.config = config
        self.letters = tuple(islice(_letters(), config.num_letters))
        self.src_vocab = self.tgt_vocab = Vocab((*self.letters, STOP))
        self._pattern = _pattern(config.num_letters)
        self.min_length, self.max_length = config.min_letters + 2, config.max_letters + 2
        sizes = dict.fromkeys((config.min_letters, config.max_letters))
        self.examples = tuple(" ".join(self._example(size)) for size in sizes)

    @property
    def sampling(self) -> str:
        """The distribution of the inputs, in a few words."""
        sizes = format_range(self.config.min_letters, self.config.max_letters)
        return (
            f"number of letters uniform in {sizes}, distinct letters uniform among {len(self.letters)}, the repeated "
            "one uniform among those of the input"
        )

    @property
    def lengths(self) -> range:
        """Input lengths up to twice as many letters as in training, or to all letters."""
        return range(3, min(2 * self.config.max_letters, len(self.letters)) + 3)

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` inputs of a split; see ``Task.sample``."""
        fewest, most = self.config.min_letters, self.config.max_letters
        return self._with_answers(
            *draw_split(lambda number: self._draw(number, fewest, most, generator), count, split=split)
        )

    def sample_of_length(self, length: int, count: int, *, generator: torch.Generator) -> Batch:
        """Draw held-out inputs of one length; see ``Task.sample_of_length``."""
        letters, repeated = self._draw(OVERSAMPLING * count, length - 2, length - 2, generator)
        if length in self.trained_lengths:
            held_out = split_mask(letters, "test")
            letters, repeated = letters[held_out], repeated[held_out]
        return first_distinct(self._with_answers(letters, repeated), count)

    def tokenize(self, text: str) -> list[str]:
        """Read ``c a d b . a``, ``cadb.a`` or ``C, A, D, B. A``.

        Raises:
            InputError: the text is not distinct letters, a full stop and one of the letters.
        """
        check_input_length(text)
        symbols = self._pattern.findall(text.lower())
        check_not_empty(symbols, example=self.examples[0])
        self.src_vocab.encode(symbols)
        typed, letters = f"input={quote(' '.join(symbols))}", symbols[:-2]
        if symbols[-2:-1] != [STOP] or symbols[-1] not in letters or STOP in letters:
            raise InputError(f"{typed} must be letters, a full stop and one of the letters, such as {self.examples[0]}")
        for letter in letters:
            if letters.count(letter) > 1:
                raise InputError(f"{typed} has {letter} more than once before the full stop; letters must be distinct")
        return symbols

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the letters from the repeated one on, with the full stop."""
        return [*symbols[symbols.index(symbols[-1]) : -1]]

    def gold_alignment(self, symbols: Sequence[str]) -> list[list[int]]:
        """Return the positions of the repeated letter, both, and of what follows; see ``Task.gold_alignment``."""
        first, last = symbols.index(symbols[-1]), len(symbols) - 1
        return [[first, last], *([position] for position in range(first + 1, last))]

    def split_of(self, symbols: Sequence[str]) -> Split | None:
        """Return the split of an input's letters; see ``Task.split_of``."""
        if len(symbols) not in self.trained_lengths:
            return None
        return split_of(torch.tensor([self.src_vocab.encode(symbols[:-2])]))

    def _example(self, size: int) -> list[str]:
        """Return letters out of order, and the second of them again."""
        letters = self.letters[:size]
        letters = (*letters[::3], *letters[1::3], *letters[2::3])
        return [*letters, STOP, letters[1]]

    def _draw(self, count: int, fewest: int, most: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        """Draw letters (B, N) int64, padded on the right, and the position of the one to repeat (B, 1) int64."""
        device = generator.device
        sizes = torch.randint(fewest, most + 1, (count, 1), generator=generator, device=device)
        letters = torch.rand(count, len(self.letters), generator=generator, device=device).argsort(dim=1)[:, :most]
        is_absent = torch.arange(most, device=device) >= sizes
        fraction = torch.rand(count, 1, generator=generator, device=device, dtype=torch.float64)
        return (letters + self.src_vocab.first_symbol_id).masked_fill(is_absent, PAD_ID), (fraction * sizes).long()

    def _with_answers(self, letters: torch.Tensor, repeated: torch.Tensor) -> Batch:
        """Return letters (B, N) int64 with that at position (B, 1) int64 repeated, and the letters from it on."""
        (stop,) = self.src_vocab.encode([STOP])
        stopped = left_align(torch.cat([letters, torch.full_like(repeated, stop)], dim=1))  # (B, N + 1)
        inputs = left_align(torch.cat([stopped, letters.gather(1, repeated)], dim=1))
        positions = repeated + torch.arange(stopped.shape[1], device=letters.device)
        is_past = positions >= stopped.shape[1]
        answers = stopped.gather(1, positions.masked_fill(is_past, 0)).masked_fill(is_past, PAD_ID)
        return Batch(add_bos_eos(inputs), add_bos_eos(answers))


class Recall(Task):
    """Pairs of a key, a letter, and its value, a number; then keys that were paired, whose values are the answer.

    The keys of an input are distinct, and so are its queries. What the keys mean is held out: inputs with the same
    values for the same keys are in one split, in any order and with any queries.

    Args:
        config: the preset's ``task`` section.
    """

    def __init__(self, config: RecallConfig, pairs: Path | None = None) -> None:
        self.config = config
        self.keys = tuple(islice(_letters(), config.num_keys))
        self.values = tuple(str(value) for value in range(config.num_values))
        self.src_vocab = self.tgt_vocab = Vocab((*self.keys, *self.values))
        self._pattern = _pattern(config.num_keys, config.num_values)
        self.min_length, self.max_length = (
            2 * pairs + config.queries for pairs in (config.min_pairs, config.max_pairs)
        )
        self.examples = tuple(self._example(pairs) for pairs in dict.fromkeys((config.min_pairs, config.max_pairs)))

    @property
    def sampling(self) -> str:
        """The distribution of the inputs, in a few words."""
        pairs = format_range(self.config.min_pairs, self.config.max_pairs)
        return (
            f"number of pairs uniform in {pairs}, distinct keys uniform among {len(self.keys)}, each value uniform "
            f"among {len(self.values)}, {self.config.queries} distinct of the keys queried"
        )

    @property
    def trained_lengths(self) -> range:
        """Lengths of the training inputs, which differ by the two symbols of a pair."""
        return range(self.min_length, self.max_length + 1, 2)

    @property
    def lengths(self) -> range:
        """Input lengths up to twice as many pairs as in training, or to a pair for each key."""
        longest = min(2 * self.config.max_pairs, len(self.keys))
        return range(3 * self.config.queries, 2 * longest + self.config.queries + 1, 2)

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` inputs of a split; see ``Task.sample``."""
        shortest, longest = self.config.min_pairs, self.config.max_pairs
        _, keys, values, queried = draw_split(
            lambda number: self._draw(number, shortest, longest, generator), count, split=split
        )
        return self._with_answers(keys, values, queried)

    def sample_of_length(self, length: int, count: int, *, generator: torch.Generator) -> Batch:
        """Draw held-out inputs of one length; see ``Task.sample_of_length``."""
        pairs = (length - self.config.queries) // 2
        meanings, *rows = self._draw(OVERSAMPLING * count, pairs, pairs, generator)
        if length in self.trained_lengths:
            held_out = split_mask(meanings, "test")
            rows = [row[held_out] for row in rows]
        return first_distinct(self._with_answers(*rows), count)

    def tokenize(self, text: str) -> list[str]:
        """Read ``a 4 b 3 b``, ``a4b3b`` or ``A 4, B 3, B``.

        Raises:
            InputError: a key has two values, a query has none, or the text is not pairs followed by queries.
        """
        check_input_length(text)
        symbols = self._pattern.findall(text.lower())
        check_not_empty(symbols, example=self.examples[0])
        self.src_vocab.encode(symbols)
        self._check(symbols)
        return symbols

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the queried keys, each with its value, or the values alone."""
        return [symbols[positions[0]] for positions in self.gold_alignment(symbols)]

    def gold_alignment(self, symbols: Sequence[str]) -> list[list[int]]:
        """Return the positions of each queried key, both, and that of its value; see ``Task.gold_alignment``."""
        end = self._num_paired(symbols)
        key_of = {symbols[key]: key for key in range(0, end, 2)}
        gold = []
        for at in range(end, len(symbols)):
            key = key_of[symbols[at]]
            gold += [[key + 1]] if self.config.answer == "values" else [[key, at], [key + 1]]
        return gold

    def split_of(self, symbols: Sequence[str]) -> Split | None:
        """Return the split of what an input's keys mean; see ``Task.split_of``."""
        end = self._num_paired(symbols)
        if len(symbols) not in self.trained_lengths or len(symbols) - end != self.config.queries:
            return None
        keys, values = ([names.index(each) for each in symbols[at:end:2]] for at, names in enumerate(self._names))
        return split_of(self._meanings(torch.tensor([keys]), torch.tensor([values])))

    def note(self, symbols: Sequence[str]) -> str:
        """Report another number of pairs or queries than in the training inputs."""
        end, config = self._num_paired(symbols), self.config
        if len(symbols) - end != config.queries:
            return f"keys to recall: {len(symbols) - end}; the training inputs have {config.queries}"
        if config.min_pairs <= end // 2 <= config.max_pairs:
            return ""
        return f"pairs: {end // 2}; the training inputs have {format_range(config.min_pairs, config.max_pairs)}"

    @property
    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.keys, self.values

    def _example(self, pairs: int) -> str:
        """Return an input whose queries begin with the second key."""
        keys = self.keys[:pairs]
        values = (self.values[(4 + 9 * at) % len(self.values)] for at in range(pairs))
        queries = ((keys * 2)[at] for at in range(1, self.config.queries + 1))
        return " ".join((*(f"{key} {value}" for key, value in zip(keys, values, strict=True)), *queries))

    def _num_paired(self, symbols: Sequence[str]) -> int:
        """Return how many symbols belong to pairs: those up to the last value."""
        return next((at for at in range(len(symbols), 0, -1) if symbols[at - 1] in self.values), 0)

    def _check(self, symbols: list[str]) -> None:
        end = self._num_paired(symbols)
        paired, values, queries = symbols[:end:2], symbols[1:end:2], symbols[end:]
        typed = f"input={quote(' '.join(symbols))}"
        if not end or not queries or not set(paired) <= set(self.keys) or not set(values) <= set(self.values):
            raise InputError(f"{typed} must be pairs of a key and a value, then keys to recall: {self.examples[0]}")
        for key in paired:
            if paired.count(key) > 1:
                raise InputError(f"{typed} pairs key {key} with more than one value")
        for query in queries:
            if query not in paired:
                raise InputError(f"{typed} asks for {query}, which it pairs with no value")

    def _draw(self, count: int, shortest: int, longest: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        """Draw inputs with ``shortest`` to ``longest`` pairs, P at most.

        Returns:
            What each key means, (B, num_keys) int64, which decides the split; the numbers of keys and values, both
            (B, P) int64, -1 after the last pair; and which pairs are queried, (B, Q) int64.
        """
        device = generator.device
        sizes = torch.randint(shortest, longest + 1, (count, 1), generator=generator, device=device)
        is_absent = torch.arange(longest, device=device) >= sizes
        keys = torch.rand(count, len(self.keys), generator=generator, device=device).argsort(dim=1)[:, :longest]
        values = torch.randint(len(self.values), (count, longest), generator=generator, device=device)
        order = torch.rand(count, longest, generator=generator, device=device).masked_fill(is_absent, 2.0)
        keys, values = keys.masked_fill(is_absent, -1), values.masked_fill(is_absent, -1)
        return self._meanings(keys, values), keys, values, order.argsort(dim=1)[:, : self.config.queries]

    def _meanings(self, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return 1 + the value of each key, 0 without one, (B, num_keys) int64, of pairs (B, P) int64."""
        meanings = keys.new_zeros(len(keys), len(self.keys) + 1)  # the last column is that of absent pairs, key -1
        return meanings.scatter(1, keys % (len(self.keys) + 1), values + 1)[:, :-1]

    def _with_answers(self, keys: torch.Tensor, values: torch.Tensor, queried: torch.Tensor) -> Batch:
        """Return pairs (B, P) int64 and the queries (B, Q) int64 among them with the values of the queries."""
        first, num_keys = self.src_vocab.first_symbol_id, len(self.keys)
        key_ids = (keys + first).masked_fill(keys < 0, PAD_ID)
        value_ids = (values + first + num_keys).masked_fill(keys < 0, PAD_ID)
        pairs = torch.stack([key_ids, value_ids], dim=2).flatten(1)
        queries, answers = key_ids.gather(1, queried), value_ids.gather(1, queried)
        if self.config.answer == "pairs":
            answers = torch.stack([queries, answers], dim=2).flatten(1)
        return Batch(add_bos_eos(left_align(torch.cat([pairs, queries], dim=1))), add_bos_eos(answers))


def _letters() -> Iterator[str]:
    """Yield a to z, then aa to zz, and so on."""
    for size in count(1):
        yield from map("".join, product(ascii_lowercase, repeat=size))


def _pattern(num_words: int, num_numbers: int = 0) -> re.Pattern[str]:
    """Return what matches a symbol; those of one character need no space between them."""
    letters = "[a-z]" if num_words <= len(ascii_lowercase) else "[a-z]+"
    digits = "[0-9]" if num_numbers <= 10 else "[0-9]+"
    return re.compile(rf"{letters}|{digits}|[^\s,]")
