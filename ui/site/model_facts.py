"""What the site's scripts need to know of a model and its task, as JSON."""

from collections.abc import Sequence
from typing import Any

import torch

from core.config import Preset, preset_to_yaml
from core.interpret.parts import model_parts
from core.interpret.snapshots import SnapshotInput, SnapshotTaker
from core.models import Seq2Seq
from core.models.embeddings import Embedding
from core.models.hooks import HookPoint
from core.models.layers import DecoderLayer, EncoderLayer
from core.models.seq2seq import BLOCKS
from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.tasks import Task
from core.tasks.addition import Addition
from core.tasks.alignment import gold_cells
from core.tasks.imported import Imported
from core.tasks.own_pairs import OwnPairs
from core.tasks.sequences import Digits, SequenceTask, Words
from core.text.tokenizers import PlainTokenizer
from ui.attention_blocks import described, source_block


def model_facts(preset: Preset, task: Task, model: Seq2Seq, inputs: Sequence[SnapshotInput] = ()) -> dict[str, Any]:
    """Return what decoding, the bench and the viewer need to know of a model and its task.

    Args:
        inputs: those of the attention snapshots that are recorded, or will be.
    """
    blocks = [block for block in BLOCKS if any(head.block == block for head in model.heads)]
    width = getattr(preset.model, "d_model", None)
    return {
        "preset": preset.name,
        "yaml": preset_to_yaml(preset),
        "task": {
            "summary": preset.task.summary,
            "translates": task.is_translation,
            **(_reading(task) or {}),
            **_lengths(task),
        },
        "source_tokens": list(task.src_vocab.tokens),
        "target_tokens": list(task.tgt_vocab.tokens),
        "first_symbol": task.src_vocab.first_symbol_id,
        "has_unk": task.src_vocab.has_unk,
        "subword_scores": list(task.subwords.source.scores) if task.subwords else None,
        "examples": list(task.examples),
        "model": {
            "size": preset.model.summary + (f", d_model {width}" if width else ""),
            "parameters": sum(weight.numel() for weight in model.parameters()),
            "max_seq_len": model.max_seq_len,
            "norm": getattr(preset.model, "norm", None),
            "heads": [str(head) for head in model.heads],
            "parts": [vars(part) for part in model_parts(model)],
            "attention": _attention_modules(model),
            "vectors": _vectors_of(model),
            "weights": [[name, list(weight.shape)] for name, weight in model.named_parameters()],
        },
        "blocks": described(blocks),
        "source_block": source_block(blocks),
        "snapshots": {"inputs": [_input(each) for each in inputs]},
    }


def snapshot_groups(task: Task, taker: SnapshotTaker) -> list[dict[str, Any]]:
    """Return what a training on the site decodes for each snapshot, by length; see ``SnapshotGroup``.

    Only the shown inputs: they are decoded after every update, so that the heads move.
    """
    found = []
    for group in taker.groups:
        rows = [group.src[row].tolist() for row, _ in group.shown]
        if rows:
            shown = [[at, index] for at, (_, index) in enumerate(group.shown)]
            gold = [_gold_cells(task, row) for row in rows]
            found.append({"src": rows, "steps": group.steps, "shown": shown, "gold": gold})
    return found


def _input(given: SnapshotInput) -> dict[str, Any]:
    return {
        "source": list(given.symbols),
        "expected": list(given.expected),
        "gold_cells": [list(cell) for cell in given.gold_cells],
    }


def _gold_cells(task: Task, row: list[int]) -> list[list[int]]:
    sources = task.gold_alignment(task.src_vocab.decode(row[1:-1]))
    return [list(cell) for cell in gold_cells(sources, steps=len(sources))]


def check_reading(task: Task, named: str) -> None:
    """Raise InputError for a task whose typed inputs ``scripts/tasks.js`` does not read.

    Args:
        named: the preset or the run, for the message.
    """
    if _reading(task) is None:
        raise InputError(
            f"{named}: a page without a server reads digits, numbers and words to be rearranged, sums, and own pairs "
            f"or translations of characters or BPE subwords, but not inputs of this task, such as "
            f"{short_repr(task.examples[0])}"
        )


