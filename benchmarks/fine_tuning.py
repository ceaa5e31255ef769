"""Fine-tune the translator of everyday sentences on 2,000 pairs of the LibreOffice Help, mixed with its own pairs.

``python -m benchmarks.fine_tuning PAIRS FOLDER``, where PAIRS is what ``core corpus tatoeba`` wrote. FOLDER gets the
files of pairs, the preset and the run. The test pairs of both are measured before and after.
"""

import random
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from core.__main__ import main as command
from core.runs import DEFAULT_ROOT
from core.tasks.pairs import SPLITS
from core.tasks.translation import corpus

TRANSLATOR = "translate-en-de-shipped"
NEW_PAIRS, VALIDATION_PAIRS = 2_000, 300  # of the Help; validation pairs of each
SETTINGS = {
    "training.steps": 1_750,
    "training.warmup_steps": 100,
    "training.learning_rate": 0.0012,
    "training.muon_learning_rate": 0.008,
    "training.evaluate_every": 1_750,
    "training.validation_sequences": 200,
}
TextPair = tuple[str, str]


def main(pairs: str, folder: str, num_own: str = "") -> None:
    """Train and measure.

    Args:
        num_own: of the translator's own training pairs, chosen at random; "" mixes in all.
    """
    out = Path(folder)
    runs = out / "runs"
    shutil.copytree(DEFAULT_ROOT / TRANSLATOR, runs / TRANSLATOR)
    help_pairs, own = _help(), _own(Path(pairs))
    own_training = random.Random(0).sample(own["train"], int(num_own)) if num_own else own["train"]  # noqa: S311
    new = random.Random(0).sample(help_pairs["train"], NEW_PAIRS)  # noqa: S311 - test data
    files = {
        "mixed": [*own_training, *new],
        "validation": [*help_pairs["validation"][:VALIDATION_PAIRS], *own["validation"][:VALIDATION_PAIRS]],
        "help": help_pairs["test"],
        "own": own["test"],
    }
    for name, listed in files.items():
        _write(out / f"{name}.tsv", listed)
    preset, in_runs = out / "fine-tuned.yaml", ["--checkpoints", str(runs)]
    held_out = ["--test", f"help={out / 'help.tsv'}", "--test", f"own={out / 'own.tsv'}"]
    held_out += ["--validation", str(out / "validation.tsv"), "--tokens", "subword"]
    like = ["--preset", str(runs / TRANSLATOR / "preset.yaml"), "--name", "fine-tuned", "--out", str(preset)]
    _run(*in_runs, "data", str(out / "mixed.tsv"), *held_out, *like)
    start = ["train", "--from", TRANSLATOR, "--preset", str(preset)]
    # One update that changes nothing: the translator as it is, measured like the other
    _run(*in_runs, *start, "--run", "before", "--set", "training.steps=1", "--set", "training.warmup_steps=0",
         "--set", "training.learning_rate=1e-12", "--set", "training.muon_learning_rate=1e-12")  # fmt: skip
    _run(*in_runs, *start, "--run", "after", *(f"--set={key}={value}" for key, value in SETTINGS.items()))
    for run in ("before", "after"):
        _run(*in_runs, "evaluate", "--run", run, "--sequences", "2400")


def _help() -> dict[str, list[TextPair]]:
    pairs, split = corpus()
    return {name: [pair for pair, of in zip(pairs, split, strict=True) if of == at] for at, name in enumerate(SPLITS)}


def _own(path: Path) -> dict[str, list[TextPair]]:
    found: dict[str, list[TextPair]] = {name: [] for name in SPLITS}
    for line in path.read_text(encoding="utf-8").splitlines():
        source, target, *split = line.split("\t")
        found[split[0] if split else "train"].append((source, target))
    return found


def _write(path: Path, pairs: Iterable[TextPair]) -> None:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")


def _run(*arguments: str) -> None:
    if code := command(list(arguments)):
        sys.exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
