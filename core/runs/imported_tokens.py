"""The vocabularies of an imported model: which of its rows is which of ours, and how text becomes tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from core.runs.imported_model import NEVER
from core.runs.model_files import ModelImportError
from core.runs.tokenizer_files import NamedVocabulary, id_tokenizer
from core.text.subwords import MAX_PIECES, SubwordTokenizer, SubwordTokenizers
from core.text.vocab import BOS_ID

Languages = tuple[str | None, str | None]
"""Of sources and of answers; None takes the tokenizer's, if it has one."""
_NUM_SPECIAL = 3  # PAD, BOS and EOS, before UNK if there is one
_LISTED = 12  # languages, in a message


class SpecialIds(NamedTuple):
    """Ids of an imported model: PAD, EOS, what its sources begin with, and what starts its decoder."""

    pad: int
    eos: int
    first: int
    start: int


@dataclass(frozen=True)
class Tokens:
    """The vocabularies, and which of their rows each of our rows is: (V,) ids of source and of target.

    Ours begin with PAD, BOS, EOS and, if there is one, UNK. Our BOS is the source's first token on one side and the
    decoder's first on the other; where that is PAD or EOS, as in Marian and BART, BOS has a row of its own, a copy.
    """

    tokenizers: SubwordTokenizers
    rows: tuple[list[int], list[int]]
    is_bos_copied: bool
    is_shared: bool
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        ids: SpecialIds,
        sizes: tuple[int, int],
        named: tuple[NamedVocabulary, NamedVocabulary] | None,
        *,
        forced: int | None = None,
        languages: Languages | None = None,
    ) -> "Tokens":
        """Put the vocabularies in our order.

        Args:
            sizes: tokens of source and target.
            named: the vocabularies of the tokenizer's files; None makes each token its number.
            forced: the token that every answer is made to begin with.
            languages: the languages of a model whose sources and answers begin with one; None for other models.

        Raises:
            ModelImportError: a vocabulary is too large, a language is missing, or the tokenizer does not have it.
            SubwordError: the tokenizer has pieces that cannot be used.
        """
        if max(sizes) > MAX_PIECES:
            raise ModelImportError(f"the vocabulary has {max(sizes):,} tokens; the limit is {MAX_PIECES:,}")
        pad, eos, first, start = ids
        is_copied = first != start or start in (pad, eos)
        special = [pad, eos] if is_copied else [pad, start, eos]
        rows = []
        for side, (size, bos) in enumerate(zip(sizes, (first, start), strict=True)):
            unk = named[side].unk if named else None
            unknown = [] if unk is None else [unk]
            rest = [index for index in range(size) if index not in {*special, *unknown}]
            rows.append([pad, bos, eos, *unknown, *rest])
        notes, begin = [], ""
        if named is None:
            if languages is not None and any(languages):
                raise ModelImportError("a language is chosen, but the folder has no tokenizer, which would name it")
            is_shared, sides = sizes[0] == sizes[1], [id_tokenizer(row[_NUM_SPECIAL:]) for row in rows]
            notes.append(
                "the folder has no tokenizer that can be read, so its tokens are their numbers, separated by spaces"
            )
        else:
            is_shared = named[0].names == named[1].names
            starts = [_NUM_SPECIAL + (each.unk is not None) for each in named]
            sides = [each.tokenizer(row[at:]) for each, row, at in zip(named, rows, starts, strict=True)]
            if languages is not None:
                source, target = _chosen(named[0], languages, forced)
                begin, forced = source, named[1].names.index(target)
                notes.append(f"sources begin with {source}, answers with {target}")
        if forced in (start, pad, eos):
            forced = None
        named_by_row = _Named(rows[1], sides[1])
        is_ordinary = first not in (start, pad, eos)  # to the decoder, whose answers begin with it
        tokenizers = _tokenizers(
            sides,
            begin,
            named_by_row(forced if forced is not None else first if is_ordinary else None),
            forced is not None,
        )
        return cls(tokenizers, (rows[0], rows[1]), is_copied, is_shared, tuple(notes))

    def forbid_copies(self, bias: torch.Tensor) -> None:
        """Make BOS improbable in the output's bias (V,), in place, if its row is a copy."""
        if self.is_bos_copied:
            bias[BOS_ID] = NEVER

    def forbid(self, bias: torch.Tensor, generation: Mapping[str, Any]) -> int:
        """Make single tokens that are never to be written improbable, in place; return how many there are."""
        single = [each[0] for each in generation.get("bad_words_ids") or [] if len(each) == 1]
        ids = {*single, *(generation.get("suppress_tokens") or [])}
        rows = [row for row, index in enumerate(self.rows[1]) if index in ids and row != BOS_ID]
        bias[rows] = NEVER
        return len(rows)


@dataclass(frozen=True)
class _Named:
    """Names of a side's tokens by their ids in the model; "" for None."""

    rows: list[int]
    side: SubwordTokenizer

    def __call__(self, index: int | None) -> str:
        return "" if index is None else self.side.tokens[self.rows.index(index) - len(self.rows)]


def _tokenizers(sides: list[SubwordTokenizer], begin: str, answer_start: str, is_forced: bool) -> SubwordTokenizers:
    is_joint = sides[0] == sides[1]
    source = sides[0].model_copy(update={"first_piece": begin}) if begin else sides[0]
    return SubwordTokenizers(
        joint=is_joint,
        source=source,
        target=None if is_joint else sides[1],
        answer_start=answer_start,
        force_start=is_forced,
    )


def _chosen(vocabulary: NamedVocabulary, languages: Languages, forced: int | None) -> tuple[str, str]:
    """Return the tokens of the source's and the target's language."""
    known = vocabulary.languages
    defaults = vocabulary.default_language, "" if forced is None else vocabulary.names[forced]
    found = []
    for option, given, default in zip(("source", "target"), languages, defaults, strict=True):
        chosen = next((name for name in known if (given or default) in (name, name.strip("_"))), "")
        if not chosen:
            listed = ", ".join(known[:_LISTED]) + (f" and {len(known) - _LISTED} more" if len(known) > _LISTED else "")
            value = f"{given!r} is unknown" if given else "is missing"
            raise ModelImportError(
                f"{option} language {value}; the tokenizer has {listed or 'none'} (--{option}-language)"
            )
        found.append(chosen)
    return found[0], found[1]
