"""The names by which the parts of a Transformer are looked for in a file."""

from typing import Literal

PartName = Literal[
    "attention",
    "causal_mask",
    "padding_mask",
    "heads",
    "positions",
    "embedding",
    "feed_forward",
    "encoder_layer",
    "decoder_layer",
    "model",
    "loss",
    "decode",
    "optimizer",
]

NAMES: dict[PartName, tuple[str, ...]] = {
    "attention": (
        *("ScaledDotProductAttention", "scaled_dot_product_attention", "scaled_dot_product", "scaled_attention"),
        *("dot_product_attention", "sdpa", "attention"),
    ),
    "causal_mask": (
        *("create_causal_mask", "causal_mask", "make_causal_mask", "get_causal_mask", "subsequent_mask"),
        *("create_look_ahead_mask", "look_ahead_mask", "get_subsequent_mask", "generate_square_subsequent_mask"),
    ),
    "padding_mask": (
        *("create_padding_mask", "padding_mask", "make_padding_mask", "get_padding_mask"),
        *("create_pad_mask", "make_pad_mask", "get_pad_mask", "pad_mask"),
    ),
    "heads": (
        *("MultiHeadAttention", "MultiHeadedAttention", "MultiHeadSelfAttention", "MHA"),
        *("CausalSelfAttention", "SelfAttention"),
    ),
    "positions": (
        *("PositionalEncoding", "PositionEncoding", "SinusoidalPositionEncoding", "SinusoidalPositionalEncoding"),
        *("sinusoidal_positions", "sinusoidal_encoding", "PositionalEmbedding"),
    ),
    "embedding": ("TokenEmbedding", "InputEmbedding", "InputEmbeddings", "ScaledEmbedding", "Embeddings"),
    "feed_forward": ("PositionwiseFeedForward", "FeedForward", "PositionwiseFeedForwardNetwork", "FFN", "MLP"),
    "encoder_layer": ("EncoderLayer", "TransformerEncoderLayer", "EncoderBlock", "TransformerEncoderBlock"),
    "decoder_layer": ("DecoderLayer", "TransformerDecoderLayer", "DecoderBlock", "TransformerDecoderBlock"),
    "model": ("build_transformer", "make_transformer", "make_model", "build_model"),
    "loss": ("compute_loss", "training_loss", "loss"),
    "decode": ("greedy_decode", "generate_greedy", "greedy", "decode", "generate"),
    "optimizer": ("build_optimizer", "make_optimizer", "create_optimizer", "create_adamw_optimizer"),
}
"""Names that each part is looked for by, the document's first; case and underscores do not count."""

OPTIONAL: dict[PartName, int] = {"loss": 3, "decode": 2, "optimizer": 1}
"""Functions beside a whole model, which make more checks possible, and the number of arguments that each is passed."""


def looked_for(*parts: PartName) -> str:
    """Return the names that parts are looked for by, in words."""
    return "; ".join(f"{NAMES[part][0]} (or {', '.join(NAMES[part][1:])})" for part in parts)
