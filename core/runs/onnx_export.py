"""Export a run's model to ONNX, and decode greedily with nothing but that file and ``onnxruntime``.

The graph maps a source and the target so far to logits and to the attention of every head; see ``core.graphs.forward``.
It has no key-value cache, so the decoding loop around it is short in any language. Logits at a position do not depend
on later positions, so the target so far may be padded with PAD to its full width. The file's metadata hold the
vocabularies, the special ids, the names of the heads, the preset and, if it was recorded, the provenance of the
weights; for subwords also SentencePiece's model files of source and target in base64: a piece's id is its index in the
vocabulary.
"""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any, get_args

import torch

from core.config import preset_to_yaml
from core.config.sections import BlocksConfig
from core.graphs.forward import HEAD_GAINS, forward_graph
from core.graphs.graph import PURPOSE, weights_of
from core.runs.folder import RunFolder
from core.runs.load import load_run
from core.storage.atomic import write_atomically
from core.storage.errors import InputError
from core.storage.optional_imports import require_package
from core.text.subwords import Algorithm, SubwordTokenizers
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

_FAMILIES = ("transformer", "decoder-only", "encoder-only")


def export_onnx(folder: RunFolder, path: Path) -> None:
    """Write a run's best weights as an ONNX model.

    Inputs are ``src`` (B, S) int64, with BOS, EOS and PAD; ``tgt_in`` (B, T) int64, BOS first, at least two wide; and,
    if heads are to be switched off, ``head_gains`` (N,) float32. Outputs are ``logits`` (B, T, V) float32 and, of the
    blocks that the model has, ``encoder`` (L, B, H, S, S), ``decoder`` (L, B, H, T, T or S + T) and ``cross``
    (L, B, H, T, S) float32. B, S and T are dynamic, up to the model's ``max_seq_len``.

    Raises:
        InputError: the model is of another family, the file exists already, or it cannot be written.
        RunError: there is no such run, or it has no weights yet.
        LabError: onnx or onnxscript is not installed.
    """
    onnx = require_package("onnx", purpose=PURPOSE)
    require_package("onnxscript", purpose=PURPOSE)
    preset = folder.read_preset()
    if not isinstance(preset.model, BlocksConfig):
        raise InputError(f"model.family={preset.model.family!r} cannot be exported to ONNX; {', '.join(_FAMILIES)} can")
    loaded = load_run(folder.path)
    if path.exists():
        raise InputError(f"--out={str(path)[:200]} exists already")
    gains = torch.ones(len(loaded.model.heads))
    graph = forward_graph(loaded.model).to_onnx(weights_of(loaded.model), {HEAD_GAINS: gains})
    subwords = loaded.task.subwords
    facts = {
        "source_tokens": loaded.task.src_vocab.tokens,
        "target_tokens": loaded.task.tgt_vocab.tokens,
        "sentencepiece": _sentencepiece(subwords) if subwords else None,
        "ids": {"pad": PAD_ID, "bos": BOS_ID, "eos": EOS_ID},
        "max_seq_len": preset.model.max_seq_len,
        "heads": [str(head) for head in loaded.model.heads],  # in the order of head_gains
    }
    texts = {"attention-lab": json.dumps(facts, ensure_ascii=False), "preset": preset_to_yaml(preset)}
    if provenance := loaded.facts.get("provenance"):
        texts["provenance"] = json.dumps(provenance)
    onnx.helper.set_model_props(graph, texts)
    try:
        write_atomically(path, graph.SerializeToString())
    except OSError as error:
        raise InputError(f"--out={str(path)[:200]} cannot be written: {error.strerror or error}") from error


def _sentencepiece(subwords: SubwordTokenizers) -> list[str] | None:
    """Return SentencePiece's model of each side in base64; None if the subwords are not SentencePiece's."""
    if subwords.source.algorithm not in get_args(Algorithm):
        return None
    return [b64encode(side.model_proto()).decode() for side in subwords.sides]


def generate_with_onnx(session: Any, src: torch.Tensor, *, max_steps: int) -> list[list[int]]:
    """Decode greedily with an ``onnxruntime.InferenceSession`` of an exported file.

    Args:
        src: (B, S) int64.
        max_steps: maximum number of tokens to generate, EOS included.

    Returns:
        The token ids of each output, without EOS.
    """
    tokens = torch.full((len(src), max_steps + 1), PAD_ID)
    tokens[:, 0] = BOS_ID
    unfinished = torch.ones(len(src), dtype=torch.bool)
    for step in range(max_steps):
        (logits,) = session.run(["logits"], {"src": src.numpy(), "tgt_in": tokens[:, :max_steps].numpy()})
        chosen = torch.from_numpy(logits[:, step]).argmax(dim=-1)
        tokens[:, step + 1] = torch.where(unfinished, chosen, PAD_ID)
        unfinished &= chosen != EOS_ID
        if not unfinished.any():
            break
    return [[index for index in row[1:] if index not in (PAD_ID, EOS_ID)] for row in tokens.tolist()]
