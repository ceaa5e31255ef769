"""What every task provides: pairs of a source and a target sequence, and the correct answers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import torch

from core.config.tasks import format_range
from core.text.vocab import PAD_ID, Vocab

if TYPE_CHECKING:
    from core.text.subwords import SubwordTokenizers

Split = Literal["train", "validation", "test"]

NO_SOURCE = -1


@dataclass(frozen=True)
class Batch:
    """Pairs of sequences, padded on the right with PAD.

    Attributes:
        src: (B, S) int64, ``BOS x1 … xn EOS PAD …``.
        tgt: (B, T + 1) int64, ``BOS y1 … ym EOS PAD …``.
    """

    src: torch.Tensor
    tgt: torch.Tensor

    @property
    def tgt_in(self) -> torch.Tensor:
        """(B, T) int64: decoder input under teacher forcing, BOS first."""
        return self.tgt[:, :-1]

    @property
    def tgt_out(self) -> torch.Tensor:
        """(B, T) int64: decoder targets, ``tgt_in`` shifted left by one, EOS last."""
        return self.tgt[:, 1:]

    @property
    def is_scored(self) -> torch.Tensor:
        """(B, T) bool: which tokens of ``tgt_out`` token accuracy counts, by default all but PAD."""
        return self.tgt_out != PAD_ID

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.src.device

    def __len__(self) -> int:
        return self.src.shape[0]

    def __getitem__(self, rows: slice | torch.Tensor) -> "Batch":
        return replace(self, src=self.src[rows], tgt=self.tgt[rows])

    def to(self, device: torch.device | str) -> "Batch":
        """Return the pairs on a device."""
        return replace(self, src=self.src.to(device), tgt=self.tgt.to(device))

    def lengths(self) -> torch.Tensor:
        """Return the number of non-PAD tokens of each source and target, (B, 2) int64."""
        return torch.stack([(rows != PAD_ID).sum(dim=1) for rows in (self.src, self.tgt)], dim=1)

    def trimmed(self) -> "Batch":
        """Return the pairs without the columns that are PAD in every row."""
        src, tgt = (rows[:, : int((rows != PAD_ID).sum(dim=1).max())] for rows in (self.src, self.tgt))
        return replace(self, src=src, tgt=tgt)


class PairDataset(Protocol):
    """Pairs that may be too many for one ``Batch``; indexing it makes a batch of the chosen rows."""

    device: torch.device

    def __len__(self) -> int:
        """Return the number of pairs."""

    def __getitem__(self, rows: torch.Tensor) -> Batch:
        """Return the pairs at row indices (B,) int64."""

    def to(self, device: torch.device | str) -> "PairDataset":
        """Return the same pairs on a device."""

    def lengths(self) -> torch.Tensor:
        """Return the number of non-PAD tokens of each source and target, (N, 2) int64."""


@dataclass(frozen=True)
class Breakdown:
    """Test pairs drawn in another way than those of training, in groups to evaluate one by one.

    Attributes:
        name: of the whole set, such as "uniform operands".
        sampling: how the pairs were drawn, in one sentence.
        pairs: held-out pairs; each belongs to exactly one group.
        groups: row indices (K,) int64 of ``pairs`` by name of the group.
    """

    name: str
    sampling: str
    pairs: Batch
    groups: dict[str, torch.Tensor]


class Task(ABC):
    """A family of sequence pairs. Each family is a subclass in a module of its own.

    Attributes:
        src_vocab, tgt_vocab: vocabularies of the two sides; the same object where both sides share one.
        min_length, max_length: of the training inputs, in symbols.
        examples: inputs to offer the user, as text.
        bleu_tokenizer: sacrebleu tokenizer of answers that are text in a natural language; None if they are not.
            ``core.evaluation.headline`` decides whether they are measured by BLEU.
        open_ended: True if the task has no single reference answer, which makes exact match meaningless.
        length_unit: what ``lengths`` counts.
        any_length: True if ``sample_of_length`` works for all lengths, including those beyond ``lengths``.
        rate_names: names of the error rates of answers and of tokens (``core.evaluation.error_rates``), for tasks whose
            inputs may have several references; None if exact match is enough.
        scored_tokens: what the tokens are called that token accuracy counts (``Batch.is_scored``).
        pairs_file: the file that own pairs were read from, or would be in a run's folder, to build the task again; None
            for tasks that need no file.
        has_pairs: whether there is data to measure a model on; False for one that is published without its pairs.
        subwords: the learned tokenizers of both sides; None for tasks of other tokens.
        cyclic_tokens: ids of the source tokens of a cyclic group's elements in its order, such as the numbers modulo a
            prime; () for tasks without any.
    """

    src_vocab: Vocab
    tgt_vocab: Vocab
    min_length: int
    max_length: int
    examples: tuple[str, ...]
    bleu_tokenizer: str | None = None
    open_ended: bool = False
    length_unit: str = "symbols in the input"
    any_length: bool = False
    rate_names: tuple[str, str] | None = None
    scored_tokens: str = "tokens"
    pairs_file: Path | None = None
    has_pairs: bool = True
    subwords: "SubwordTokenizers | None" = None
    cyclic_tokens: tuple[int, ...] = ()

    @property
    def forced_start(self) -> tuple[int, ...]:
        """Ids that every output is made to begin with, such as the language of an imported model."""
        if self.subwords is None or not self.subwords.force_start:
            return ()
        return tuple(self.tgt_vocab.encode([self.subwords.answer_start]))

    @property
    def is_translation(self) -> bool:
        """Whether inputs and answers are text in natural languages."""
        return self.bleu_tokenizer is not None

    @property
    @abstractmethod
    def sampling(self) -> str:
        """The distribution that ``sample`` draws from, in a few words."""

    @property
    def trained_lengths(self) -> range:
        """Lengths of the training inputs."""
        return range(self.min_length, self.max_length + 1)

    @property
    def lengths(self) -> range:
        """Input lengths to evaluate separately: 1 to twice the longest training input, or to the longest input.

        Empty if the task has no accuracy by length.
        """
        return range(1, 2 * self.trained_lengths[-1] + 1)

    @abstractmethod
    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` pairs of a split, on the generator's device; each side has the same width in every call."""

    def sample_of_length(self, length: int, count: int, *, generator: torch.Generator) -> Batch:
        """Draw ``count`` distinct held-out pairs whose inputs have a given length; fewer if there are not as many.

        Inputs of a training length come from the test split; all inputs of other lengths are held out.

        Raises:
            ValueError: the task cannot draw by length.
        """
        raise ValueError(f"{type(self).__name__} cannot draw inputs of length {length}")

    @abstractmethod
    def tokenize(self, text: str) -> list[str]:
        """Split a typed input into symbols.

        Raises:
            InputError: the text is not a valid input; the message says why.
        """

    def source_text(self, symbols: Sequence[str]) -> str:
        """Write the symbols of an input as text that ``tokenize`` splits into the same symbols."""
        return " ".join(symbols)

    def token_name(self, token: str) -> str:
        """Return a token as people read it: a piece of a word without its mark; see ``piece_name``."""
        if self.subwords is None:
            return token
        from core.text.pieces import piece_name  # few tasks have subwords

        return piece_name(token)

    def answer_text(self, tokens: Sequence[str]) -> str:
        """Write the tokens of an answer as text."""
        return " ".join(tokens)

    @abstractmethod
    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the correct answer to an input; [] if it is unknown."""

    def references(self, symbols: Sequence[str]) -> list[list[str]]:
        """Return all correct answers to an input; [] if none is known."""
        return [] if self.open_ended else [self.answer(symbols)]

    def gold_alignment(self, symbols: Sequence[str]) -> list[list[int]]:
        """Return, for each symbol of the answer, the indices of all input symbols it may have been taken from.

        An empty list means that it has no single source symbol, which is the default for every symbol. Where several
        input symbols are equally correct, such as equal digits to be sorted, all of them are listed.
        """
        return [[] for _ in self.answer(symbols)]

    def produced_alignment(self, symbols: Sequence[str], produced: Sequence[str]) -> list[list[int]]:
        """Return, for each token that a model produced, the indices of the input symbols it may have been taken from.

        The default is ``gold_alignment``: the source of the token that should stand there, whichever was produced. A
        translation may put its words elsewhere than the reference does, so there the produced words count.
        """
        return self.gold_alignment(symbols)

    def all_pairs(self, split: Split) -> PairDataset | None:
        """Return every pair of a split if the task is a finite list of pairs; None if pairs are generated."""
        return None

    def lines(self, split: Split) -> list[list[int]]:
        """Return the ids of every sequence of a split, for language modeling; [] if the task has inputs."""
        return []

    def breakdown(self, count: int, *, generator: torch.Generator) -> Breakdown | None:
        """Return ``count`` test pairs drawn and grouped to show what the mean over ``sample`` hides, if anything."""
        return None

    def split_of(self, symbols: Sequence[str]) -> Split | None:
        """Return the split of an input, or None if it is in no split or if that is not known, which is the default."""
        return None

    def note(self, symbols: Sequence[str]) -> str:
        """Describe how an input differs from the training inputs, or return ""; the default compares lengths."""
        shortest, longest = self.trained_lengths[0], self.trained_lengths[-1]
        if shortest <= len(symbols) <= longest:
            return ""
        side = "shorter" if len(symbols) < shortest else "longer"
        return f"{side} than any training input ({format_range(shortest, longest)} tokens)"
