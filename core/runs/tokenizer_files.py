"""Read the tokenizer's files of a model's folder: SentencePiece models, byte-level BPE, and tokens with their ids.

SentencePiece's model file is a protocol buffer (sentencepiece_model.proto). Only pieces, scores and the names of rules
are taken from it; ``core.text.subwords`` checks them and builds SentencePiece's model again.
"""

import json
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ValidationError

from core.storage.error_messages import short_repr, shortened
from core.storage.validation_errors import first_problem
from core.text.byte_bpe import alphabet, piece_of
from core.text.subwords import NUM_BYTES, WORD_START, Normalization, SubwordError, SubwordTokenizer
from core.text.validation import quote

MODELS, VOCABULARY, TARGET_VOCABULARY = ("source.spm", "target.spm"), "vocab.json", "target_vocab.json"
MERGES, TOKENIZER = "merges.txt", "tokenizer.json"
UNKNOWN = "<unk>"
VISIBLE_SPACE = "␣"  # in a token that has a space, where text is split at spaces
_BRACKETED = re.compile(r"<.+>|\[.+\]")
_MAX_FILE_BYTES = 32 * 1024**2
_NORMAL, _UNK, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)  # SentencePiece.Type
_ALGORITHMS = {1: "unigram", 2: "bpe"}  # TrainerSpec.ModelType
_RULES = get_args(Normalization)


@dataclass(frozen=True)
class Pieces:
    """What text is split into, and how; see ``SubwordTokenizer`` for most fields.

    Attributes:
        file: that it was read from.
        every: all pieces in the order of the file, also those that text is not split into.
    """

    file: str
    algorithm: str
    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    byte_fallback: bool = False
    normalization: str = "identity"
    remove_extra_whitespaces: bool = False
    every: tuple[str, ...] = ()


@dataclass(frozen=True)
class NamedVocabulary:
    """The tokens of one side by their ids in the model, and the pieces that its text is split into.

    Attributes:
        languages: tokens that stand for languages.
        default_language: of sources, if the tokenizer has one.
    """

    names: tuple[str, ...]
    pieces: Pieces
    languages: tuple[str, ...] = ()
    default_language: str = ""

    @property
    def unk(self) -> int | None:
        """Id of the token for unknown pieces, if there is one."""
        return self.names.index(UNKNOWN) if UNKNOWN in self.names else None

    def tokenizer(self, ids: Sequence[int]) -> SubwordTokenizer:
        """Return the tokenizer of a model whose tokens after the special ones are ``ids``, in this order.

        Raises:
            SubwordError: a piece or token is not valid.
        """
        try:
            return SubwordTokenizer.model_validate(
                {name: value for name, value in vars(self.pieces).items() if name not in ("file", "every")}
                | {"vocabulary": tuple(self.names[index] for index in ids), "has_unk": self.unk is not None}
            )
        except ValidationError as error:
            raise SubwordError(f"{self.pieces.file}: {first_problem(error)}") from error


def id_tokenizer(ids: Sequence[int], *, has_unk: bool = False) -> SubwordTokenizer:
    """Return the tokenizer of a model whose tokens have no names: each is its number, and text is split at spaces."""
    return _words([str(index) for index in ids], has_unk=has_unk)


def read_lines(file: Path) -> list[str]:
    """Return the lines of a file, which are the tokens of a model by id; SubwordError if it cannot be read."""
    lines = _read(file).decode(errors="replace").removesuffix("\n").split("\n")  # others separate no lines here
    return [line.removesuffix("\r") for line in lines]


def named_tokenizer(
    names: Sequence[str], size: int, ids: Sequence[int], *, has_unk: bool, label: str
) -> SubwordTokenizer:
    """Return the tokenizer of a model whose tokens have these names, by id.

    Text is split at spaces, and a space within a token is typed as ``␣``. It is split into characters if the tokens are
    characters and the space is one of them; names in angle or square brackets do not count.

    Raises:
        SubwordError: there are not ``size`` names; one is empty or occurs twice.
    """
    if len(names) != size:
        raise SubwordError(f"{label} has {len(names):,} tokens; the model has {size:,}")
    tokens = [names[index] for index in ids]
    for token, count in Counter(tokens).most_common(1):
        if count > 1:
            raise SubwordError(f"{label}: {quote(token)} is the name of several tokens")
    plain = [token for token in tokens if not _BRACKETED.fullmatch(token)]
    try:
        if " " in plain and all(len(token) == 1 for token in plain):
            return _without_scores("characters", [WORD_START if each == " " else each for each in tokens], has_unk)
        return _words([token.replace(" ", VISIBLE_SPACE) for token in tokens], has_unk=has_unk)
    except ValidationError as error:
        raise SubwordError(f"{label}: {first_problem(error)}") from error


