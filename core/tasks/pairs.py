"""Tasks that are a list of pairs: what they have in common, wherever the pairs come from."""

from abc import abstractmethod
from collections.abc import Sequence

import torch

from core.tasks.pair_table import PairRows, PairTable, key_of
from core.tasks.splits import Split
from core.tasks.task import Batch, Task
from core.text.task_input import check_length, check_not_empty
from core.text.tokenizers import TokenKind, text_of, tokens_of
from core.text.vocab import UNK, Vocab

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


class Pairs(Task):
    """Pairs out of a table, a source with one right answer or several.

    A subclass has the table, in ``table``, and the vocabularies.

    Args:
        kinds: of the tokens of source and answer.
        lengths: tokens of the shortest and of the longest source.
    """

    def __init__(
        self,
        *,
        src_vocab: Vocab,
        tgt_vocab: Vocab,
        kinds: tuple[TokenKind, TokenKind],
        lengths: tuple[int, int],
        examples: Sequence[str] = (),
    ) -> None:
        self.src_vocab, self.tgt_vocab, self.kinds = src_vocab, tgt_vocab, kinds
        self.min_length, self.max_length = lengths
        self.examples = tuple(examples)

    @property
    @abstractmethod
    def table(self) -> PairTable:
        """All the pairs there are."""

    @property
    def lengths(self) -> range:
        """Lengths of the sources there are; nothing is known of others."""
        return self.trained_lengths

    def all_pairs(self, split: Split) -> PairRows:
        """Return all pairs of a split; see ``Task.all_pairs``."""
        return PairRows(self.table, self.table.rows(split))

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` pairs of one split, each as likely; see ``Task.sample``."""
        pairs = self.all_pairs(split).to(generator.device)
        return pairs[torch.randint(max(1, len(pairs)), (count,), generator=generator, device=generator.device)]

    def of_length(self, length: int, count: int, *, generator: torch.Generator) -> Batch:
        """Draw test pairs with sources of one length; see ``Task.of_length``."""
        pairs = self.all_pairs("test")
        fitting = (self.table.src.lengths[pairs.rows] == length).nonzero().squeeze(1)
        order = torch.randperm(len(fitting), generator=generator, device=generator.device).cpu()
        return pairs.to(generator.device)[fitting[order[:count]]]

    def read(self, text: str) -> list[str]:
        """Split typed text into tokens, as those learned from were; see ``Task.read``."""
        check_length(text)
        symbols = tokens_of(text, self.kinds[0])
        check_not_empty(symbols, example=self.examples[0])
        self.src_vocab.encode(symbols)
        return symbols

    def typed(self, symbols: Sequence[str]) -> str:
        """Write the tokens of a source as they were typed; for what is unknown, something else that is."""
        return text_of([_UNKNOWN if token == UNK else token for token in symbols], self.kinds[0])

    def references(self, symbols: Sequence[str]) -> list[list[str]]:
        """Return all right answers to a source that is among the pairs; none to another one."""
        rows = self.table.same_source(key_of(text_of(symbols, self.kinds[0])))
        return [self.tgt_vocab.decode(self.table.tgt.row(row)) for row in rows]

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the first right answer; nothing where none is known."""
        return next(iter(self.references(symbols)), [])

    def text(self, tokens: Sequence[str]) -> str:
        """Write the tokens of an answer as a person would."""
        return text_of(tokens, self.kinds[1])

    def note(self, symbols: Sequence[str]) -> str:
        """Say in what way a source is unlike those trained on, or that the pairs do not tell its answer."""
        known = "" if self.references(symbols) else "not among the pairs, so there is no answer to compare with"
        return "; ".join(filter(None, [known, super().note(symbols)]))
