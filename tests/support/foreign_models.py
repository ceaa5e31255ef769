"""Folders of models in Hugging Face's format with random weights, written without ``transformers``."""

import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from safetensors.torch import save_file

TEXTS = [
    "The quick brown fox jumps over the lazy dog, and the dog sleeps.",
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "Öffnen Sie das Dokument 2024 und drücken Sie die Eingabetaste.",
    "Press Enter to open the document, then press Enter again: it's open.",
]
MARIAN = {
    "model_type": "marian",
    "vocab_size": 20,
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 12,
    "max_position_embeddings": 24,
    "activation_function": "swish",
    "scale_embedding": True,
    "pad_token_id": 19,
    "eos_token_id": 0,
    "decoder_start_token_id": 19,
}
BART = MARIAN | {
    "model_type": "bart",
    "activation_function": "gelu",
    "scale_embedding": False,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}


def tensors(config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Random tensors under Hugging Face's names, with one table for both sides and the output."""
    width, hidden, size = config["d_model"], config["encoder_ffn_dim"], config["vocab_size"]
    is_bart, is_pre_norm = config["model_type"] in ("bart", "mbart"), config["model_type"] not in ("bart", "marian")
    shapes: dict[str, tuple[int, ...]] = {"model.shared.weight": (size, width), "final_logits_bias": (1, size)}
    for side in ("encoder", "decoder"):
        if is_bart:
            shapes[f"model.{side}.embed_positions.weight"] = (config["max_position_embeddings"] + 2, width)
            shapes |= norm(f"model.{side}.layernorm_embedding", width)
        if is_pre_norm:
            shapes |= norm(f"model.{side}.layer_norm", width)
        for number in range(config[f"{side}_layers"]):
            layer = f"model.{side}.layers.{number}"
            for attention in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
                for matrix in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    shapes[f"{layer}.{attention}.{matrix}.weight"] = (width, width)
                    shapes[f"{layer}.{attention}.{matrix}.bias"] = (width,)
                shapes |= norm(f"{layer}.{attention}_layer_norm", width)
            shapes |= {f"{layer}.fc1.weight": (hidden, width), f"{layer}.fc1.bias": (hidden,)}
            shapes |= {f"{layer}.fc2.weight": (width, hidden), f"{layer}.fc2.bias": (width,)}
            shapes |= norm(f"{layer}.final_layer_norm", width)
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def write_folder(
    folder: Path,
    config: dict[str, Any],
    state: dict[str, torch.Tensor] | None = None,
    generation: dict[str, Any] | None = None,
) -> Path:
    """Write a folder with these files; random tensors if none are named."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    save_file(tensors(config) if state is None else state, folder / "model.safetensors")
    return folder


def train_sentencepiece(file: Path, **settings: Any) -> sentencepiece.SentencePieceProcessor:
    """Write a SentencePiece model, by default as Marian's are made, and return it as SentencePiece reads it."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=model,
        **{"vocab_size": 70, "hard_vocab_limit": False, "minloglevel": 2, "num_threads": 1} | settings,
    )
    file.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def write_marian_text_model(folder: Path, **config: Any) -> Path:
    """Write a Marian folder with SentencePiece models of both sides and one vocabulary, as its makers do."""
    pieces: dict[str, None] = {"</s>": None, "<unk>": None}
    folder.mkdir()
    for name, seed in (("source.spm", 70), ("target.spm", 90)):
        processor = train_sentencepiece(folder / name, vocab_size=seed)
        pieces |= {processor.id_to_piece(index): None for index in range(3, processor.vocab_size())}
    names = [*pieces, ">>deu<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: index for index, piece in enumerate(names)}))
    special = {"vocab_size": len(names), "pad_token_id": len(names) - 1, "decoder_start_token_id": len(names) - 1}
    whole = MARIAN | special | config
    (folder / "config.json").write_text(json.dumps(whole))
    save_file(tensors(whole), folder / "model.safetensors")
    return folder


def learn_merges(texts: list[str], count: int) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Learn byte-level BPE the slow way; return its vocabulary, with BART's special tokens first, and its merges."""
    import regex

    from core.text.byte_bpe import alphabet

    letters = {byte: letter for letter, byte in alphabet().items()}
    pattern = regex.compile(GPT2)
    words = [[letters[byte] for byte in word.encode()] for text in texts for word in pattern.findall(text)]
    merges: list[tuple[str, str]] = []
    for _ in range(count):
        pairs: dict[tuple[str, str], int] = {}
        for word in words:
            for pair in pairwise(word):
                pairs[pair] = pairs.get(pair, 0) + 1
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        words = [merge_in(word, best) for word in words]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *letters.values(), *map("".join, merges), "<mask>"]
    return {token: index for index, token in enumerate(tokens)}, merges


GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


def merge_in(word: list[str], pair: tuple[str, str]) -> list[str]:
    """Replace every occurrence of a pair, from the left."""
    merged: list[str] = []
    for letter in word:
        if merged and (merged[-1], letter) == pair:
            merged[-1] += letter
        else:
            merged.append(letter)
    return merged


class StateDictModel(torch.nn.Module):
    """A translation model around nn.Transformer, named as in tutorials; only its state dict is used."""

    def __init__(self, *, d_model: int = 32, heads: int = 4, layers: int = 1, tokens: int = 20) -> None:
        super().__init__()
        self.src = torch.nn.Embedding(tokens, d_model, padding_idx=0)
        self.tgt = torch.nn.Embedding(tokens, d_model, padding_idx=0)
        self.transformer = torch.nn.Transformer(d_model, heads, layers, layers, d_model, batch_first=True)
        self.out = torch.nn.Linear(d_model, tokens)
