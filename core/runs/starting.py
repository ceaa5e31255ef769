"""Begin a run with the weights of another run: fine-tuning on other pairs, curricula, models of other programs.

Only the weights come from the other run. Its model must be the new run's, and so must its vocabularies, without which
its embeddings mean nothing; pairs of the user's own are therefore split as the other run splits text. The optimizer,
the schedule and the random numbers start anew. All that the new run needs is copied into its folder.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from core.config import SPECIAL_TOKENS, ConfigError, Preset, verified_pairs
from core.config.sections import ModelConfig
from core.config.tasks import SUBWORDS, VOCABULARY, OwnPairsConfig, SubwordsConfig, TaskConfig
from core.models import outline_model
from core.runs.folder import PAIRS, START, RunFolder
from core.runs.info import RunInfo, StartingPoint
from core.runs.load import load_run
from core.runs.names import readable_name
from core.storage.errors import InputError
from core.storage.tensor_file import serialize
from core.tasks import Task, build_task
from core.tasks.ingest.pairs import MAX_TOKENS
from core.tasks.own_pairs import OwnPairs
from core.tasks.vocabularies import StoredVocabularies, vocabulary_hash

NOT_IN_THE_WEIGHTS = {
    "dropout",
    "activation_dropout",
    "embedding_gain",
    "sublayer_gain",
    "position_stretch",
    "max_seq_len",
}
"""Settings of a model that may differ: of training, of initial weights, and the length unless positions are learned."""
_LISTED = 12  # tokens that a message lists
Problems = list[tuple[str, str]]


@dataclass(frozen=True)
class Start:
    """A new run that fits the weights of another run, and is not written yet.

    Attributes:
        run: the other run.
        preset: of the new run, with the vocabularies of the other one.
        task: of the new run.
        pairs: the file of its own pairs, laid out as in a run's folder; it exists only if the task learns own pairs.
        files: its tokenizers or vocabularies, by file name.
    """

    run: RunFolder
    preset: Preset
    task: Task
    pairs: Path
    files: Mapping[str, bytes]

    def contents(self) -> dict[str, bytes | bytearray]:
        """Return the files that the new run's folder begins with, for ``RunFolder.create``.

        Raises:
            RunError: the other run has no weights yet, or they are damaged.
            ConfigError: the weights do not fit the model after all.
        """
        loaded = load_run(self.run.path)
        weights = loaded.model.state_dict()
        self._check_shapes(weights)
        point = StartingPoint(run=readable_name(self.run.name), step=loaded.step, sha256=_hash_of(weights))
        info = RunInfo(status="queued", start=point)
        return {
            START: serialize(weights, point.model_dump()),
            "run.json": info.model_dump_json(indent=1).encode(),
            **self.files,
        }

    def _check_shapes(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Check what the settings do not say, such as the blocks of a plugin that has changed."""
        expected = outline_model(self.preset.model, self.task).state_dict()
        for name in sorted(expected.keys() | weights.keys()):
            sizes = [tuple(each[name].shape) if name in each else "missing" for each in (expected, weights)]
            if sizes[0] != sizes[1]:
                message = (
                    f"tensor {name!r} is {sizes[0]} in this model, and {sizes[1]} in {readable_name(self.run.name)}"
                )
                raise ConfigError([("model", message)])


