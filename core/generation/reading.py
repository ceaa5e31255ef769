"""A typed input as a model reads it."""

from dataclasses import dataclass
from typing import get_args

from core.models import Seq2Seq
from core.storage.errors import InputError
from core.tasks import Task
from core.text.pieces import spelled_in_bytes
from core.text.subwords import Algorithm
from core.text.validation import visible
from core.text.vocab import UNK

_NAMED = 8  # unknown characters or words at most in a message
_SHOWN_CHARACTERS = 20  # of an unknown word


@dataclass(frozen=True)
class Reading:
    """A typed input as a model reads it.

    Attributes:
        symbols: its tokens; unknown words are UNK.
        ids: of the symbols, without BOS and EOS.
        unknown: what the vocabulary has no token for, each once: words that are read as UNK, or characters that are
            read as their bytes.
    """

    symbols: list[str]
    ids: list[int]
    unknown: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """What of the input the vocabulary does not have, or ""."""
        if not self.unknown:
            return ""
        read_as = UNK if UNK in self.symbols else "bytes"
        return f"not in the vocabulary, read as {read_as}: {named(self.unknown)}"


def typed_tokens(task: Task, text: str) -> list[str]:
    """Split a typed input into tokens.

    Raises:
        InputError: the task refuses the text.
    """
    if task.subwords is not None and task.subwords.source.algorithm in get_args(Algorithm):
        text = text.strip()  # a keyboard adds a space after a sentence, which would be a piece of its own
    return task.tokenize(text)


def read_input(model: Seq2Seq, task: Task, text: str) -> Reading:
    """Split a typed input into tokens and look up their ids.

    Raises:
        InputError: the task refuses the text, it is too long for the model, or the vocabulary has nothing of it.
    """
    typed = typed_tokens(task, text)
    model.check_input_length(len(typed))
    ids = task.src_vocab.encode(typed)
    symbols = task.src_vocab.decode(ids)
    if task.subwords is not None and task.subwords.source.byte_fallback:
        unknown, num_known = spelled_in_bytes(symbols)
    else:
        pairs = list(zip(typed, symbols, strict=True))
        unknown = list(dict.fromkeys(word[:_SHOWN_CHARACTERS] for word, read in pairs if word != read))
        num_known = sum(word == read for word, read in pairs)
    if unknown and not num_known:
        raise InputError(f"the model's vocabulary has nothing of this input: {named(unknown)}")
    return Reading(symbols, ids, tuple(unknown))


def named(unknown: list[str] | tuple[str, ...]) -> str:
    """Return unknown characters or words as a list of at most eight."""
    more = len(unknown) - _NAMED
    shown = [visible(each) if each.strip() else "white space" for each in unknown[:_NAMED]]
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