def _words(words: Sequence[str], *, has_unk: bool) -> SubwordTokenizer:
    return _without_scores("words", [WORD_START + word for word in words], has_unk)


def _without_scores(
    algorithm: Literal["words", "characters"], pieces: Sequence[str], has_unk: bool
) -> SubwordTokenizer:
    return SubwordTokenizer(
        algorithm=algorithm,
        pieces=tuple(pieces),
        scores=(0.0,) * len(pieces),
        byte_fallback=False,
        has_unk=has_unk,
    )


def marian_tokenizers(folder: Path, sizes: tuple[int, int]) -> tuple[NamedVocabulary, NamedVocabulary] | None:
    """Read the tokenizers of a Marian folder; None if it has none of their files.

    Args:
        sizes: tokens of the source and of the target vocabulary.

    Raises:
        SubwordError: a file is missing or damaged, or says what SentencePiece is not asked to do here.
    """
    needed = (*MODELS, VOCABULARY)
    missing = [name for name in needed if not (folder / name).is_file()]
    if len(missing) == len(needed):
        return None
    if missing:
        raise SubwordError(f"{missing[0]} is missing; a Marian folder has {', '.join(needed)}, or none of them")
    target = TARGET_VOCABULARY if (folder / TARGET_VOCABULARY).is_file() else VOCABULARY
    sides = []
    for model, vocabulary, size in zip(MODELS, (VOCABULARY, target), sizes, strict=True):
        content = read_json_object(folder / vocabulary)
        sides.append(NamedVocabulary(_by_id(content, size, vocabulary), read_sentencepiece(folder / model)))
    return sides[0], sides[1]


def bart_tokenizer(folder: Path, size: int) -> NamedVocabulary | None:
    """Read the byte-level BPE of a BART folder; None if it has none of its files.

    Args:
        size: tokens of the vocabulary.

    Raises:
        SubwordError: a file is missing or damaged, or ``tokenizer.json`` has another kind of tokenizer.
    """
    if (folder / VOCABULARY).is_file() and (folder / MERGES).is_file():
        file, content = VOCABULARY, read_json_object(folder / VOCABULARY)
        lines = _read(folder / MERGES).decode(errors="replace").splitlines()
        merges = [line.split() for line in lines if line and not line.startswith("#version")]
    elif (folder / TOKENIZER).is_file():
        file, model = TOKENIZER, read_json_object(folder / TOKENIZER).get("model")
        if not isinstance(model, dict) or model.get("type") != "BPE" or not isinstance(model.get("vocab"), dict):
            raise SubwordError(f"{TOKENIZER}: its model is not byte-level BPE, as BART's is")
        content = model["vocab"]
        merges = [each.split() if isinstance(each, str) else list(each) for each in model.get("merges", [])]
    else:
        return None
    letters = alphabet()
    pieces = [piece_of(bytes([byte])) for byte in range(NUM_BYTES)]
    for merge in merges:
        joined = "".join(map(str, merge))
        if len(merge) != 2 or not set(joined) <= letters.keys() or joined not in content:
            raise SubwordError(f"{file}: merge {short_repr(joined, 40)} is not one of two pieces of the vocabulary")
        pieces.append(_plain(joined, letters))
    missing = [letter for letter in letters if letter not in content]
    if missing:
        raise SubwordError(f"{file}: {len(missing)} of the 256 bytes are not in the vocabulary, such as {missing[0]!r}")
    names = _by_id({_plain(token, letters): index for token, index in content.items()}, size, file)
    return NamedVocabulary(names, Pieces(file, "byte-bpe", tuple(pieces), (0.0,) * len(pieces)))


def _plain(token: str, letters: dict[str, int]) -> str:
    """Return the name of a token that a file writes with one character a byte; other tokens are named as they are."""
    return piece_of(bytes(map(letters.__getitem__, token))) if set(token) <= letters.keys() else token


def _by_id(content: dict[str, Any], size: int, file: str) -> tuple[str, ...]:
    """Return tokens by id; ids without one are named ``<7>``.

    Raises:
        SubwordError: an id occurs twice, or is not a number below ``size``.
    """
    names: list[str | None] = [None] * size
    for token, index in content.items():
        if not isinstance(index, int) or not 0 <= index < size:
            raise SubwordError(
                f"{file}: token {short_repr(token, 40)} has id {str(index)[:20]}; ids are below {size:,}"
            )
        if names[index] is not None:
            raise SubwordError(f"{file}: tokens {names[index]!r} and {short_repr(token, 40)} have the same id {index}")
        names[index] = token
    return tuple(f"<{index}>" if name is None else name for index, name in enumerate(names))


