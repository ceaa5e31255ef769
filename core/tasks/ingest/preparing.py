"""Prepare training on the user's own pairs: import their files and make a preset for them."""

import re
import tempfile
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from core.config import SPECIAL_TOKENS, Preset, parse_preset, preset_names
from core.tasks.ingest.pairs import IngestResult, ingest_pairs
from core.tasks.ingest.reading import FileFormat, read_pairs
from core.text.tokenizers import TokenKind

MAX_PRESET_NAME = 40  # characters of a preset's name that are taken from a file's name
_SMALL, _LARGE = 3_000, 30_000  # sources; a small data set gets fewer steps, a large one a larger model


@dataclass(frozen=True)
class PairFiles:
    """The files that hold a user's pairs.

    Attributes:
        pairs: the pairs, or the sources if there is a target file.
        targets: a file with the target of each line of ``pairs``.
        test: pairs for the test split only, in the format of ``pairs``.
        file_format: of ``pairs`` and ``test``; None chooses by the file names.
    """

    pairs: Path
    targets: Path | None = None
    test: Path | None = None
    file_format: FileFormat | None = None


def prepare_preset(
    files: PairFiles,
    out: Path,
    *,
    kinds: tuple[TokenKind, TokenKind],
    name: str | None = None,
    max_pairs: int | None = None,
) -> tuple[IngestResult, Preset]:
    """Import pairs and make a preset for them.

    Args:
        out: the pairs file to write, for ``build_task(…, pairs=out)``.
        kinds: tokenizers of source and target.
        name: of the preset; None names it after the file with ``preset_name_for``.

    Raises:
        InputError: the files hold no usable pairs, or too few or too many; the message says why.
    """
    rows = read_pairs(files.pairs, file_format=files.file_format, targets=files.targets)
    test_rows = read_pairs(files.test, file_format=files.file_format) if files.test else ()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        draft = Path(folder) / "pairs"
        result = ingest_pairs(rows, draft, kinds=kinds, test_rows=test_rows, max_pairs=max_pairs)
        draft.replace(out)
    return result, preset_for(result, name=name or preset_name_for(files.pairs))


def preset_name_for(file: Path) -> str:
    """Return the name of a preset for the pairs in a file: ``My pairs.tsv`` gives ``my-pairs``.

    Accents are dropped, and other characters than a-z and 0-9 become hyphens; ``own-pairs`` is for a file without any.
    A name that a shipped preset has gets ``-pairs``.
    """
    letters = [each for each in unicodedata.normalize("NFKD", file.stem.lower()) if not unicodedata.combining(each)]
    name = re.sub(r"[^a-z0-9]+", "-", "".join(letters))[:MAX_PRESET_NAME].strip("-") or "own-pairs"
    return f"{name}-pairs" if name in preset_names() else name


def preset_for(result: IngestResult, *, name: str) -> Preset:
    """Return a preset for imported pairs, with a model and a number of steps that fit their number."""
    longest_source, longest_target = result.longest
    is_large = result.sources > _LARGE
    d_model = 128 if is_large else 64
    training_pairs = result.pairs - (result.test_pairs or 0)
    document = {
        "name": name,
        "description": f"Own data: {result.pairs:,} pairs with {result.sources:,} different sources.",
        "task": {
            "family": "own-pairs",
            "data": result.sha256,
            "num_sources": result.sources,
            "source_tokens": result.kinds[0],
            "answer_tokens": result.kinds[1],
            "longest_source": longest_source,
            "longest_answer": longest_target,
        },
        "model": {
            "family": "transformer",
            "d_model": d_model,
            "num_heads": 4,
            "num_encoder_layers": 3 if is_large else 2,
            "num_decoder_layers": 2,
            "d_ff": 4 * d_model,
            "max_seq_len": min(512, max(longest_source, longest_target) + SPECIAL_TOKENS),
            "dropout": 0.1,
            "norm": "pre",
        },
        "training": {
            "steps": 6_000 if is_large else 3_000 if training_pairs > _SMALL else 1_500,
            "batch_size": 64,
            "group_by_length": True,
            "learning_rate": 0.002,
            "warmup_steps": 100,
            "label_smoothing": 0.1 if result.sources > _SMALL else 0.0,
            "evaluate_every": 100,
            "validation_sequences": 500,
        },
    }
    return parse_preset(document)
