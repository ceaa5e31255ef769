"""From somebody's files to a preset that learns them."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from core.config import Preset, parse_preset
from core.tasks.ingest.intake import Intake, taken_in
from core.tasks.ingest.reading import FileKind, read_pairs
from core.text.tokenizers import TokenKind

_SPECIAL = 2  # BOS and EOS
_SMALL, _LARGE = 3_000, 30_000  # sources; with fewer a small model learns longer, with more a larger one


@dataclass(frozen=True)
class Brought:
    """Files that hold pairs.

    Attributes:
        pairs: the file, or that of the sources where there is a second one.
        targets: whose lines answer those of ``pairs``.
        test: pairs that are not to be learned from, of the same kind as ``pairs``.
        kind: of ``pairs`` and ``test``; None goes by their names.
    """

    pairs: Path
    targets: Path | None = None
    test: Path | None = None
    kind: FileKind | None = None


def prepared(
    brought: Brought, out: Path, *, kinds: tuple[TokenKind, TokenKind], name: str, max_pairs: int | None = None
) -> tuple[Intake, Preset]:
    """Take pairs in and make a preset that learns them.

    Args:
        out: the file to write the pairs to, for ``build_task(…, pairs=out)``.
        name: of the preset.

    Raises:
        InputError: there is nothing to be learned in the files; the message says why.
    """
    rows = read_pairs(brought.pairs, kind=brought.kind, targets=brought.targets)
    test_rows = read_pairs(brought.test, kind=brought.kind) if brought.test else ()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        draft = Path(folder) / "pairs"
        found = taken_in(rows, draft, kinds=kinds, test_rows=test_rows, max_pairs=max_pairs)
        draft.replace(out)
    return found, preset_of(found, name=name)


def preset_of(found: Intake, *, name: str) -> Preset:
    """Return a preset for pairs that were taken in, with a model whose size goes by how many there are."""
    source, answer = found.longest
    is_large = found.sources > _LARGE
    width = 128 if is_large else 64
    test = 0 if found.test_pairs is None else found.test_pairs
    document = {
        "name": name,
        "description": f"Own data: {found.pairs:,} pairs with {found.sources:,} different sources.",
        "task": {
            "family": "own-pairs",
            "data": found.sha256,
            "num_sources": found.sources,
            "source_tokens": found.kinds[0],
            "answer_tokens": found.kinds[1],
            "longest_source": source,
            "longest_answer": answer,
        },
        "model": {
            "family": "transformer",
            "d_model": width,
            "num_heads": 4,
            "num_encoder_layers": 3 if is_large else 2,
            "num_decoder_layers": 2,
            "d_ff": 4 * width,
            "max_seq_len": min(512, max(source, answer) + _SPECIAL),
            "dropout": 0.1,
            "norm": "pre",
        },
        "training": {
            "steps": 6_000 if is_large else 3_000 if found.pairs - test > _SMALL else 1_500,
            "batch_size": 64,
            "group_by_length": True,
            "learning_rate": 0.002,
            "warmup_steps": 100,
            "label_smoothing": 0.1 if found.sources > _SMALL else 0.0,
            "evaluate_every": 100,
            "validation_sequences": 500,
        },
    }
    return parse_preset(document)
