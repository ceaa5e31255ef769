"""Subword tokenizers: BPE and unigram vocabularies, learned and applied by SentencePiece.

A piece at the beginning of a word begins with ``▁`` (U+2581), which stands for the space before it. Characters outside
the vocabulary are written as their UTF-8 bytes, such as ``<0xF0>``, so there are no unknown tokens and every text can
be restored. Vocabularies of imported models may lack the bytes, normalize text, or have whole words as their pieces.
"""

import io
import re
import struct
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from core.storage.errors import InputError, LabError
from core.storage.validation_errors import first_problem
from core.text.byte_bpe import ByteBPE, content_of
from core.text.validation import quote
from core.text.vocab import SPECIAL_TOKENS

Algorithm = Literal["bpe", "unigram"]
Normalization = Literal["identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"]

WORD_START = "\u2581"
NUM_BYTES = 256
_SENTENCEPIECE_UNK = "<unk>"
_MAX_SCORE = 1e9  # those learned are log-probabilities or ranks; SentencePiece adds them up in float32
_MASK = "<mask>"  # of BART, which fills in masked text
_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(NUM_BYTES))
_SINGLE_BYTES = {bytes([byte]) for byte in range(NUM_BYTES)}
CHARACTER_COVERAGE = 0.9999  # of the training text; rarer characters are written as bytes
_MAX_TEXTS = 500_000  # to learn from; more would change the vocabulary little
MAX_PIECES, _MAX_PIECE_LENGTH = 300_000, 128
_SURROGATE = re.compile("[\ud800-\udfff]")


class SubwordError(LabError):
    """A vocabulary cannot be learned or read; the message says why."""


