"""Hugging Face's encoder-decoders with our weights, to compare with or to race against.

Marian has a norm behind each sublayer, Pegasus before it; otherwise both can be given the shape of ours.
"""

from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

from core.models.embeddings import Embedding
from core.models.transformer import Transformer
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

Theirs = MarianMTModel | PegasusForConditionalGeneration

SPECIAL = {
    "pad_token_id": PAD_ID,
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "decoder_start_token_id": BOS_ID,
    "forced_eos_token_id": None,  # an answer that does not end is left so
}
NAMES = {  # parts of the names of weights, ours and theirs
    "src_embedding.tokens": "model.encoder.embed_tokens",
    "tgt_embedding.tokens": "model.decoder.embed_tokens",
    "src_embedding.positions": "model.encoder.embed_positions.weight",
    "tgt_embedding.positions": "model.decoder.embed_positions.weight",
    "encoder_layers": "model.encoder.layers",
    "decoder_layers": "model.decoder.layers",
    "norm_attention": "self_attn_layer_norm",
    "norm_self": "self_attn_layer_norm",
    "norm_cross": "encoder_attn_layer_norm",
    "norm_feed_forward": "final_layer_norm",
    "encoder_norm": "model.encoder.layer_norm",
    "decoder_norm": "model.decoder.layer_norm",
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    "w_q": "q_proj",
    "w_k": "k_proj",
    "w_v": "v_proj",
    "w_o": "out_proj",
    "feed_forward.widen": "fc1",
    "feed_forward.narrow": "fc2",
    "output.weight": "lm_head.weight",
}


def copied(model: Transformer) -> Theirs:
    """Return a model of theirs with the weights of ours, on its device, of its dtype and in evaluation mode.

    Raises:
        ValueError: ours has ALiBi, which theirs have not.
        RuntimeError: a weight of one has no counterpart of its shape in the other. Pegasus has one size of vocabulary.
    """
    if model.slopes is not None:
        raise ValueError("theirs have no ALiBi")
    first = model.encoder_layers[0]
    shape = {
        "vocab_size": len(source_embedding(model).tokens.weight),
        "d_model": model.output.in_features,
        "max_position_embeddings": model.max_seq_len,
        "activation_function": first.feed_forward.activation.__name__,
        "scale_embedding": True,
        "tie_word_embeddings": False,  # what is one table in ours is copied to each of theirs
    }
    for side, layers in (("encoder", model.encoder_layers), ("decoder", model.decoder_layers)):
        shape[f"{side}_layers"] = len(layers)
        shape[f"{side}_attention_heads"] = first.self_attention.num_heads
        shape[f"{side}_ffn_dim"] = first.feed_forward.widen.out_features
    if first.is_pre_norm:
        theirs = PegasusForConditionalGeneration(PegasusConfig(**shape, **SPECIAL))
    else:
        apart = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": model.output.out_features}
        theirs = MarianMTModel(MarianConfig(**shape, **apart, **SPECIAL))
    theirs = theirs.to(model.output.bias).eval()
    theirs.load_state_dict(renamed_weights(model))
    return theirs


def generate(theirs: Theirs, src: torch.Tensor, *, max_steps: int, **settings: Any):
    """Return what their ``generate`` makes of sources (B, S) int64; its tokens begin with BOS."""
    mask = (src != PAD_ID).long()
    return theirs.generate(src, attention_mask=mask, max_new_tokens=max_steps, do_sample=False, **settings)


def renamed_weights(model: Transformer) -> dict[str, torch.Tensor]:
    """Return our weights under their names, with the tables that only they keep beside the weights."""
    weights = {}
    for name, weight in model.state_dict().items():
        for ours, theirs in NAMES.items():
            name = name.replace(ours, theirs)
        weights[name] = weight
    weights["final_logits_bias"] = weights.pop("output.bias")[None]
    for side, embedding in (("encoder", source_embedding(model)), ("decoder", model.tgt_embedding)):
        table, positions = embedding.tokens.weight, embedding.positions
        weights[f"model.{side}.embed_tokens.weight"] = table
        if positions is None:
            positions = table.new_zeros(model.max_seq_len, table.shape[1])
        weights[f"model.{side}.embed_positions.weight"] = positions
    weights.setdefault("lm_head.weight", model.tgt_embedding.tokens.weight)
    if model.encoder_layers[0].is_pre_norm:
        weights["model.shared.weight"] = source_embedding(model).tokens.weight
    return weights


def source_embedding(model: Transformer) -> Embedding:
    """Return what embeds the source, which may be what embeds the target."""
    return model.tgt_embedding if model.src_embedding is None else model.src_embedding