def read_json_object(file: Path) -> dict[str, Any]:
    """Return the JSON object of a tokenizer's file; SubwordError if there is none."""
    try:
        content = json.loads(_read(file))
    except (ValueError, RecursionError) as error:
        raise SubwordError(f"{file.name} is not JSON: {shortened(str(error), 100)}") from error
    if not isinstance(content, dict):
        raise SubwordError(f"{file.name} is not a JSON object")
    return content


def read_sentencepiece(file: Path) -> Pieces:
    """Read a SentencePiece model.

    Raises:
        SubwordError: the file is damaged, or has an option that ``SubwordTokenizer`` lacks; the message names it.
    """
    try:
        model = list(_fields(_read(file)))
        pieces = [dict(_fields(_message(content))) for number, content in model if number == 1]
        trainer, normalizer, denormalizer = (
            dict(_fields(b"".join(_message(each) for each_number, each in model if each_number == number)))
            for number in (2, 3, 5)
        )
        named = [
            (_message(each[1]).decode(), _float(_message(each.get(2, bytes(4)))), each.get(3, _NORMAL))
            for each in pieces
        ]
        rule = _message(normalizer.get(1, b"")).decode()
    except (IndexError, KeyError, struct.error, TypeError, UnicodeDecodeError) as error:
        raise SubwordError(f"{file.name} is not a SentencePiece model") from error
    if not named:
        raise SubwordError(f"{file.name} is not a SentencePiece model: it has no pieces")
    kinds = {kind for *_, kind in named}
    problems = {
        f"model_type={trainer.get(3)!r}, not 1 (unigram) or 2 (bpe)": trainer.get(3, 1) not in _ALGORITHMS,
        "treat_whitespace_as_suffix": bool(trainer.get(24)),
        "add_dummy_prefix=False": not normalizer.get(3, 1),
        "escape_whitespaces=False": not normalizer.get(5, 1),
        f"normalization rule {short_repr(rule, 40)}, not one of {', '.join(_RULES)}": not _has_known_rule(
            rule, normalizer
        ),
        "rules that change the output's text": bool(denormalizer.get(2)),
        "user-defined pieces": _USER_DEFINED in kinds,
    }
    for problem, is_present in problems.items():
        if is_present:
            raise SubwordError(f"{file.name} has {problem}, which is not supported")
    in_bytes = [(piece, score) for piece, score, kind in named if kind == _BYTE]
    normal = [(piece, score) for piece, score, kind in named if kind == _NORMAL]
    if trainer.get(35) and len(in_bytes) != NUM_BYTES:
        raise SubwordError(f"{file.name} has {len(in_bytes)} pieces for bytes, not {NUM_BYTES}")
    kept = (sorted(in_bytes) if trainer.get(35) else []) + normal
    return Pieces(
        file.name,
        algorithm=_ALGORITHMS[int(trainer.get(3, 1))],
        pieces=tuple(piece for piece, _ in kept),
        scores=tuple(score for _, score in kept),
        byte_fallback=bool(trainer.get(35)),
        normalization=rule or "identity",
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
        every=tuple(piece for piece, *_ in named),
    )


def rule_of_charsmap(charsmap: bytes) -> str:
    """Return the name of the rule that SentencePiece has this table for; SubwordError if it has none."""
    import sentencepiece

    for rule in _RULES[1:]:  # identity has none
        spec = dict(_fields(sentencepiece.SentencePieceNormalizer(rule_name=rule).serialized_normalizer_spec()))
        if spec.get(2) == charsmap:
            return rule
    raise SubwordError(f"the tokenizer normalizes text by a table of its own, not by {', '.join(_RULES[1:])}")


def _has_known_rule(rule: str, normalizer: dict[int, int | bytes]) -> bool:
    return rule in _RULES if normalizer.get(2) else rule in ("", "identity")


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SubwordError(f"{file.name} cannot be read: {error.strerror or error}") from error
    if len(content) > _MAX_FILE_BYTES:
        raise SubwordError(f"{file.name} has more than {_MAX_FILE_BYTES:,} bytes, which is the limit")
    return content


# --- protocol buffers ---------------------------------------------------------------------------------------------


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a message: an int, or the bytes of anything else."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == 0:
            value, position = _varint(data, position)
            yield tag >> 3, value
            continue
        if kind not in (1, 2, 5):
            raise IndexError(kind)
        length = {1: 8, 5: 4}.get(kind, 0)
        if kind == 2:
            length, position = _varint(data, position)
        if position + length > len(data):
            raise IndexError(position)
        yield tag >> 3, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
        if shift > 63:
            raise IndexError(position)


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise TypeError(value)
    return value


def _float(data: bytes) -> float:
    """Return a float32 with as few digits as restore it."""
    (value,) = struct.unpack("<f", data)
    shorter = (float(f"{value:.{digits}g}") for digits in range(6, 10))
    return next((each for each in shorter if struct.pack("<f", each) == data), value)