class SubwordTokenizer(BaseModel):
    """Split text into pieces of words and join them again; ``detokenize(tokenize(text)) == text`` for every text.

    Only imported models have non-default values of ``byte_fallback`` and the following attributes; text is then
    restored as far as normalization and unknown pieces allow.

    Attributes:
        algorithm: "bpe" merges the most frequent pairs of pieces (Sennrich et al. 2016); "unigram" chooses the most
            probable segmentation (Kudo 2018); "byte-bpe" is ``core.text.byte_bpe``; "words" splits at spaces, and each
            word is a piece; of "characters" each is a piece. Only imported models have the last three.
        pieces: what text is split into, the 256 bytes first.
        scores: order of the merges (BPE), or log-probabilities (unigram), of each piece; 0 for the last three.
        byte_fallback: whether the bytes are among the pieces, so that no piece is unknown.
        normalization: SentencePiece's rule for normalizing text before it is split.
        remove_extra_whitespaces: whether surrounding and repeated spaces are dropped.
        vocabulary: the model's tokens by id, special ones not counted, if they are not the pieces.
        has_unk: whether the model has a token for unknown pieces.
        first_piece: a token before every text, such as BART's ``<s>``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    algorithm: Algorithm | Literal["byte-bpe", "words", "characters"]
    pieces: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_PIECES)]
    scores: tuple[float, ...]
    byte_fallback: bool = True
    normalization: Normalization = "identity"
    remove_extra_whitespaces: bool = False
    vocabulary: Annotated[tuple[str, ...], Field(max_length=MAX_PIECES)] = ()
    has_unk: bool = False
    first_piece: Annotated[str, Field(max_length=_MAX_PIECE_LENGTH)] = ""

    @model_validator(mode="after")
    def _check_pieces(self) -> "SubwordTokenizer":
        if len(self.scores) != len(self.pieces):
            raise ValueError(f"there are {len(self.pieces)} pieces and {len(self.scores)} scores")
        if self.byte_fallback and (len(self.pieces) <= NUM_BYTES or self.pieces[:NUM_BYTES] != _BYTES):
            raise ValueError("the first 256 pieces are not the bytes")
        for tokens in (self.pieces, self.vocabulary):
            if len(set(tokens)) < len(tokens):
                raise ValueError("a piece occurs twice")
            for piece in tokens:
                if not 0 < len(piece) <= _MAX_PIECE_LENGTH or _SURROGATE.search(piece) or "\0" in piece:
                    raise ValueError(f"{quote(piece)} is not a piece")
                if piece in SPECIAL_TOKENS:
                    raise ValueError(f"{piece} is not a piece but a special token")
        if self.algorithm not in get_args(Algorithm):
            self._check_without_sentencepiece()
        else:
            self._check_for_sentencepiece()
        return self

    def _check_for_sentencepiece(self) -> None:
        if _SENTENCEPIECE_UNK in self.pieces:
            raise ValueError(f"{_SENTENCEPIECE_UNK} is not a piece but SentencePiece's token for unknown ones")
        for piece, score in zip(self.pieces, self.scores, strict=True):
            if abs(score) > _MAX_SCORE:
                raise ValueError(f"{quote(piece)} has the score {score:g}, and scores are at most {_MAX_SCORE:g}")

    def _check_without_sentencepiece(self) -> None:
        if self.byte_fallback or self.normalization != "identity" or self.remove_extra_whitespaces:
            raise ValueError(f"{self.algorithm!r} has neither byte_fallback nor normalization")
        if self.algorithm == "byte-bpe" and {content_of(each) for each in self.pieces[:NUM_BYTES]} != _SINGLE_BYTES:
            raise ValueError("the first 256 pieces are not the bytes")
        for piece in self.pieces if self.algorithm == "words" else ():
            if not piece.startswith(WORD_START) or piece[1:].split() != [piece[1:]]:
                raise ValueError(f"{quote(piece)} is not a word after {WORD_START}")

    @classmethod
    def learn(cls, texts: Iterable[str], *, algorithm: Algorithm, vocabulary_size: int) -> "SubwordTokenizer":
        """Learn a vocabulary; the result depends only on the arguments.

        Args:
            texts: of the training split only.
            vocabulary_size: maximum number of pieces, the 256 bytes included; a small text has fewer.

        Raises:
            SubwordError: the size is too small for the characters of the texts, or there is nothing to learn.
        """
        import sentencepiece

        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(_checked(texts)),
                model_writer=model,
                model_type=algorithm,
                vocab_size=vocabulary_size + 1,  # <unk>, which the bytes replace
                hard_vocab_limit=False,
                character_coverage=CHARACTER_COVERAGE,
                byte_fallback=True,
                split_digits=True,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                max_sentence_length=2**20,
                input_sentence_size=_MAX_TEXTS,
                shuffle_input_sentence=False,
                num_threads=1,
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                minloglevel=2,
            )
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1][:200]
            raise SubwordError(
                f"vocabulary_size={vocabulary_size} cannot be learned from these texts: {reason}"
            ) from error
        learned = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        ids = [index for index in range(learned.vocab_size()) if not learned.is_unknown(index)]
        return cls(
            algorithm=algorithm,
            pieces=tuple(map(learned.id_to_piece, ids)),
            scores=tuple(map(learned.get_score, ids)),
        )

    @property
    def tokens(self) -> tuple[str, ...]:
        """The model's tokens in the order of their ids, special tokens not counted."""
        return self.vocabulary or self.pieces

    def tokenize(self, text: str) -> list[str]:
        """Split a text into pieces, after a language code such as ``>>fra<<`` if the vocabulary has it.

        Raises:
            InputError: the text contains ``▁`` (U+2581), which marks spaces, or unpaired surrogates; or a word that is
                unknown to a model without a token for unknown ones.
        """
        _check(text)
        return [*([self.first_piece] if self.first_piece else []), *self._split(text)]

    def _split(self, text: str) -> list[str]:
        if self.algorithm == "words":
            return self._known_pieces([WORD_START + word for word in text.split()])
        if self.algorithm == "characters":
            return self._known_pieces(list(text.replace(" ", WORD_START)))
        if self.algorithm == "byte-bpe":
            return self._byte_bpe_pieces(text)
        code, end, rest = text.partition("<<")
        if self.vocabulary and end and code.startswith(">>") and code + end in self._known:
            return [code + end, *self._processor.encode(rest, out_type=str)]
        return self._processor.encode(text, out_type=str)

    def detokenize(self, pieces: Sequence[str], /) -> str:
        """Join pieces to text; bytes that are not UTF-8 become U+FFFD, and other tokens are unchanged."""
        if self.first_piece and pieces and pieces[0] == self.first_piece:
            pieces = pieces[1:]
        if self.algorithm == "words":
            return " ".join(piece.removeprefix(WORD_START) for piece in pieces)
        if self.algorithm == "characters":
            return "".join(pieces).replace(WORD_START, " ")
        if self.algorithm == "byte-bpe":
            return self._byte_bpe.decode(pieces)
        return self._processor.decode_pieces(list(pieces))

    def model_proto(self) -> bytes:
        """Return the vocabulary as a SentencePiece model file (``.model``), for other programs.

        Raises:
            SubwordError: the algorithm is not one of SentencePiece's.
        """
        if self.algorithm not in get_args(Algorithm):
            raise SubwordError(f"subwords of the algorithm {self.algorithm!r} have no SentencePiece model")
        return _model_proto(self)

    def _known_pieces(self, pieces: list[str]) -> list[str]:
        """Return pieces as they are; InputError if one is unknown and there is no token for unknown ones."""
        for position, piece in enumerate(pieces, start=1):
            if not self.has_unk and piece not in self._known:
                shown, *others = (self._shown(each) for each in (piece, *self.pieces[:12]))
                raise InputError(
                    f"{quote(shown)} at position {position} is not one of the {len(self.pieces):,} tokens: "
                    f"{' '.join(others)} …"
                )
        return pieces

    def _shown(self, piece: str) -> str:
        return piece.removeprefix(WORD_START) if self.algorithm == "words" else piece.replace(WORD_START, "␣")

    def _byte_bpe_pieces(self, text: str) -> list[str]:
        """Split a text at ``<mask>``, which takes the space before it with it, and each part into pieces."""
        if _MASK not in self._known:
            return self._byte_bpe.encode(text)
        first, *others = text.split(_MASK)
        parts = [first, *others]
        pieces: list[str] = []
        for number, part in enumerate(parts):
            is_last = number == len(others)
            pieces += self._byte_bpe.encode(part if is_last else part.rstrip())
            pieces += [] if is_last else [_MASK]
        return pieces

    @cached_property
    def _byte_bpe(self) -> ByteBPE:
        return ByteBPE(self.pieces)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.tokens)

    @cached_property
    def _processor(self):  # noqa: ANN202 - sentencepiece has no types
        import sentencepiece

        return sentencepiece.SentencePieceProcessor(model_proto=self.model_proto())


