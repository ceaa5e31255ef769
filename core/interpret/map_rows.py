"""Attention maps as a flat list of valid rows: what every measure of a head is averaged over."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from core.generation import GenerationResult
from core.models import Seq2Seq
from core.models.seq2seq import Block
from core.storage.errors import InputError
from core.tasks import Batch, Task, unpadded_batches
from core.tasks.alignment import gold_alignment
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

MAX_WEIGHTS = 20_000_000  # recorded together, 4 bytes each; measuring them takes a small multiple of that


@dataclass(frozen=True)
class MapRows:
    """The valid rows of one block's attention maps, of all sequences of a batch, concatenated.

    A row is a source position (encoder) or a decoding step. Left out are source positions that nothing may attend to,
    such as PAD, steps after EOS, and rows with a single visible key, such as the decoder's first: their weight is 1 in
    every head.
    Letters: L layers, H heads, N rows, K keys, S source columns.

    Attributes:
        weights: (L, H, N, K) float.
        visible: (N, K) bool, True where the row may attend: not PAD or what the model masks, no token generated later.
        keys: (N, K) int64, the token ids of the keys.
        offsets: (N, K) int64, position of the key minus position of the row. Positions count a sequence's tokens from
            its BOS, 0. A step has the position of the token it *read*: that token is at offset 0, the one before it
            at -1. In a decoder-only model the target's positions continue the source's.
        sequence: (N,) int64, the row's sequence in the batch.
        index: (N,) int64, the row's index in its map, from 0.
        produced: (N, S) bool, gold alignment of the token the step *produces*, over the first S keys (the source); see
            ``gold_alignment``. None for blocks with rows that do not attend to the source during decoding.
        read: (N, S) bool, gold alignment of the token the step *read*; None in the same blocks, and in an encoder-only
            model, which reads no tokens.
    """

    weights: torch.Tensor
    visible: torch.Tensor
    keys: torch.Tensor
    offsets: torch.Tensor
    sequence: torch.Tensor
    index: torch.Tensor
    produced: torch.Tensor | None = None
    read: torch.Tensor | None = None


def map_rows(block: Block, task: Task, pairs: Batch, result: GenerationResult) -> MapRows | None:
    """Return the valid rows of a block in a generation that recorded its maps; None if the model has no such block.

    Args:
        block: one of ``BLOCKS``.
        pairs: the decoded sources; their targets are not used.
    """
    maps = result.maps
    weights: torch.Tensor | None = None if maps is None else getattr(maps, block)
    if maps is None or weights is None:
        return None
    attends_to_source = block in ("encoder", source_block(result))
    in_source = pairs.src != PAD_ID if maps.source_mask is None else maps.source_mask  # (B, S)
    is_row = in_source if block == "encoder" else generated_steps(result.tokens)  # (B, Q)
    positions = torch.arange(is_row.shape[1], device=is_row.device).expand_as(is_row)
    columns = []
    if attends_to_source:
        columns.append(_source_columns(pairs.src, in_source, rows=is_row.shape[1]))
    if block == "decoder":
        if attends_to_source:  # decoder-only: the target continues the source's positions
            places = torch.arange(1, in_source.shape[1] + 1, device=in_source.device)
            positions = positions + (in_source * places).amax(dim=1, keepdim=True)
        columns.append(_target_columns(result.tokens, positions))
    visible, keys, key_positions = (torch.cat(parts, dim=-1) for parts in zip(*columns, strict=True))
    if maps.window and block != "cross":
        visible = visible & ((key_positions[:, None] - positions[..., None]).abs() <= maps.window)
    is_valid = is_row & (visible.sum(dim=-1) > 1)
    gold: dict[str, torch.Tensor] = {}
    if block == source_block(result):
        first = first_step_row(block)
        produced = F.pad(gold_alignment(task, pairs, result.tokens, steps=is_row.shape[1] - first), (0, 0, first, 0))
        produced &= in_source[:, None]
        if block == "encoder":
            produced &= _generated_rows(result.tokens, is_row.shape[1])[..., None]
        else:
            gold["read"] = F.pad(produced, (0, 0, 1, 0))[:, :-1][is_valid]
        gold["produced"] = produced[is_valid]
    sequence, index = is_valid.nonzero(as_tuple=True)
    return MapRows(
        weights=weights.transpose(1, 2)[:, :, is_valid].float(),
        visible=visible[is_valid],
        keys=keys[sequence],
        offsets=key_positions[sequence] - positions[is_valid][:, None],
        sequence=sequence,
        index=index,
        **gold,
    )


def source_block(result: GenerationResult) -> Block:
    """Return the block through which the answer attends to the source.

    It is "cross", "decoder" in a decoder-only model and "encoder" in an encoder-only one.
    """
    maps = result.maps
    if maps is not None and maps.cross is not None:
        return "cross"
    return "decoder" if maps is None or maps.decoder is not None else "encoder"


def first_step_row(block: Block) -> int:
    """Return the row of the first step in a map over the source: 1 in the encoder, where row 0 is BOS, otherwise 0."""
    return int(block == "encoder")


def generated_steps(tokens: torch.Tensor) -> torch.Tensor:
    """Return (B, T) bool, True at the steps of ``tokens`` (B, T) int64 up to and including EOS."""
    ends = (tokens == EOS_ID).long()
    return ends.cumsum(dim=1) - ends == 0


def _generated_rows(tokens: torch.Tensor, count: int) -> torch.Tensor:
    """Return (B, count) bool: the rows of an encoder-only model's map that belong to steps of ``tokens`` (B, T)."""
    rows = F.pad(generated_steps(tokens), (first_step_row("encoder"), 0))
    return F.pad(rows, (0, max(0, count - rows.shape[1])))[:, :count]


def recordable_chunks(model: Seq2Seq, pairs: Batch) -> Iterator[tuple[torch.Tensor, Batch]]:
    """Split pairs into chunks without padding that each record at most ``MAX_WEIGHTS`` attention weights.

    The bound assumes answers of the model's maximum length. A chunk has at least one sequence.

    Args:
        model: in evaluation mode.

    Yields:
        The indices (N,) int64 of a chunk's pairs in ``pairs``, and the chunk.

    Raises:
        InputError: the model has no heads.
    """
    if not model.heads:
        raise InputError("this model has no attention heads")
    for indices, chunk in unpadded_batches(pairs):
        source = chunk.src.shape[1]
        weights_per_head = max(source, model.max_seq_len) * (source + model.max_seq_len)  # upper bound
        for rows in torch.arange(len(chunk)).split(max(1, MAX_WEIGHTS // (len(model.heads) * weights_per_head))):
            yield indices[rows], chunk[rows]


def _source_columns(
    src: torch.Tensor, in_source: torch.Tensor, *, rows: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the source's visibility (B, rows, S) bool, token ids (B, S) and positions (B, S)."""
    positions = torch.arange(src.shape[1], device=src.device).expand_as(src)
    return in_source[:, None].expand(-1, rows, -1), src, positions


def _target_columns(tokens: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the decoder input's visibility (B, T, T) bool, token ids (B, T) and the given positions (B, T)."""
    decoder_input = F.pad(tokens[:, :-1], (1, 0), value=BOS_ID)
    causal = tokens.new_ones(tokens.shape[1], tokens.shape[1]).tril().bool()
    return causal.expand(len(tokens), -1, -1), decoder_input, positions
