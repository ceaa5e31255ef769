"""The kinds of attention, in words: what they are called, what their rows and columns are, how to read them."""

from collections.abc import Collection
from typing import Any

from core.models.heads import Block

BLOCK_NAMES: dict[Block, str] = {
    "cross": "cross-attention",
    "decoder": "decoder self-attention",
    "encoder": "encoder self-attention",
}
_HOW_TO_READ: dict[Block, str] = {
    "cross": "Each row is one step of writing the answer, labelled with the token it produced and the one it had just "
    "read; the columns are the input. A dark cell means that this step looked at that input token. Rows sum to 1.",
    "decoder": "Each row is one step of writing the answer; the columns are the tokens it had read by then, so "
    "everything above the diagonal is empty: a step cannot see what is yet to come. Rows sum to 1.",
    "encoder": "Each row is an input token, the columns are the input tokens it looked at while the encoder made sense "
    "of the whole. Rows sum to 1.",
}
_HOW_TO_READ_WITHOUT_ENCODER = (
    "Each row is one step of writing the answer, labelled with the token it produced and the one it had just read; the "
    "columns are the input and, behind it, the tokens of the answer read by then. This model reads its input as the "
    "beginning of what it writes. Rows sum to 1."
)
_WITHOUT_ENCODER_ATTENTION = (
    " This model reads its input token by token, so a column stands for everything read up to its token."
)
_NO_EXPLANATION = " Attention shows where a head looked, not by itself why the model answered as it did."
_COLUMNS = {"source": "the input", "read": "tokens read by then", "source and read": "the input, then tokens read"}


def source_block(blocks: Collection[Block]) -> Block:
    """Return the kind of attention that looks at the input while the answer is written, of those a model has."""
    return "cross" if "cross" in blocks else "decoder"


def columns_of(block: Block, blocks: Collection[Block]) -> str:
    """Return what the columns are: "source", "read" (what the steps had read), or "source and read"."""
    if block != "decoder":
        return "source"
    return "read" if "cross" in blocks else "source and read"


def how_to_read(block: Block, blocks: Collection[Block]) -> str:
    """Explain a map of a model that has these kinds of attention."""
    if "cross" not in blocks:
        return _HOW_TO_READ_WITHOUT_ENCODER + _NO_EXPLANATION
    return _HOW_TO_READ[block] + ("" if "encoder" in blocks else _WITHOUT_ENCODER_ATTENTION) + _NO_EXPLANATION


def described(blocks: Collection[Block]) -> list[dict[str, Any]]:
    """Describe a model's kinds of attention for the Attention tab, in the order in which they are offered."""
    return [
        {
            "block": block,
            "name": name,
            "columns": columns_of(block, blocks),
            "axes": f"rows = {'input tokens' if block == 'encoder' else 'steps (produced ← read)'}, "
            f"columns = {_COLUMNS[columns_of(block, blocks)]}",
            "caption": how_to_read(block, blocks),
        }
        for block, name in BLOCK_NAMES.items()
        if block in blocks
    ]
