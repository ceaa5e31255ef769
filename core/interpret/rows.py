"""The rows of a decode's maps that count, and what each of their keys is."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from core.generation import GenerationResult
from core.interpret.alignment import gold_alignment
from core.tasks import Batch, Task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

BLOCKS = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class Rows:
    """Rows of one block's maps, those of all sequences of a batch one after the other.

    A row is a source position of the encoder, or a decoding step. Left out are PAD and what stands behind a
    sequence's EOS, and rows with one key to look at, such as the decoder's first: their weight is 1 in every head.
    Letters: L layers, H heads, N rows, K keys.

    Attributes:
        weights: (L, H, N, K) float.
        seen: (N, K) bool, the keys that a row may look at: not PAD, nor a token that is yet to be written.
        keys: (N, K) int64, the tokens that the keys are of.
        offsets: (N, K) int64, the key's position minus that of the row. Positions count the tokens of a sequence from
            its BOS, 0; a step's is that of the token it *read*, so a token itself is at 0 and the one before it at -1.
            Where a model reads source and target as one sequence, the target's positions follow the source's.
        sequence, index: (N,) int64, of which sequence a row is, and which of its rows, from 0.
        produced: (N, S) bool, which of the first S keys, the source, the token may come from that belongs where the
            step *produced* one; see ``gold_alignment``. None where rows are no steps that look at the source.
        read: (N, S) bool, the same for the token that the step *read*.
    """

    weights: torch.Tensor
    seen: torch.Tensor
    keys: torch.Tensor
    offsets: torch.Tensor
    sequence: torch.Tensor
    index: torch.Tensor
    produced: torch.Tensor | None = None
    read: torch.Tensor | None = None


def rows_of(block: str, task: Task, pairs: Batch, decoded: GenerationResult) -> Rows | None:
    """Return the rows of one of ``BLOCKS`` in a decode that recorded its maps; None where the model has no such block.

    Args:
        pairs: the sources that were decoded; their targets are not looked at.
    """
    weights = getattr(decoded.maps, block)
    if weights is None:
        return None
    looks_at_source = block in ("encoder", source_block(decoded))
    is_row = pairs.src != PAD_ID if block == "encoder" else made(decoded.tokens)  # (B, Q)
    positions = torch.arange(is_row.shape[1], device=is_row.device).expand_as(is_row)
    columns = []
    if looks_at_source:
        columns.append(_source_columns(pairs.src, rows=is_row.shape[1]))
    if block == "decoder":
        if looks_at_source:  # as the beginning of what it writes
            positions = positions + (pairs.src != PAD_ID).sum(dim=1, keepdim=True)
        columns.append(_written_columns(decoded.tokens, positions))
    seen, keys, places = (torch.cat(parts, dim=-1) for parts in zip(*columns, strict=True))
    counted = is_row & (seen.sum(dim=-1) > 1)
    truth = {}
    if block == source_block(decoded):
        produced = gold_alignment(task, pairs, steps=is_row.shape[1])
        truth = {"produced": produced[counted], "read": F.pad(produced, (0, 0, 1, 0))[:, :-1][counted]}
    sequence, index = counted.nonzero(as_tuple=True)
    return Rows(
        weights=weights.transpose(1, 2)[:, :, counted].float(),
        seen=seen[counted],
        keys=keys[sequence],
        offsets=places[sequence] - positions[counted][:, None],
        sequence=sequence,
        index=index,
        **truth,
    )


def source_block(decoded: GenerationResult) -> str:
    """Name the block that looks at the source while writing: "cross", or "decoder" where that read it itself."""
    return "decoder" if decoded.maps.cross is None else "cross"


def made(tokens: torch.Tensor) -> torch.Tensor:
    """Tell which steps (B, T) int64 of a decode were made, (B, T) bool: as long as no EOS was written before them."""
    ends = (tokens == EOS_ID).long()
    return ends.cumsum(dim=1) - ends == 0


def _source_columns(src: torch.Tensor, *, rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return which source columns rows see (B, rows, S), their tokens (B, S), and their positions (B, S)."""
    places = torch.arange(src.shape[1], device=src.device).expand_as(src)
    return (src != PAD_ID)[:, None].expand(-1, rows, -1), src, places


def _written_columns(tokens: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the same of the tokens read by then: seen (B, T, T), tokens (B, T), and the positions (B, T) as given."""
    read = F.pad(tokens[:, :-1], (1, 0), value=BOS_ID)
    return tokens.new_ones(tokens.shape[1], tokens.shape[1]).tril().bool().expand(len(tokens), -1, -1), read, positions