class SubwordTokenizers(BaseModel):
    """The tokenizers of a task, as they are stored with a run: one for both sides, or one each.

    Attributes:
        joint: whether the source's tokenizer is the target's too.
        source: of the source.
        target: of the target; None if it is the source's.
        answer_start: the ``first_piece`` of the target's tokenizer, if it differs from the source's.
        force_start: whether every output is made to begin with ``answer_start``, such as a language.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["attention-lab-subwords-1"] = "attention-lab-subwords-1"
    joint: bool
    source: SubwordTokenizer
    target: SubwordTokenizer | None
    answer_start: Annotated[str, Field(max_length=_MAX_PIECE_LENGTH)] = ""
    force_start: Annotated[bool, Field(exclude_if=lambda value: not value)] = False  # so that older hashes stay

    @model_validator(mode="after")
    def _check_target(self) -> "SubwordTokenizers":
        if self.joint != (self.target is None):
            raise ValueError("a joint tokenizer has no target beside it, and one for each side has")
        if self.force_start and self.answer_start not in (self.target or self.source).tokens:
            raise ValueError(f"answer_start={quote(self.answer_start)} is not a token of the target")
        return self

    @classmethod
    def from_json(cls, content: bytes | str, label: str) -> "SubwordTokenizers":
        """Read and validate tokenizers, which may come from anyone.

        Raises:
            SubwordError: the content is not what ``model_dump_json`` writes; the message begins with ``label``.
        """
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            raise SubwordError(f"{label} is not valid: {first_problem(error)}") from error

    @cached_property
    def sides(self) -> tuple[SubwordTokenizer, SubwordTokenizer]:
        """Tokenizer of the source and of the target."""
        target = self.target or self.source
        if self.answer_start:
            target = target.model_copy(update={"first_piece": self.answer_start})
        return self.source, target


def _check(text: str) -> None:
    if WORD_START in text:
        raise InputError(f"input has the character {WORD_START} (U+2581), which the tokenizer uses to mark spaces")
    if _SURROGATE.search(text):
        raise InputError("input has an unpaired surrogate, which is not a character")


def _checked(texts: Iterable[str]) -> Iterable[str]:
    for text in texts:
        _check(text)
        yield text


# --- SentencePiece's model file -----------------------------------------------------------------------------------
# SentencePiece reads its vocabulary from a protocol buffer (sentencepiece_model.proto). It is written here from a
# checked vocabulary, so that SentencePiece never parses an untrusted file.

_NORMAL, _UNKNOWN, _BYTE = 1, 2, 6  # SentencePiece.Type
_MODEL_TYPES = {"unigram": 1, "bpe": 2}  # TrainerSpec.ModelType


def _model_proto(tokenizer: SubwordTokenizer) -> bytes:
    """Return the vocabulary as SentencePiece's ModelProto."""
    pieces = [_piece(_SENTENCEPIECE_UNK, 0.0, _UNKNOWN)]
    num_bytes = NUM_BYTES if tokenizer.byte_fallback else 0
    for number, (piece, score) in enumerate(zip(tokenizer.pieces, tokenizer.scores, strict=True)):
        pieces.append(_piece(piece, score, _BYTE if number < num_bytes else _NORMAL))
    trainer = b"".join(
        _number(field, value)
        for field, value in (
            (3, _MODEL_TYPES[tokenizer.algorithm]),
            (4, len(pieces)),
            (35, tokenizer.byte_fallback),
            (40, 0),  # unk_id
            (41, -1),  # bos_id
            (42, -1),  # eos_id
            (43, -1),  # pad_id
        )
    )
    return b"".join(pieces) + _bytes(2, trainer) + _bytes(3, _normalizer(tokenizer))


def _normalizer(tokenizer: SubwordTokenizer) -> bytes:
    """Return SentencePiece's NormalizerSpec; the tables of its rules are SentencePiece's own."""
    remove = tokenizer.remove_extra_whitespaces
    if tokenizer.normalization == "identity":
        return _bytes(1, b"identity") + _number(3, True) + _number(4, remove) + _number(5, True)
    import sentencepiece

    normalizer = sentencepiece.SentencePieceNormalizer(
        rule_name=tokenizer.normalization,
        add_dummy_prefix=True,
        escape_whitespaces=True,
        remove_extra_whitespaces=remove,
    )
    return normalizer.serialized_normalizer_spec()


def _piece(piece: str, score: float, kind: int) -> bytes:
    return _bytes(1, _bytes(1, piece.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, kind))


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value % 2**64)  # negative numbers are 64-bit two's complement


def _varint(value: int) -> bytes:
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
