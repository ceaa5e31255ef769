"""Make a run of a model that another program trained, so that whatever opens runs can open it.

The run has the model's weights, options and vocabularies, and the pairs to measure it on if the user brings some. It
cannot be resumed: what it was trained on is unknown. A new run on own pairs can begin with its weights, see
``core.runs.starting``.
"""

import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from core.config import MAX_NAME_LENGTH, Preset, parse_preset, preset_to_yaml
from core.config.tasks import SUBWORDS
from core.runs.folder import BEST, PAIRS, RunFolder
from core.runs.hugging_face import read_folder
from core.runs.imported_model import ImportedModel
from core.runs.imported_tokens import Languages
from core.runs.info import RunInfo
from core.runs.model_files import ModelImportError, read_state_dict
from core.runs.names import Naming
from core.runs.torch_transformer import (
    ModelMapping,
    names_of,
    parse_mapping,
    propose,
    read_mapping,
    read_torch_model,
    unsaid,
)
from core.storage.errors import InputError
from core.storage.tensor_file import serialize
from core.tasks import build_task
from core.tasks.ingest import ingest_pairs, read_pairs

if TYPE_CHECKING:
    from core.runs.torch_module import ModuleBatch

_SPECIAL_TOKENS = 2  # BOS and EOS of the longest sequence


def import_model(
    root: Path,
    source: Path,
    *,
    name: str | Naming | None = None,
    pairs: Path | None = None,
    mapping: Path | str | None = None,
    languages: Languages = (None, None),
    on_phase: Callable[[str], None] = lambda phase: None,
) -> tuple[RunFolder, tuple[str, ...]]:
    """Create a finished run from a local, trusted folder or file, either complete or not at all.

    Args:
        root: the folder of runs.
        source: the folder of a model in Hugging Face's format, see ``core.runs.hugging_face``; or a file
            with the state dict of a model built on ``nn.Transformer``, see ``core.runs.torch_transformer``.
        name: of the new run, see ``RunFolder.create``.
        pairs: a file of pairs to measure the model on, in any format that ``read_pairs`` reads.
        mapping: which tensors of a state dict are which: a file, or the text of one, whose files of tokens are beside
            the source. None proposes it.
        languages: of sources and of answers, for models that know several; None takes the tokenizer's.
        on_phase: called with what is done next, such as "reading the weights". What it raises ends the import.

    Returns:
        The run, and notes for the user.

    Raises:
        ModelImportError: the source is not one of these, is damaged, or has something that our models lack.
        LabError: the tokenizer's files or the pairs cannot be used, or a run of that name exists.
        OSError: the folder of runs cannot be written to.
    """
    on_phase("reading the weights")
    model = _read(source, mapping, languages)
    return _store(root, model, source.resolve().stem, name=name, pairs=pairs, on_phase=on_phase), model.notes


def import_module(
    root: Path, batch: "ModuleBatch", *, name: str | Naming | None = None, pairs: Path | None = None
) -> tuple[RunFolder, tuple[str, ...]]:
    """Create a finished run from a live model, either complete or not at all.

    Args:
        root: the folder of runs.
        batch: the model, and what its logits are compared on.
        name, pairs: as of ``import_model``.

    Returns:
        The run, and what is doubtful about it, one sentence each.

    Raises:
        ModelImportError: the model has something that ours lack, or its logits differ from ours.
        LabError: the batch or the pairs cannot be used, or a run of that name exists.
    """
    from core.runs.torch_module import read_module  # with the doctor, which other imports do not wait for

    model, doubts = read_module(batch)
    stem = type(batch.forward if batch.model is None else batch.model).__name__
    return _store(root, model, stem, name=name, pairs=pairs), doubts


def _store(
    root: Path,
    model: ImportedModel,
    stem: str,
    *,
    name: str | Naming | None,
    pairs: Path | None,
    on_phase: Callable[[str], None] = lambda phase: None,
) -> RunFolder:
    if pairs is not None and not pairs.exists():  # reading it would name it without its folder
        raise InputError(f"pairs={str(pairs)!r}: there is no such file")
    on_phase("reading the pairs" if pairs else "checking the model")
    with tempfile.TemporaryDirectory() as temporary:
        own, data = None, ""
        if pairs is not None:
            own = Path(temporary) / PAIRS
            rows = (row._replace(split="", set="") for row in read_pairs(pairs))  # every split has all of them
            data = ingest_pairs(rows, own, kinds=("subword", "subword"), min_sources=1).sha256
        preset = _preset(model, stem, data)
        if own is not None:
            own.with_name(SUBWORDS).write_text(model.tokenizers.model_dump_json(), encoding="utf-8")
            build_task(preset.task, pairs=own).all_pairs("test")  # can its tokenizers read them?
        on_phase("writing the run")
        return _create(root, preset, model, name, own)


def _read(source: Path, mapping: Path | str | None, languages: Languages) -> ImportedModel:
    if not source.is_dir():
        if any(languages):
            raise ModelImportError(f"language {next(filter(None, languages))!r}: only folders have languages to choose")
        state = read_state_dict(source)
        if isinstance(mapping, str):
            return _read_state(parse_mapping(mapping), state, source.parent)
        if mapping:
            return _read_state(read_mapping(mapping), state, mapping.parent)
        proposed = propose(state)
        model = read_torch_model(proposed, state)
        return replace(model, notes=(unsaid(proposed), *model.notes))
    if mapping is not None:
        label = mapping.name if isinstance(mapping, Path) else "…"
        raise ModelImportError(f"mapping={label}: only a file with a state dict has a mapping, not a folder")
    return read_folder(source, languages)


def _read_state(mapping: ModelMapping, state: dict[str, torch.Tensor], folder: Path) -> ImportedModel:
    return read_torch_model(mapping, state, names_of(mapping, folder))


def _preset(model: ImportedModel, folder: str, data: str) -> Preset:
    longest = model.config.max_seq_len - _SPECIAL_TOKENS
    stem = re.sub(r"[^a-z0-9]+", "-", folder.lower()).strip("-")[:MAX_NAME_LENGTH].strip("-")
    return parse_preset(
        {
            "name": stem or "imported",
            "description": f"A model of another program ({model.kind}), imported from {folder[:200]}.",
            "task": {
                "family": "imported",
                "data": data,
                "joint_vocabulary": model.shared,
                "longest_source": longest,
                "longest_answer": longest,
            },
            "model": model.config.model_dump(),
            "training": {"steps": 1, "warmup_steps": 0},
        }
    )


def _create(
    root: Path, preset: Preset, model: ImportedModel, name: str | Naming | None, pairs: Path | None
) -> RunFolder:
    subwords = model.tokenizers.model_dump_json()
    facts = {
        "step": 0,
        "validation_loss": None,
        "exact_match": None,
        "preset": preset_to_yaml(preset),
        "subwords": subwords,
    }
    info = RunInfo(
        status="finished",
        message="; ".join(["imported model, trained by another program", model.summary, *model.notes]),
        parameters=sum(tensor.numel() for tensor in model.weights.values()),
    )
    contents: dict[str, bytes | bytearray] = {
        BEST: serialize(model.weights, facts),
        "run.json": info.model_dump_json(indent=1).encode(),
        SUBWORDS: subwords.encode(),
    }
    return RunFolder.create(root, preset, name=name, pairs=pairs, contents=contents)