def fit(run: RunFolder, preset: Preset | None, folder: Path, *, pairs: Path | None = None) -> Start:
    """Check that a preset can begin with a run's weights, and lay out what its task is built from.

    Args:
        run: the other run; need not have any weights yet.
        preset: of the new run; None is that of ``run``.
        folder: an empty folder, which must last as long as the result.
        pairs: the file of the preset's own pairs; None is that of ``run``, if they are the same.

    Raises:
        ConfigError: the model or the vocabularies differ; the message names every setting with both values. Or there
            is nothing to train on, or the file of own pairs is missing or holds other pairs.
        RunError: the run cannot be read.
    """
    name, theirs = readable_name(run.name), run.read_preset()
    chosen = preset or theirs
    if problems := misfits(chosen, theirs, name):
        raise ConfigError(problems)
    if pairs is None and chosen.task.own_data == theirs.task.own_data:
        pairs = run.pairs
    if chosen.task.own_data:
        _link(verified_pairs(chosen.task, pairs), folder / PAIRS)
    their_task = build_task(theirs.task, pairs=run.pairs)
    stored = their_task.subwords or StoredVocabularies.of(their_task.src_vocab, their_task.tgt_vocab)
    file, content = SUBWORDS if their_task.subwords else VOCABULARY, stored.model_dump_json().encode()
    (folder / file).write_bytes(content)
    is_own = isinstance(chosen.task, OwnPairsConfig) and chosen.task != theirs.task
    if is_own and chosen.task.inherited_vocabulary != vocabulary_hash(stored):
        adapt = _with_subwords if their_task.subwords else _with_vocabulary
        other = _Other(name, their_task, vocabulary_hash(stored), theirs.model.max_seq_len)
        chosen = adapt(chosen, other, folder / PAIRS)
    task = _built(chosen.task, folder / PAIRS, name)
    if problems := _vocabulary_problems(task, their_task, name):
        raise ConfigError(problems)
    is_stored = chosen.task.has_subwords or bool(chosen.task.inherited_vocabulary)
    return Start(run, chosen, task, folder / PAIRS, {file: content} if is_stored else {})


def misfits(preset: Preset, theirs: Preset, name: str) -> Problems:
    """Return the settings that keep a preset from beginning with a run's weights, each with both values.

    Vocabularies are not read, so the words or characters that the run does not know are found by ``fit`` only.

    Args:
        theirs: the run's preset.
        name: the run's name, for the messages.
    """
    if preset.task.family == "imported":
        message = f"{name} was imported from another program, with nothing here to train it on; choose a preset of own "
        return [("task.family", message + "pairs (python -m core data makes one)")]
    return [*_model_problems(preset.model, theirs.model, name), *_token_problems(preset.task, theirs.task, name)]


def _model_problems(model: ModelConfig, theirs: ModelConfig, name: str) -> Iterator[tuple[str, str]]:
    if model.family != theirs.family:
        yield _differing("model", "family", model.family, theirs.family, name)
        return
    free = NOT_IN_THE_WEIGHTS - ({"max_seq_len"} if getattr(model, "positions", "") == "learned" else set())
    for field in type(model).model_fields:
        value, other = getattr(model, field), getattr(theirs, field)
        if value != other and field not in free:
            yield _differing("model", field, value, other, name)


def _token_problems(task: TaskConfig, theirs: TaskConfig, name: str) -> Iterator[tuple[str, str]]:
    """Yield what keeps a task from having the tokens of another one, as far as their settings say."""
    if isinstance(task, OwnPairsConfig):
        yield from _kind_problems(task, theirs, name)
    elif task.has_subwords and type(task) is type(theirs):
        for field in SubwordsConfig.model_fields:
            value, other = getattr(task, field), getattr(theirs, field)
            if value != other:
                yield _differing("task", field, value, other, name)
    elif task.has_subwords or theirs.has_subwords:
        yield _differing("task", "family", task.family, theirs.family, name)


def _kind_problems(task: OwnPairsConfig, theirs: TaskConfig, name: str) -> Iterator[tuple[str, str]]:
    """Yield which tokens of own pairs are not of the kind of another task; one that is not of own pairs has no kind."""
    if theirs.has_subwords:
        others = ("subword", "subword")
    elif isinstance(theirs, OwnPairsConfig):
        others = theirs.source_tokens, theirs.answer_tokens
    elif task.has_subwords:
        yield "task.source_tokens", f"task.source_tokens='subword', and {name} has no subwords"
        return
    else:
        return
    for field, other in zip(("source_tokens", "answer_tokens"), others, strict=True):
        if getattr(task, field) != other:
            yield _differing("task", field, getattr(task, field), other, name)


def _differing(section: str, field: str, value: Any, other: Any, name: str) -> tuple[str, str]:
    return f"{section}.{field}", f"{section}.{field}={value!r}, and {name} has {other!r}"


@dataclass(frozen=True)
class _Other:
    """What own pairs take over of another run: its task, and the hash of its vocabularies."""

    name: str
    task: Task
    vocabulary: str
    max_seq_len: int


