"""Ids of PAD, BOS, EOS and UNK in a model of another program, by what its weights or a batch say about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from core.storage.errors import InputError

NUMBERINGS = ((0, 1, 2, -1), (1, 2, 3, 0), (1, 0, 2, 3))
"""PAD, BOS, EOS and UNK, -1 for none: most programs'; torchtext's tutorials'; fairseq's."""
SPECIAL = ("pad", "bos", "eos", "unk", "src_pad", "src_bos", "src_eos")
"""Names of the ids that ``special_tokens`` reads off a batch, those of sources with ``src_``."""
_FIRST_IDS = 4  # special tokens have the first ids
_FAR = 2.5  # natural logarithms below the median: a tenth as probable


def rare_ids(bias: torch.Tensor | None) -> list[int]:
    """Return the first ids that a model has learned never to write, by its output's bias (V,) float.

    PAD is not counted in the loss, and BOS and most UNK are no targets: training lowers their biases.
    """
    if bias is None or len(bias) <= 2 * _FIRST_IDS:
        return []
    usual = bias.float().median()
    spread = (bias.float() - usual).abs().median()
    return (bias[:_FIRST_IDS].float() < usual - max(_FAR, 6 * spread.item())).nonzero().flatten().tolist()


def proposed_ids(table: torch.Tensor, bias: torch.Tensor | None) -> tuple[int, int, int, int]:
    """Return the ids of PAD, BOS, EOS and UNK (-1: none) that an embedding (V, D) and the output's bias suggest.

    The only row of zeros is PAD's, where an embedding has a ``padding_idx``. Without one, the tokens that are never
    written decide.
    """
    zeros = (table == 0).all(dim=1).nonzero().flatten().tolist()
    rare = set(rare_ids(bias))
    likely = [each for each in NUMBERINGS if rare == {each[0], each[1], *([each[3]] if each[3] >= 0 else [])}]
    fitting = [each for each in likely or NUMBERINGS if len(zeros) != 1 or each[0] == zeros[0]]
    return fitting[0] if fitting else NUMBERINGS[0]


def rare_end(bias: torch.Tensor, eos: int) -> str:
    """Return a note if a model has learned never to write its EOS, which cannot be; "" otherwise."""
    if eos not in (rare := rare_ids(bias)):
        return ""
    return (
        f"eos_id={eos} is a token that the model never writes: its output bias is {bias[eos].item():.1f}, and the "
        f"median {bias.float().median().item():.1f}; PAD, BOS and UNK should be among {', '.join(map(str, rare))}"
    )


@dataclass
class SpecialTokens:
    """Ids of PAD, BOS, EOS and UNK in sources and in targets, -1 for none, and how they were found.

    Attributes:
        doubts: what the batch does not show, one sentence each.
    """

    source: tuple[int, int, int, int]
    target: tuple[int, int, int, int]
    doubts: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{_named('targets', self.target)}; {_named('sources', self.source)}"


def _named(side: str, ids: tuple[int, ...]) -> str:
    names = zip(("PAD", "BOS", "EOS", "UNK"), ids, strict=True)
    return f"{side}: {', '.join(f'{name} {index}' for name, index in names if index >= 0)}"


def special_tokens(
    src: torch.Tensor,
    tgt_in: torch.Tensor,
    given: Mapping[str, int | None],
    padding_idx: int | None = None,
) -> SpecialTokens:
    """Read special tokens off a batch: what every row begins with, ends with, and is filled up with.

    Args:
        src: (B, S) int64.
        tgt_in: (B, T) int64, the decoder input.
        given: ids by names of ``SPECIAL``; None to read them off the batch, -1 if there is none.
        padding_idx: of the embeddings, if they have one.

    Raises:
        InputError: the batch does not show one of them; the message names it.
    """
    doubts: list[str] = []
    tgt_pad = _pad_of("tgt_in", tgt_in, given["pad"], padding_idx)
    src_pad = given["pad"] if given["src_pad"] is None else given["src_pad"]
    src_pad = _pad_of("src", src, src_pad, padding_idx)
    pads = [tgt_pad if src_pad is None else src_pad, src_pad if tgt_pad is None else tgt_pad]
    if pads[0] is None or pads[1] is None:
        raise InputError("pad: no row of src or tgt_in is padded, and the embeddings have no padding_idx; pass pad=")
    for side, own, other in (("sources", src_pad, "targets"), ("targets", tgt_pad, "sources")):
        if own is None:
            doubts.append(
                f"PAD of {side} is taken for that of {other}, {pads[0]}: no row shows it; pass pad= or src_pad="
            )
    bos = _begin(tgt_in) if given["bos"] is None else given["bos"]
    if bos is None:
        raise InputError("bos: the rows of tgt_in do not begin with the same id; pass bos=")
    src_bos, src_eos = given["src_bos"], given["src_eos"]
    if src_bos is None:
        begin = _begin(src)
        src_bos = -1 if begin is None or not (begin == bos or _occurs_once(src, begin)) else begin
    if src_eos is None:
        end = _end(src, pads[0])
        src_eos = -1 if end is None or (given["eos"] is not None and end != given["eos"]) else end
    eos = _end(tgt_in[tgt_in[:, -1] == pads[1]], pads[1]) if given["eos"] is None else given["eos"]
    if eos is None:
        if src_eos < 0:
            raise InputError("eos: no row of tgt_in ends before its padding, and sources have no end; pass eos=")
        eos = src_eos
        doubts.append(f"EOS of targets is taken for that of sources, {eos}: no row of tgt_in shows it; pass eos=")
    unk = -1 if given["unk"] is None else given["unk"]
    return SpecialTokens((pads[0], src_bos, src_eos, unk), (pads[1], bos, eos, unk), doubts)


def _pad_of(side: str, ids: torch.Tensor, given: int | None, padding_idx: int | None) -> int | None:
    """Return PAD of a side; None if nothing says it."""
    if given is not None or padding_idx is not None:
        return padding_idx if given is None else given
    found = [index for index in ids[:, -1].unique().tolist() if _fills_up(ids, index)]
    if len(found) > 1:
        raise InputError(f"pad: rows of {side} end with {' and with '.join(map(str, found))}; pass pad=")
    return found[0] if found else None


def _fills_up(ids: torch.Tensor, index: int) -> bool:
    """Whether an id only follows all others, and not merely as the one that ends a row."""
    last = _last(ids, index)
    counts = (ids == index).sum(dim=1)
    if bool((counts != ids.shape[1] - 1 - last).any()) or bool((last < 0).any()):
        return False
    before = ids.gather(1, last[:, None])[counts > 0].unique()
    return bool(counts.max() > 1) or bool((counts > 0).sum() > 1 and len(before) == 1)


def _last(ids: torch.Tensor, pad: int) -> torch.Tensor:
    """Return the position of the last id that is not PAD, (B,) int64; -1 without one."""
    positions = torch.arange(ids.shape[1], device=ids.device)
    return positions.where(ids != pad, -1).amax(dim=1)


def _begin(ids: torch.Tensor) -> int | None:
    """Return what all rows begin with; None if they differ."""
    return int(ids[0, 0]) if bool((ids[:, 0] == ids[0, 0]).all()) else None


def _end(ids: torch.Tensor, pad: int) -> int | None:
    """Return what all rows end with before PAD, and have nowhere else; None if there is no such id."""
    if not len(ids):
        return None
    last = ids.gather(1, _last(ids, pad).clamp(min=0)[:, None])
    end = int(last[0])
    return end if bool((last == end).all()) and _occurs_once(ids, end) else None


def _occurs_once(ids: torch.Tensor, index: int) -> bool:
    return bool(((ids == index).sum(dim=1) == 1).all())
