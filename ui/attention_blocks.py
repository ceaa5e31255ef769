"""Names, axes and captions of the attention blocks: cross-attention, decoder and encoder self-attention."""

from collections.abc import Collection
from typing import Any

from core.interpret.snapshots import SnapshotOutput
from core.models.seq2seq import Block

BLOCK_NAMES: dict[Block, str] = {
    "cross": "cross-attention",
    "decoder": "decoder self-attention",
    "encoder": "encoder self-attention",
}
_CAPTIONS: dict[Block, str] = {
    "cross": "Each row is one decoding step, labeled with the token it produced and the one before it; the columns "
    "are the input. A stronger color is more attention. Rows sum to 1.",
    "decoder": "Each row is one decoding step; the columns are the tokens before it. The causal mask leaves "
    "everything above the diagonal empty. A stronger color is more attention. Rows sum to 1.",
    "encoder": "Each row is an input token (query), each column an input token it attends to (key). A stronger color "
    "is more attention. Rows sum to 1.",
}
_DECODER_ONLY_CAPTION = (
    "Each row is one decoding step, labeled with the token it produced and the one before it; the columns are the "
    "input, followed by the output tokens so far. This decoder-only model reads its input as a prefix of the "
    "output. A stronger color is more attention. Rows sum to 1."
)
_ENCODER_ONLY_CAPTION = (
    "Each row is an input token (query), each column an input token it attends to (key). This encoder-only model "
    "predicts all tokens of its answer at once, each at the position of an input token. A stronger color is more "
    "attention. Rows sum to 1."
)
_OWN_CAPTION = (
    "Each row is one position under teacher forcing, labeled with the token that the model predicts there and the "
    "token of the reference that it has just read. A stronger color is more attention. Rows sum to 1."
)
_OWN_ENCODER_CAPTION = _CAPTIONS["encoder"]
_RECURRENT_ENCODER_NOTE = " The encoder is recurrent: a column stands for the input up to and including its token."
_LIMITATION = " Attention alone does not explain an answer: ablation, below, tests what a head contributes."
_COLUMNS = {
    "source": "input tokens",
    "read": "<BOS> and the output so far",
    "source and read": "input tokens, then the output so far",
}


def source_block(blocks: Collection[Block]) -> Block:
    """Return the attention block through which the answer attends to the source, among the blocks of a model."""
    if "cross" in blocks:
        return "cross"
    return "encoder" if "encoder" in blocks else "decoder"


def columns_of(block: Block, blocks: Collection[Block]) -> str:
    """Return what the columns (keys) of a map are: "source", "read" or "source and read"."""
    if block != "decoder":
        return "source"
    return "read" if "cross" in blocks else "source and read"


def columns_of_maps(output: SnapshotOutput) -> dict[Block, str]:
    """Return what the columns of recorded maps are, see ``columns_of``, by block."""
    columns = {block: columns_of(block, output.maps) for block in output.maps}
    if "decoder" in output.maps and output.maps["decoder"].shape[3] == len(output.tokens):
        columns["decoder"] = "read"  # a user's own model has no cross-attention that could be seen, or no source
    return columns


def how_to_read(block: Block, blocks: Collection[Block]) -> str:
    """Return the caption of a map, for a model with these attention blocks."""
    if "cross" not in blocks:
        return (_ENCODER_ONLY_CAPTION if block == "encoder" else _DECODER_ONLY_CAPTION) + _LIMITATION
    return _CAPTIONS[block] + ("" if "encoder" in blocks else _RECURRENT_ENCODER_NOTE) + _LIMITATION


def described(blocks: Collection[Block]) -> list[dict[str, Any]]:
    """Return name, axes and caption of each attention block of a model, in the order of the menu."""
    return [
        {
            "block": block,
            "name": name,
            "columns": columns_of(block, blocks),
            "axes": f"rows = {'input tokens' if block == 'encoder' else 'decoding steps (produced ← previous)'}, "
            f"columns = {_COLUMNS[columns_of(block, blocks)]}",
            "caption": how_to_read(block, blocks),
        }
        for block, name in BLOCK_NAMES.items()
        if block in blocks
    ]


def described_maps(output: SnapshotOutput) -> list[dict[str, Any]]:
    """Return ``described`` of recorded maps; the decoder may have read a reference, see ``SnapshotOutput``."""
    if output.reference is None:
        return described(output.maps)
    columns = columns_of_maps(output)
    return [
        {
            "block": block,
            "name": name,
            "columns": columns[block],
            "axes": f"rows = {'input tokens' if block == 'encoder' else 'positions (predicted ← read)'}, "
            f"columns = {'input tokens' if columns[block] == 'source' else 'tokens of the reference'}",
            "caption": _OWN_ENCODER_CAPTION if block == "encoder" else _OWN_CAPTION,
        }
        for block, name in BLOCK_NAMES.items()
        if block in columns
    ]