def _with_subwords(preset: Preset, other: _Other, pairs: Path) -> Preset:
    """Return a preset of own pairs with the subwords of another run.

    Its limits counted other subwords. They become those of the pairs, as far as the other run's model reads them.
    """
    longest = max(preset.model.max_seq_len, other.max_seq_len)
    most = min(longest - SPECIAL_TOKENS, MAX_TOKENS)
    is_joint = other.task.src_vocab is other.task.tgt_vocab
    changes: dict[str, Any] = {"vocabulary": other.vocabulary, "joint_vocabulary": is_joint}
    limits = {"longest_source": most, "longest_answer": most}
    task = _built(preset.task.model_copy(update=changes | limits), pairs, other.name)
    assert isinstance(task, OwnPairs)  # noqa: S101 - of the same family
    limits = dict(zip(limits, task.table.widths, strict=True))
    return preset.with_changes(
        {"model.max_seq_len": longest} | {f"task.{field}": value for field, value in (changes | limits).items()}
    )


def _with_vocabulary(preset: Preset, other: _Other, pairs: Path) -> Preset:
    """Return a preset of own pairs with the vocabularies of another run, which must know their tokens.

    Those are the tokens that the preset's own vocabularies would have. Rarer ones are read as UNK, as always, if the
    other run has UNK; otherwise all count.
    """
    vocabs = (other.task.src_vocab, other.task.tgt_vocab)
    changes: dict[str, Any] = {"task.vocabulary": ""}
    if not all(vocab.has_unk for vocab in vocabs):
        changes |= {"task.unknown": "refuse", "task.min_count": 1}
    preset = preset.with_changes(changes)
    own = build_task(preset.task, pairs=pairs)
    problems = []
    kinds = (("source_tokens", "sources"), ("answer_tokens", "answers"))
    for (field, side), vocab, known in zip(kinds, (own.src_vocab, own.tgt_vocab), vocabs, strict=True):
        if unknown := _without(vocab.symbols, known.symbols):
            found = f"{len(unknown)} {getattr(preset.task, field)}{'s' * (len(unknown) > 1)}"
            message = f"the pairs have {found} that {other.name} does not know: {_listed(unknown)} (in the {side})"
            remedy = "; a larger task.min_count reads rare ones as UNK" if known.has_unk else ""
            problems.append((f"task.{field}", message + remedy))
    if problems:
        raise ConfigError(problems)
    return preset.with_changes({"task.vocabulary": other.vocabulary})


def _built(config: TaskConfig, pairs: Path, name: str) -> Task:
    """Build a task; subwords without UNK may refuse a pair."""
    try:
        return build_task(config, pairs=pairs)
    except InputError as error:
        raise ConfigError([("task.data", f"the pairs have a token that {name} does not know: {error}")]) from error


def _vocabulary_problems(task: Task, theirs: Task, name: str) -> Problems:
    """Return how the vocabularies of two tasks differ, side by side."""
    problems = []
    sides = ("source", task.src_vocab, theirs.src_vocab), ("target", task.tgt_vocab, theirs.tgt_vocab)
    for side, vocab, other in sides:
        if vocab.tokens == other.tokens:
            continue
        unknown, missing = _without(vocab.tokens, other.tokens), _without(other.tokens, vocab.tokens)
        if unknown:
            message = f"the task has {len(unknown)} {side} tokens that {name} does not know: {_listed(unknown)}"
        elif missing:
            message = f"{name} has {len(missing)} {side} tokens that the task lacks: {_listed(missing)}"
        else:
            message = f"the task has the {side} tokens of {name} in another order"
        problems.append(("task.family", message))
    return problems


def _without(tokens: Sequence[str], known: Sequence[str]) -> list[str]:
    others = set(known)
    return [token for token in tokens if token not in others]


def _listed(tokens: Sequence[str]) -> str:
    listed = " ".join(token[:40] for token in tokens[:_LISTED])
    return listed if len(tokens) <= _LISTED else f"{listed} …"


def _hash_of(weights: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256 of the values of tensors, with their names and shapes."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _link(source: Path, target: Path) -> None:
    """Give a file another name, or copy it where the disk cannot do that."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
