"""A run's model as an ONNX file, and greedy decoding with nothing but it and numpy.

The graph maps a source and the answer so far to logits. It keeps nothing between steps, so that the loop around it is
short in any language. The logits at a place depend on nothing behind it, so the answer so far may be given with PAD up
to its full width. Metadata have the vocabularies, the special ids and the preset.
"""

import json
from pathlib import Path
from typing import Any

import torch

from core.config import preset_to_yaml
from core.models import Seq2Seq, build_model
from core.runs import RunError, RunFolder
from core.runs.recorder import load_best
from core.storage.errors import InputError
from core.storage.optional_imports import require_package
from core.tasks import build_task
from core.teaching.bugs import bug_of
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

_PURPOSE = "ONNX export"
_FAMILIES = ("transformer", "decoder-only")


class _Logits(torch.nn.Module):
    """What is exported: ids in, logits out, and nothing else."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        return self.model(src, tgt_in)[0]


def export_onnx(folder: RunFolder, path: Path) -> None:
    """Write a run's best weights as an ONNX model.

    Inputs are ``src`` (B, S) int64, with BOS, EOS and PAD, and ``tgt_in`` (B, T) int64, BOS first, at least two wide;
    the output is ``logits`` (B, T, V) float32. All sizes but V are free, up to the model's ``max_seq_len``.

    Raises:
        InputError: the model is of another family, or there is such a file already, or it cannot be written.
        RunError: there is no such run, or it has no weights yet.
        LabError: onnx or onnxscript is not installed.
    """
    onnx = require_package("onnx", purpose=_PURPOSE)
    require_package("onnxscript", purpose=_PURPOSE)
    preset = folder.preset()
    if preset.model.family not in _FAMILIES:
        known = " and ".join(_FAMILIES)
        raise InputError(f"model.family={preset.model.family!r} cannot be exported to ONNX; {known} can")
    if not folder.best.exists():
        raise RunError(f"run={folder.name!r} has no weights yet; it is {folder.info().status}")
    if path.exists():
        raise InputError(f"--out={str(path)[:200]} exists already")
    task = build_task(preset.task, pairs=folder.pairs)
    model = bug_of(preset).on_model(build_model(preset.model, task, torch.Generator())).eval()
    load_best(folder, model)
    program = traced(model, max_seq_len=preset.model.max_seq_len)
    made = torch.onnx.export(
        program, (), input_names=["src", "tgt_in"], output_names=["logits"], dynamo=True, verbose=False
    ).model_proto
    facts = {
        "source_tokens": task.src_vocab.tokens,
        "target_tokens": task.tgt_vocab.tokens,
        "ids": {"pad": PAD_ID, "bos": BOS_ID, "eos": EOS_ID},
        "max_seq_len": preset.model.max_seq_len,
    }
    texts = {"attention-lab": json.dumps(facts, ensure_ascii=False), "preset": preset_to_yaml(preset)}
    onnx.helper.set_model_props(made, texts)
    try:
        onnx.save(made, path)
    except OSError as error:
        raise InputError(f"--out={str(path)[:200]} cannot be written: {error.strerror or error}") from error


@torch.no_grad()
def traced(model: Seq2Seq, *, max_seq_len: int) -> torch.export.ExportedProgram:
    """Return the model as a graph from ids to logits, for all sizes that it can read and write."""
    batch, source, answer = (
        torch.export.Dim(name, min=low, max=high)
        for name, low, high in (("batch", 1, 65_536), ("source", 2, max_seq_len), ("answer", 2, max_seq_len))
    )
    width = min(7, max_seq_len)
    example = (torch.full((3, width), BOS_ID), torch.full((3, max(2, width - 2)), BOS_ID))
    sizes = ({0: batch, 1: source}, {0: batch, 1: answer})
    return torch.export.export(_Logits(model).eval(), example, dynamic_shapes=sizes)


def greedy_with(session: Any, src: torch.Tensor, *, max_steps: int) -> list[list[int]]:
    """Decode greedily with an ``onnxruntime.InferenceSession`` of such a file.

    Args:
        src: (B, S) int64.
        max_steps: tokens to write at most, EOS counted.

    Returns:
        The ids of each answer, without its EOS.
    """
    tokens = torch.full((len(src), max_steps + 1), PAD_ID)
    tokens[:, 0] = BOS_ID
    open_rows = torch.ones(len(src), dtype=torch.bool)
    for step in range(max_steps):
        (logits,) = session.run(["logits"], {"src": src.numpy(), "tgt_in": tokens[:, :max_steps].numpy()})
        chosen = torch.from_numpy(logits[:, step]).argmax(dim=-1)
        tokens[:, step + 1] = torch.where(open_rows, chosen, PAD_ID)
        open_rows &= chosen != EOS_ID
        if not open_rows.any():
            break
    return [[index for index in row[1:] if index not in (PAD_ID, EOS_ID)] for row in tokens.tolist()]
