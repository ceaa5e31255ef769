"""Vocabularies of models that number the pieces of a SentencePiece model in ways of their own, and add languages."""

import base64
import re
from pathlib import Path
from typing import Any

from core.runs.tokenizer_files import (
    TOKENIZER,
    UNKNOWN,
    VOCABULARY,
    NamedVocabulary,
    Pieces,
    read_json_object,
    read_sentencepiece,
    rule_of_charsmap,
)
from core.text.subwords import SubwordError

FILES = {"mbart": "sentencepiece.bpe.model", "m2m_100": "sentencepiece.bpe.model"}
FILES |= {"pegasus": "spiece.model", "t5": "spiece.model"}
_FAIRSEQ = ("<s>", "<pad>", "</s>", UNKNOWN)  # what fairseq numbers first, in place of SentencePiece's first three
_PEGASUS = ("<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, 103)))
_M2M100 = (  # in the order of their ids, which the tokenizer's files do not have
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy "
    "id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro "
    "ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
)
_SENTINELS = 100  # of T5, numbered downwards; mT5 has none
_CONFIG, _ADDED, _SPECIAL = "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"
_LANGUAGE = re.compile("__[a-z]{2,4}__|[a-z]{2}_[A-Z]{2}|[a-z]{3}_[A-Z][a-z]{3}")  # of M2M-100, mBART and NLLB
_SUFFIXED = "MBartTokenizer"  # writes the language after </s>


def spm_vocabulary(folder: Path, size: int, kind: str) -> NamedVocabulary | None:
    """Read the vocabulary of a folder; None if it has none of its files.

    Args:
        size: tokens of the model.
        kind: the ``model_type``, one of ``FILES``.

    Raises:
        SubwordError: a file is damaged, or has something that ``SubwordTokenizer`` lacks.
    """
    config = _object(folder / _CONFIG)
    if kind == "mbart" and str(config.get("tokenizer_class", "")).removesuffix("Fast") == _SUFFIXED:
        raise SubwordError(
            f"{_CONFIG}: tokenizer_class={_SUFFIXED} writes the language after </s>, which is not supported"
        )
    file = folder / FILES[kind]
    if file.is_file():
        pieces = read_sentencepiece(file)
        names = _numbered(folder, kind, pieces.every, config.get("extra_ids", _SENTINELS))
    elif (folder / TOKENIZER).is_file():
        pieces = _pieces_of(folder / TOKENIZER)
        names = dict(enumerate(pieces.every))
    else:
        return None
    names |= _added(folder, config)
    default = config.get("src_lang")
    return NamedVocabulary(
        _in_order(names, size),
        pieces,
        languages=tuple(name for _, name in sorted(names.items()) if _LANGUAGE.fullmatch(name)),
        default_language=default if isinstance(default, str) else "",
    )


def _numbered(folder: Path, kind: str, every: tuple[str, ...], num_sentinels: int) -> dict[int, str]:
    """Return the names of tokens by id, for the pieces of a SentencePiece model; sentinels are T5's."""
    extra = _listed(_object(folder / _SPECIAL).get("additional_special_tokens"))
    if (folder / VOCABULARY).is_file():
        content = read_json_object(folder / VOCABULARY)
        names = {index: token for token, index in content.items() if isinstance(index, int)}
        return names | dict(enumerate(extra or [f"__{code}__" for code in _M2M100.split()], start=len(content)))
    if kind == "pegasus":
        return dict(enumerate([*_PEGASUS, UNKNOWN, *every[3:]]))
    if kind == "t5":
        return dict(enumerate([*every, *(f"<extra_id_{number}>" for number in reversed(range(num_sentinels)))]))
    return dict(enumerate(dict.fromkeys([*_FAIRSEQ, *every[3:], *extra, "<mask>"])))


def _added(folder: Path, config: dict[str, Any]) -> dict[int, str]:
    """Return the tokens that files name with their ids."""
    added = {int(index): each for index, each in (config.get("added_tokens_decoder") or {}).items() if index.isdigit()}
    named = {index: each["content"] for index, each in added.items() if isinstance(each, dict) and "content" in each}
    named |= {index: token for token, index in _object(folder / _ADDED).items() if isinstance(index, int)}
    for each in _object(folder / TOKENIZER).get("added_tokens") or []:
        named[each["id"]] = each["content"]
    return named


def _in_order(names: dict[int, str], size: int) -> tuple[str, ...]:
    """Return tokens by id; ids without one are named ``<7>``."""
    if max(names) >= size:
        raise SubwordError(f"the tokenizer has the id {max(names)}; ids are below {size:,}")
    return tuple(names.get(index, f"<{index}>") for index in range(size))


def _pieces_of(file: Path) -> Pieces:
    """Read the model of a ``tokenizer.json`` that was made of a SentencePiece model."""
    document = read_json_object(file)
    model = document.get("model")
    if not isinstance(model, dict) or model.get("type") not in ("Unigram", "BPE") or model.get("byte_fallback"):
        raise SubwordError(f"{file.name}: its model is neither unigram nor BPE without bytes, as SentencePiece's are")
    added = {each["content"] for each in document.get("added_tokens") or []}
    is_bpe = model["type"] == "BPE"
    vocabulary = _ranked(model) if is_bpe else [(str(piece), float(score)) for piece, score in model["vocab"]]
    kept = [(piece, score) for piece, score in vocabulary if piece not in added and piece != UNKNOWN]
    steps = _steps(document.get("normalizer"))
    charsmaps = [each["precompiled_charsmap"] for each in steps if each.get("type") == "Precompiled"]
    known = {"Precompiled", "Replace", "Strip"}
    if others := [each.get("type") for each in steps if each.get("type") not in known]:
        raise SubwordError(f"{file.name}: its normalizer has {others[0]}, which is not supported")
    splits = {each.get("type") for each in _steps(document.get("pre_tokenizer"))}
    return Pieces(
        file.name,
        algorithm="bpe" if is_bpe else "unigram",
        pieces=tuple(piece for piece, _ in kept),
        scores=tuple(score for _, score in kept),
        normalization=rule_of_charsmap(base64.b64decode(charsmaps[0])) if charsmaps else "identity",
        remove_extra_whitespaces=any(each.get("type") == "Replace" for each in steps) or "WhitespaceSplit" in splits,
        every=tuple(piece for piece, _ in vocabulary),
    )


def _ranked(model: dict[str, Any]) -> list[tuple[str, float]]:
    """Return the tokens of a BPE model by id, with SentencePiece's scores: the earlier merged, the higher."""
    merges = [each.split(" ") if isinstance(each, str) else each for each in model["merges"]]
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(merges):
        ranks.setdefault(f"{left}{right}", rank)
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return [(token, -float(ranks.get(token, len(merges) + index))) for index, token in enumerate(tokens)]


def _steps(part: Any) -> list[dict[str, Any]]:
    """Return the steps of a normalizer or pre-tokenizer, which may be a sequence."""
    if not isinstance(part, dict):
        return []
    inner = part.get("normalizers") or part.get("pretokenizers")
    return [step for each in inner for step in _steps(each)] if inner else [part]


def _object(file: Path) -> dict[str, Any]:
    return read_json_object(file) if file.is_file() else {}


def _listed(tokens: Any) -> list[str]:
    """Return the names of a list of tokens, each a name or an object with one."""
    return [str(each["content"] if isinstance(each, dict) else each) for each in tokens or []]
