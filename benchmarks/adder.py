"""``bench adder``: AdderBoard's protocol on a run that adds: its pairs, its edge cases, its count of parameters.

AdderBoard (https://github.com/anadim/AdderBoard) tests the sums of 10 edge cases and of 10,000 pairs of integers up to
9,999,999,999 from ``random.Random(2025)``. At least 99 % must be right, from a model with self-attention that generates
one token after another. Unique parameters count: shared ones once, fixed positions not at all.

``--submission FILE`` writes what AdderBoard's verify.py reads. It decodes with this repository, one sum at a time.
"""

import argparse
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from core import plugins
from core.config import read_preset
from core.config.counting import percent
from core.config.preset import PLUGIN_FILES
from core.config.sections import GRUConfig
from core.evaluation.passes import DECODED
from core.generation import generate
from core.interpret.trained import Trained
from core.models import Seq2Seq, assemble_model
from core.runs import DEFAULT_ROOT, RunFolder
from core.runs.export import export_weights
from core.runs.load import load_run
from core.storage.errors import InputError
from core.storage.tensor_file import load_into, read_tensors
from core.tasks import build_task
from core.tasks.addition import Addition
from core.tasks.data import pad_rows
from core.text.vocab import BOS_ID, EOS_ID, until_eos

LARGEST, DIGITS = 9_999_999_999, 10
RANDOM_PAIRS, SEED, NEEDED = 10_000, 2025, 0.99
EDGE_CASES = (
    (0, 0),
    (0, 1),
    (LARGEST, 0),
    (LARGEST, 1),
    (LARGEST, LARGEST),
    (5_000_000_000, 5_000_000_000),
    (1_111_111_111, 8_888_888_889),
    (1_234_567_890, 9_876_543_210),
    (LARGEST, LARGEST),  # twice in the protocol
    (1, LARGEST),
)
SHOWN = 10  # wrong sums printed
SUBMISSION = '''"""A submission to AdderBoard: `python verify.py {name}`, with Attention Lab on PYTHONPATH."""

from pathlib import Path

from benchmarks.adder import add, read_model

__all__ = ["add", "build_model"]


def build_model():
    here, metadata = Path(__file__), {metadata!r}
    return read_model(here.with_suffix(".safetensors"), [here.with_name(name) for name in {plugins!r}]), metadata
'''

Adder = tuple[Seq2Seq, Addition]
"""A model in evaluation mode and its task."""


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Run the protocol and print the result; with ``--submission`` also write what AdderBoard's verify.py reads."""
    folder = RunFolder(options.checkpoints or DEFAULT_ROOT, options.run)
    loaded = load_run(folder.path)
    adder = adder_of(loaded)
    pairs = protocol_pairs()
    started = time.process_time()
    answers = add_all(adder, pairs)
    seconds = time.process_time() - started
    wrong = [index for index, (first, second) in enumerate(pairs) if answers[index] != first + second]
    right, parameters = len(pairs) - len(wrong), unique_parameters(loaded.model)
    edge_cases = len(EDGE_CASES) - sum(index < len(EDGE_CASES) for index in wrong)
    is_qualified = right >= NEEDED * len(pairs)
    print(
        f"run {options.run}: {right:,} of {len(pairs):,} sums right ({percent(right / len(pairs), 2)}), {edge_cases} "
        f"of {len(EDGE_CASES)} edge cases; {parameters:,} unique parameters; {seconds:.1f} s of processor time"
    )
    print("qualified" if is_qualified else f"not qualified: fewer than {percent(NEEDED, 0)} are right")
    for index in wrong[:SHOWN]:
        first, second = pairs[index]
        print(f"  {first} + {second} = {first + second}, not {answers[index]}")
    if options.submission:
        write_submission(options.submission, folder, loaded, parameters)
        names = [options.submission.with_suffix(".safetensors").name, *(path.name for path in _needed_files())]
        print(f"written to {options.submission}; {', '.join(names)} beside it")
    return {
        "run": options.run,
        "right": right,
        "sums": len(pairs),
        "edge_cases_right": edge_cases,
        "qualified": is_qualified,
        "unique_parameters": parameters,
        "seconds": seconds,
    }


def protocol_pairs() -> list[tuple[int, int]]:
    """Return the edge cases, then the random pairs."""
    rng = random.Random(SEED)  # noqa: S311 - the protocol's
    return [*EDGE_CASES, *((rng.randint(0, LARGEST), rng.randint(0, LARGEST)) for _ in range(RANDOM_PAIRS))]