def _reading(task: Task) -> dict[str, Any] | None:
    """Return how typed text becomes tokens, which is one of the kinds of ``scripts/tasks.js``; None if it is none."""
    if isinstance(task, Addition):
        return {"reads": "addition", "max_digits": task.max_digits, "has_zeros": task.has_zeros} | {
            "reverses_operands": task.reverses_operands,
            "reverses_sum": task.reverses_sum,
        }
    if isinstance(task, SequenceTask):
        kind = {"characters": isinstance(task, Digits), "in_words": isinstance(task, Words)}
        return {"reads": "symbols", "transform": task.transform} | kind
    subwords = task.subwords
    if subwords and subwords.source.algorithm == "bpe" and subwords.source.normalization == "identity":
        return {"reads": "subwords"}
    if isinstance(task, OwnPairs) and task.tokenizers[0] == PlainTokenizer("character"):
        return {"reads": "letters", "case": task.source_case}
    return None


def _lengths(task: Task) -> dict[str, Any]:
    """Return the first and the last length of the training inputs, unless they are not known; see ``Task.note``."""
    if isinstance(task, Imported):
        return {"trained_lengths": None}
    return {"trained_lengths": [task.trained_lengths[0], task.trained_lengths[-1]]}


def _attention_modules(model: Seq2Seq) -> dict[str, dict[str, Any]]:
    """Return where the tensors of each attention are: hook points and weights, by ``block.layer``."""
    found = {}
    for (block, layer), module in model.attention.items():
        path = module.hook_q.name.rpartition(".")[0]
        owner = path.rpartition(".")[0]
        found[f"{block}.{layer}"] = {
            "path": path,
            "layer": owner,
            "heads": module.num_heads,
            "w_o": f"{path}.w_o.weight",
            "stream": _stream_of(model.get_submodule(owner), block),
        }
    return found


def _stream_of(layer: torch.nn.Module, block: str) -> list[dict[str, str]]:
    """Return the sublayers of a layer from its attention on: name, and the points before, at and after each."""
    if not isinstance(layer, EncoderLayer | DecoderLayer):
        return []
    before, after = layer.hook_resid_pre, layer.hook_resid_mid
    steps: list[tuple[str, HookPoint, HookPoint, HookPoint]] = [
        ("attention", before, layer.self_attention.hook_out, after)
    ]
    if isinstance(layer, DecoderLayer) and layer.cross_attention is not None:
        name = "attention" if block == "cross" else "cross-attention"
        before, after = after, layer.hook_resid_cross
        steps.append((name, before, layer.cross_attention.hook_out, after))
    steps.append(("feed-forward", after, layer.feed_forward.hook_out, layer.hook_resid_post))
    return [
        {"name": name, "before": pre.name, "added": added.name, "after": post.name}
        for name, pre, added, post in steps[block == "cross" :]
    ]


def _vectors_of(model: Seq2Seq) -> dict[str, list[list[str]]]:
    """Return the hook points of what each part computes, by the part's name: [[name of the vectors, point]].

    Norms before a sublayer have none, as their outputs are not hook points.
    """
    layers: dict[str, list[EncoderLayer | DecoderLayer]] = {}
    for module in model.modules():
        if isinstance(module, EncoderLayer | DecoderLayer):
            layers.setdefault("source" if isinstance(module, EncoderLayer) else "target", []).append(module)
    points: dict[str, list[list[str]]] = {"output": [["logits", "logits"]]}
    for part in model_parts(model):
        embedding = getattr(model, "src_embedding" if part.side == "source" else "tgt_embedding", None)
        if part.kind in ("embedding", "positions") and isinstance(embedding, Embedding):
            point = embedding.hook_embed if part.kind == "embedding" else embedding.hook_pos_embed
            points[part.name] = [["after", point.name]]
        if part.layer is None or part.kind not in ("add", "feed-forward"):
            continue
        layer = layers[part.side][part.layer - 1]
        if part.kind == "feed-forward":
            points[part.name] = [
                ["activations", layer.feed_forward.hook_post.name],
                ["after", layer.feed_forward.hook_out.name],
            ]
            continue
        sublayer = {"cross": -2, "feed-forward": -1}.get(part.name.split(".")[2], 0)
        step = _stream_of(layer, "encoder")[sublayer]
        points[part.name] = [[name, step[name]] for name in ("before", "added", "after")]
    return points
