"""Export a run's model to ONNX, and decode greedily with nothing but that file and ``onnxruntime``.

The graph maps a source and the target so far to logits. It has no key-value cache, so the decoding loop around it is
short in any language. Logits at a position do not depend on later positions, so the target so far may be padded with
PAD to its full width. The file's metadata hold the vocabularies, the special ids, the preset and, if it was recorded,
the provenance of the weights; for subwords also SentencePiece's model files of source and target in base64: a piece's
id is its index in the vocabulary.
"""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any, get_args

import torch

from core.config import preset_to_yaml
from core.config.sections import BlocksConfig
from core.models import Seq2Seq
from core.runs.folder import RunFolder
from core.runs.load import load_run
from core.storage.errors import InputError
from core.storage.optional_imports import require_package
from core.text.subwords import Algorithm, SubwordTokenizers
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

_PURPOSE = "ONNX export"
_FAMILIES = ("transformer", "decoder-only", "encoder-only")


class _Logits(torch.nn.Module):
    """Wrapper that maps token ids to logits and returns nothing else."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        return self.model(src, tgt_in)


def export_onnx(folder: RunFolder, path: Path) -> None:
    """Write a run's best weights as an ONNX model.

    Inputs are ``src`` (B, S) int64, with BOS, EOS and PAD, and ``tgt_in`` (B, T) int64, BOS first, at least two wide;
    the output is ``logits`` (B, T, V) float32. All sizes but V are dynamic, up to the model's ``max_seq_len``.

    Raises:
        InputError: the model is of another family, the file exists already, or it cannot be written.
        RunError: there is no such run, or it has no weights yet.
        LabError: onnx or onnxscript is not installed.
    """
    onnx = require_package("onnx", purpose=_PURPOSE)
    require_package("onnxscript", purpose=_PURPOSE)
    preset = folder.read_preset()
    if not isinstance(preset.model, BlocksConfig):
        raise InputError(f"model.family={preset.model.family!r} cannot be exported to ONNX; {', '.join(_FAMILIES)} can")
    loaded = load_run(folder.path)
    if path.exists():
        raise InputError(f"--out={str(path)[:200]} exists already")
    program = exported_program(loaded.model, max_seq_len=preset.model.max_seq_len)
    exported = torch.onnx.export(
        program, (), input_names=["src", "tgt_in"], output_names=["logits"], dynamo=True, verbose=False
    )
    assert exported is not None  # noqa: S101 - with dynamo=True it never is
    graph = exported.model_proto
    subwords = loaded.task.subwords
    facts = {
        "source_tokens": loaded.task.src_vocab.tokens,
        "target_tokens": loaded.task.tgt_vocab.tokens,
        "sentencepiece": _sentencepiece(subwords) if subwords else None,
        "ids": {"pad": PAD_ID, "bos": BOS_ID, "eos": EOS_ID},
        "max_seq_len": preset.model.max_seq_len,
    }
    texts = {"attention-lab": json.dumps(facts, ensure_ascii=False), "preset": preset_to_yaml(preset)}
    if provenance := loaded.facts.get("provenance"):
        texts["provenance"] = json.dumps(provenance)
    onnx.helper.set_model_props(graph, texts)
    try:
        onnx.save(graph, path)
    except OSError as error:
        raise InputError(f"--out={str(path)[:200]} cannot be written: {error.strerror or error}") from error


def _sentencepiece(subwords: SubwordTokenizers) -> list[str] | None:
    """Return SentencePiece's model of each side in base64; None if the subwords are not SentencePiece's."""
    if subwords.source.algorithm not in get_args(Algorithm):
        return None
    return [b64encode(side.model_proto()).decode() for side in subwords.sides]


@torch.no_grad()
def exported_program(model: Seq2Seq, *, max_seq_len: int) -> torch.export.ExportedProgram:
    """Trace a model with ``torch.export``, with dynamic batch size, source length and target length."""
    batch, source, target = (
        torch.export.Dim(name, min=low, max=high)
        for name, low, high in (("batch", 1, 65_536), ("source", 2, max_seq_len), ("target", 2, max_seq_len))
    )
    width = min(7, max_seq_len)
    example = (torch.full((3, width), BOS_ID), torch.full((3, max(2, width - 2)), BOS_ID))
    sizes = ({0: batch, 1: source}, {0: batch, 1: target})
    return torch.export.export(_Logits(model).eval(), example, dynamic_shapes=sizes)


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
