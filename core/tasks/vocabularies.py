"""The vocabularies of a run with plain tokens, stored for a run that began from it; see ``core.runs.starting``.

Subwords are stored with every run, so those of another run need no file of their own; see ``core.text.subwords``.
"""

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.config import ConfigError
from core.config.tasks import TaskConfig
from core.storage.text_checksum import has_changed, without_checksum
from core.storage.validation_errors import first_problem
from core.tasks.task import Task
from core.text.subwords import SubwordTokenizers
from core.text.vocab import Vocab

MAX_BYTES = 16 * 1024 * 1024  # of the file, which may come from anyone
_Symbol = Annotated[str, Field(min_length=1, max_length=2_000)]
_Symbols = Annotated[tuple[_Symbol, ...], Field(max_length=1_000_000)]


class StoredVocabulary(BaseModel):
    """One vocabulary: its symbols in the order of their ids, and whether unknown ones are read as UNK."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    symbols: _Symbols
    has_unk: bool

    @classmethod
    def of(cls, vocab: Vocab) -> "StoredVocabulary":
        """Return a vocabulary as it is stored."""
        return cls(symbols=vocab.symbols, has_unk=vocab.has_unk)

    def vocab(self) -> Vocab:
        """Return the vocabulary; ValueError if a symbol occurs twice or is a special token."""
        return Vocab(self.symbols, has_unk=self.has_unk)


class StoredVocabularies(BaseModel):
    """Content of ``vocabulary.json``. ``target`` is None if both sides share one vocabulary."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["attention-lab-vocabulary-1"] = "attention-lab-vocabulary-1"
    source: StoredVocabulary
    target: StoredVocabulary | None

    @classmethod
    def of(cls, source: Vocab, target: Vocab) -> "StoredVocabularies":
        """Return the vocabularies of a task as they are stored."""
        shared = source is target
        return cls(source=StoredVocabulary.of(source), target=None if shared else StoredVocabulary.of(target))

    @classmethod
    def from_json(cls, content: bytes | str, label: str) -> "StoredVocabularies":
        """Read and validate vocabularies, which may come from anyone.

        Raises:
            ConfigError: the content is not what ``model_dump_json`` writes; the message begins with ``label``.
        """
        try:
            found = cls.model_validate_json(content)
            found.vocabs()
        except ValidationError as error:
            raise ConfigError([("task.vocabulary", f"{label}: {first_problem(error)}")]) from error
        except ValueError as error:
            raise ConfigError([("task.vocabulary", f"{label} is not valid: {error}")]) from error
        return found

    def vocabs(self) -> tuple[Vocab, Vocab]:
        """Return the vocabularies of source and target, the same object if they are one."""
        source = self.source.vocab()
        return source, source if self.target is None else self.target.vocab()


def token_facts(task: Task, config: TaskConfig) -> dict[str, str]:
    """Return the tokenizers or vocabularies that weights are stored with, as JSON by name of the fact; {} if none."""
    if task.subwords:
        return {"subwords": task.subwords.model_dump_json()}
    if config.inherited_vocabulary:
        return {"vocabulary": StoredVocabularies.of(task.src_vocab, task.tgt_vocab).model_dump_json()}
    return {}


def vocabulary_hash(stored: SubwordTokenizers | StoredVocabularies) -> str:
    """Return what ``task.vocabulary`` names them by: the SHA-256 of their JSON."""
    return hashlib.sha256(stored.model_dump_json().encode()).hexdigest()


def read_vocabularies(path: Path | None, *, expected: str) -> tuple[Vocab, Vocab]:
    """Read ``vocabulary.json``.

    Args:
        path: the file; None if the task is built without a run's folder.
        expected: the preset's ``task.vocabulary``.

    Raises:
        ConfigError: the file is missing, damaged, or holds other vocabularies.
    """
    if path is None or not path.is_file():
        raise missing_vocabulary(expected)
    if path.stat().st_size > MAX_BYTES:
        message = f"{path.name} has {path.stat().st_size:,} bytes; the limit is {MAX_BYTES:,}"
        raise ConfigError([("task.vocabulary", message)])
    content = path.read_bytes()
    if has_changed(content):
        message = f"{path.name} was changed after it was written: its content does not match its checksum"
        raise ConfigError([("task.vocabulary", message)])
    stored = StoredVocabularies.from_json(without_checksum(content), path.name)
    check_hash(stored, expected, path.name)
    return stored.vocabs()


def check_hash(stored: SubwordTokenizers | StoredVocabularies, expected: str, label: str) -> None:
    """Raise ConfigError if these are not the vocabularies that a preset names."""
    if (actual := vocabulary_hash(stored)) != expected:
        message = f"task.vocabulary={expected[:12]}…: {label} holds other vocabularies, with SHA-256 {actual[:12]}…"
        raise ConfigError([("task.vocabulary", message)])


def missing_vocabulary(expected: str) -> ConfigError:
    """Return the error for a preset whose vocabularies are those of another run, outside of a run's folder."""
    return ConfigError(
        [
            (
                "task.vocabulary",
                f"task.vocabulary={expected[:12]}…: these vocabularies are missing; only a run that began from another "
                "one has them. Start from that run again, or leave task.vocabulary empty",
            )
        ]
    )
