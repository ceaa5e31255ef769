"""Hugging Face encoder-decoders with the project's weights, for parity tests and as a baseline for decoding speed.

Marian has post-norm sublayers, Pegasus pre-norm ones; otherwise both can be configured like core.models.transformer.
"""

from typing import Any, TypeAlias

import torch
from transformers import MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

from core.config.sections import RELATIVE_POSITIONS
from core.models.embeddings import Embedding
from core.models.transformer import Transformer
from core.runs.bart_folders import their_name
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

HuggingFaceModel: TypeAlias = MarianMTModel | PegasusForConditionalGeneration

SPECIAL_TOKENS = {
    "pad_token_id": PAD_ID,
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "decoder_start_token_id": BOS_ID,
    "forced_eos_token_id": None,  # an output that reaches max_steps has no EOS
}


def to_hugging_face(model: Transformer) -> HuggingFaceModel:
    """Convert a model to Hugging Face's, on the same device, of the same dtype and in evaluation mode.

    Raises:
        ValueError: the model has relative positions, windowed or linear attention, scores scaled by the length or a
            temperature, or a norm other than a layer norm; Marian and Pegasus support none of these.
        RuntimeError: a weight has no counterpart of its shape. Pegasus has one vocabulary size for both sides.
    """
    config = model.config
    if config.positions in RELATIVE_POSITIONS:
        raise ValueError(f"Hugging Face's Marian and Pegasus have no {config.positions} positions")
    if config.attention != "full":
        raise ValueError(f"Hugging Face's Marian and Pegasus have no {config.attention} attention")
    if config.attention_scale != "sqrt":
        raise ValueError(f"Hugging Face's Marian and Pegasus have no attention_scale={config.attention_scale!r}")
    if config.attention_temperature != 1:
        raise ValueError(
            f"Hugging Face's Marian and Pegasus have no attention_temperature={config.attention_temperature}"
        )
    if config.feed_forward_block != "mlp" or config.activation == "gelu-tanh":
        block = f"feed_forward_block={config.feed_forward_block!r} and activation={config.activation!r}"
        raise ValueError(f"this conversion to Marian and Pegasus has no {block}")
    if config.norm_block != "layer-norm":
        raise ValueError(f"Hugging Face's Marian and Pegasus have no norm_block={config.norm_block!r}")
    shape: dict[str, Any] = {
        "vocab_size": len(source_embedding(model).tokens.weight),
        "d_model": config.d_model,
        "max_position_embeddings": config.max_seq_len,
        "activation_function": config.activation,
        "scale_embedding": True,
        "tie_word_embeddings": False,  # a table that is shared in our model is copied to each of theirs
    }
    for side, num_layers in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
        shape[f"{side}_layers"] = num_layers
        shape[f"{side}_attention_heads"] = config.num_heads
        shape[f"{side}_ffn_dim"] = config.d_ff
    converted: HuggingFaceModel
    if config.norm == "pre":
        converted = PegasusForConditionalGeneration(PegasusConfig(**shape, **SPECIAL_TOKENS))
    else:
        separate = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": model.output.out_features}
        converted = MarianMTModel(MarianConfig(**shape, **separate, **SPECIAL_TOKENS))
    converted = converted.to(model.output.bias).eval()
    converted.load_state_dict(convert_state_dict(model))
    return converted


def generate(model: HuggingFaceModel, src: torch.Tensor, *, max_steps: int, **settings: Any) -> Any:
    """Call Hugging Face's ``generate`` on sources (B, S) int64; the output tokens begin with BOS."""
    mask = (src != PAD_ID).long()
    return model.generate(src, attention_mask=mask, max_new_tokens=max_steps, do_sample=False, **settings)


def convert_state_dict(model: Transformer) -> dict[str, torch.Tensor]:
    """Return the weights under Hugging Face's names, with the tables that only Hugging Face stores as weights."""
    weights = {}
    for name, weight in model.state_dict().items():
        weights[their_name(name)] = weight
    weights["final_logits_bias"] = weights.pop("output.bias")[None]
    for side, embedding in (("encoder", source_embedding(model)), ("decoder", model.tgt_embedding)):
        table, positions = embedding.tokens.weight, embedding.positions
        weights[f"model.{side}.embed_tokens.weight"] = table
        if positions is None:
            positions = table.new_zeros(model.max_seq_len, table.shape[1])
        weights[f"model.{side}.embed_positions.weight"] = positions
    weights.setdefault("lm_head.weight", model.tgt_embedding.tokens.weight)
    if model.config.norm == "pre":
        weights["model.shared.weight"] = source_embedding(model).tokens.weight
    return weights


def source_embedding(model: Transformer) -> Embedding:
    """Return the embedding of source tokens, which may be shared with the target's."""
    return model.tgt_embedding if model.src_embedding is None else model.src_embedding