def adder_of(loaded: Trained) -> Adder:
    """Return a run's model and task.

    Raises:
        InputError: the run does not add numbers of ten digits, or its model has no self-attention.
    """
    if not isinstance(loaded.task, Addition) or loaded.task.max_digits < DIGITS:
        raise InputError(f"--run={loaded.run} must be trained on task.family='addition', task.max_digits={DIGITS}")
    if isinstance(loaded.preset.model, GRUConfig):
        raise InputError(f"--run={loaded.run} must have self-attention, which model.family='gru' has not")
    return loaded.model, loaded.task


def add_all(adder: Adder, pairs: Sequence[tuple[int, int]]) -> list[int | None]:
    """Return the sums that a model decodes greedily, token by token; None for an output that is not a number."""
    model, task = adder
    rows = []
    for first, second in pairs:
        rows.append([BOS_ID, *task.src_vocab.encode(task.tokenize(f"{first}+{second}")), EOS_ID])
    src = pad_rows(rows, max(map(len, rows)))
    steps = min(task.max_digits + 2, model.max_seq_len)  # digits of the largest sum, and EOS
    tokens = torch.cat([generate(model, part, max_steps=steps).tokens for part in src.split(DECODED)])
    return [task.number(task.tgt_vocab.decode(until_eos(row))) for row in tokens.tolist()]


def add(adder: Adder, a: int, b: int) -> int | None:
    """Return the sum of one pair, as AdderBoard calls it."""
    return add_all(adder, [(a, b)])[0]


def unique_parameters(model: Seq2Seq) -> int:
    """Count parameters as AdderBoard does: shared ones once, learned positions, but not fixed ones (buffers)."""
    return sum({id(parameter): parameter.numel() for parameter in model.parameters()}.values())


def write_submission(path: Path, folder: RunFolder, loaded: Trained, parameters: int) -> None:
    """Write a submission, and next to it its weights (``.safetensors``) and the plugins that they need.

    The presets that plugins register are copied too, since a plugin reads them when it is loaded.

    Raises:
        InputError: one of the files exists already, or cannot be written.
    """
    if path.suffix != ".py" or path.exists():
        raise InputError(f"--submission={str(path)[:200]} must be a new file with a name that ends in .py")
    for name, plugin in PLUGIN_FILES.items():
        in_other_folders = [each for each in plugin.preset_files if Path(each).parent != Path(plugin.path).parent]
        if plugin.imports or in_other_folders:
            needed = ", ".join([*plugin.imports, *in_other_folders])
            raise InputError(f"--submission={str(path)[:200]}: its plugin {name} needs other files: {needed[:200]}")
    for file in _needed_files():
        copy = path.with_name(file.name)
        if copy == path or (copy.exists() and copy.read_bytes() != file.read_bytes()):
            raise InputError(f"--submission={str(path)[:200]}: another file is where its plugin's {copy.name} goes")
    export_weights(folder, path.with_suffix(".safetensors"))
    metadata = {
        "name": f"Attention Lab, {loaded.preset.name}",
        "author": "Attention Lab",
        "params": parameters,
        "architecture": loaded.preset.model.summary,
        "tricks": [loaded.preset.task.summary, f"positions: {getattr(loaded.preset.model, 'positions', 'none')}"],
    }
    for file in _needed_files():
        path.with_name(file.name).write_bytes(file.read_bytes())
    path.write_text(SUBMISSION.format(name=path.name, metadata=metadata, plugins=[*PLUGIN_FILES]), encoding="utf-8")


def _needed_files() -> list[Path]:
    """Return the files of the loaded plugins and of the presets that they register."""
    return [Path(file) for plugin in PLUGIN_FILES.values() for file in (plugin.path, *plugin.preset_files)]


def read_model(weights: Path, plugin_files: Sequence[Path] = ()) -> Adder:
    """Read the weights of a submission, with blocks that plugins may build."""
    torch.set_num_threads(1)
    for file in plugin_files:
        plugins.load(file)
    tensors, facts = read_tensors(weights)
    preset = read_preset(str(facts["preset"]), name="submission")
    task = build_task(preset.task)
    model = assemble_model(preset.model, task)
    load_into(model, tensors, weights.name)
    return model.eval(), task  # type: ignore[return-value] # checked when it was written
