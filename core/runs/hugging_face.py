"""Read models from folders in Hugging Face's format, without the package ``transformers``.

A folder has ``config.json``, weights as ``model.safetensors`` (or its parts, or ``pytorch_model.bin``, which is loaded
with ``weights_only``) and, for text, the tokenizer's files. Folders are the local user's own: nobody else's are read.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.runs import bart_folders, gpt2_folders, t5_folders
from core.runs.imported_model import ImportedModel
from core.runs.imported_tokens import Languages
from core.runs.model_files import ModelImportError, read_json
from core.storage.error_messages import short_repr

_DECODING = ("num_beams", "length_penalty", "no_repeat_ngram_size", "min_length")
_NEUTRAL = {"num_beams": 1, "length_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0}
Reader = Callable[[Path, dict[str, Any], dict[str, Any], Languages], ImportedModel]
READERS: dict[str, Reader] = {
    **dict.fromkeys(bart_folders.FAMILIES, bart_folders.read),
    "gpt2": gpt2_folders.read,
    "t5": t5_folders.read,
    "mt5": t5_folders.read,
}
"""What reads a folder, by ``model_type``."""
MULTILINGUAL = [kind for kind, family in bart_folders.FAMILIES.items() if family.has_languages]
NAMES = ("Marian", "BART", "mBART", "M2M-100", "NLLB", "Pegasus", "GPT-2", "T5", "mT5")


def read_folder(folder: Path, languages: Languages = (None, None)) -> ImportedModel:
    """Read a model.

    Args:
        languages: of sources and of answers, for models that know several.

    Raises:
        ModelImportError: a file is missing or damaged, or the model has something that no option of ours stands for.
        SubwordError: the tokenizer's files cannot be used.
    """
    generation = read_json(folder / "generation_config.json") if (folder / "generation_config.json").is_file() else {}
    document = generation | {k: v for k, v in read_json(folder / "config.json").items() if v is not None}
    kind = document.get("model_type")
    if not isinstance(kind, str) or kind not in READERS:
        problem = "is missing" if kind is None else f"= {short_repr(kind)} is not supported"
        raise ModelImportError(
            f"config.json: model_type {problem}; supported are {', '.join(READERS)}. "
            "lab.diagnose(model, src, tgt, …) examines any encoder-decoder"
        )
    if any(languages) and kind not in MULTILINGUAL:
        chosen = next(each for each in languages if each)
        raise ModelImportError(f"language {chosen!r}: a model of model_type={kind!r} has no choice of languages")
    model = READERS[kind](folder, document, generation, languages)
    settings = {key: generation.get(key) for key in _DECODING}
    ignored = [f"{key}={value}" for key, value in settings.items() if value not in (None, _NEUTRAL.get(key))]
    if ignored:
        note = f"not imported, choose them when decoding: {', '.join(ignored)}"
        return replace(model, notes=(*model.notes, note))
    return model
