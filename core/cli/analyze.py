"""``analyze``: score every attention head of a run on its own decodes of test sequences, and ablate each in turn."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator

import pandas as pd
from tqdm import tqdm

from core.cli.arguments import add_json, add_run, add_sequences, check_sequences
from core.interpret.ablation import AblatedHead, ablation_rows, cached_grid, grid_cells
from core.interpret.head_table import measure_heads
from core.runs import DEFAULT_ROOT, RunFolder
from core.runs.load import LoadedRun, SavedRuns
from core.tasks import Batch, fixed_pairs

FormatColumn = Callable[[pd.DataFrame], list[str]]

HOW_TO_READ = """\
produced, read: attention on the source token of the token the step produced, or read; uniform: of uniform attention
AER: alignment error rate of the largest weights, for each of the two; * marks the best of its column
entropy: 0 on one token, 1 uniform; offset: the most frequent offset of the largest weight from the token read, and its
share (pos: positional head); largest: mean largest weight; nearest: the most similar head of the layer, distance 0 to 1
BOS, EOS, PAD: attention on these tokens; without: exact match with the head's output replaced by zeros
Attention shows where a head attends, not why the model produced its output; the last column tests that."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    add_sequences(parser, default=1_000)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print one line per head: where it attends, how sharply, its nearest head, and exact match without it."""
    check_sequences(options.sequences)
    root = options.checkpoints or DEFAULT_ROOT
    loaded = SavedRuns(root).loaded(options.run)
    pairs = fixed_pairs(loaded.task, options.sequences, split="test")
    cells = _ablated(loaded, pairs, RunFolder(root, options.run))
    table = measure_heads(loaded.model, loaded.task, pairs).merge(_without(cells), on=["block", "layer", "head"])
    print(f"run {loaded.run} ({loaded.preset.name}), best weights, from step {loaded.step}")
    print(f"attention while decoding {len(pairs)} held-out sequences, free-running\n")
    for line in _lines(table):
        print(line)
    layers = _without(cells, layers=True)
    without = ", ".join(f"{layer.block}.{layer.layer} {layer.exact_match_without:.1%}" for layer in layers.itertuples())
    print(f"\nexact match: {cells[0].intact:.1%} with all heads; without all heads of a layer: {without}")
    print(f"\n{HOW_TO_READ}")
    if options.json:
        result = {"run": loaded.run, "preset": loaded.preset.name, "step": loaded.step, "sequences": len(pairs)}
        result |= {"exact_match": cells[0].intact, "heads": _records(table), "layers": _records(layers)}
        print(json.dumps(result))
    return 0


def _ablated(loaded: LoadedRun, pairs: Batch, folder: RunFolder) -> list[AblatedHead]:
    """Decode the pairs without each head, with a progress bar; the result is cached in the run's folder."""
    cells = cached_grid(folder.ablation, loaded.model, pairs, step=loaded.step)
    count = len(grid_cells(loaded.model.heads))
    return list(tqdm(cells, desc="ablating", total=count, unit="head", file=sys.stderr, leave=False))


def _without(cells: list[AblatedHead], *, layers: bool = False) -> pd.DataFrame:
    """Return exact match without each head, or without all heads of each layer, as ``exact_match_without``."""
    table = pd.DataFrame(ablation_rows(cells)).drop(columns="change")
    table = table.rename(columns={"exact_match": "exact_match_without"})
    whole = table["head"] == 0
    return table[whole].drop(columns="head") if layers else table[~whole]


def _records(table: pd.DataFrame) -> list[dict]:
    """Return the rows as plain data, with None for NaN."""
    return table.round(6).astype(object).where(table.notna(), None).to_dict("records")


def _lines(table: pd.DataFrame) -> Iterator[str]:
    """Format the table with aligned columns."""
    names = ["head", *(f"{head.block}.{head.layer}.{head.head}" for head in table.itertuples())]
    columns = [[heading, *format_column(table)] for heading, format_column in COLUMNS]
    widths = [max(map(len, column)) for column in columns]
    for name, *cells in zip(names, *columns, strict=True):
        padded = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        yield "  ".join([name.ljust(max(map(len, names))), *padded]).rstrip()


def _each(name: str, format_cell: Callable[[pd.Series], str]) -> FormatColumn:
    """Return a function that formats a column head by head, with a dash for NaN."""

    def column(table: pd.DataFrame) -> list[str]:
        return ["–" if pd.isna(head[name]) else format_cell(head) for _, head in table.iterrows()]

    return column


def _offset(head: pd.Series) -> str:
    return f"{head.offset:+d} {head.offset_fraction:.1%} {'pos' if head.positional else '   '}"


def _percent(name: str) -> FormatColumn:
    return _each(name, lambda head: f"{head[name]:.1%}")


def _starred(name: str, best: Callable[[pd.Series], float]) -> FormatColumn:
    """Return a function that formats a column of percentages, with a star after the best."""

    def column(table: pd.DataFrame) -> list[str]:
        marks = table[name].eq(best(table[name])).map({True: "*", False: " "})
        return [text + mark for text, mark in zip(_percent(name)(table), marks, strict=True)]

    return column


COLUMNS: tuple[tuple[str, FormatColumn], ...] = (
    ("produced ", _starred("mass_produced", pd.Series.max)),
    ("uniform", _percent("uniform_produced")),
    ("AER ", _starred("aer_produced", pd.Series.min)),
    ("read ", _starred("mass_read", pd.Series.max)),
    ("uniform", _percent("uniform_read")),
    ("AER ", _starred("aer_read", pd.Series.min)),
    ("entropy", _each("entropy", lambda head: f"{head.entropy:.2f}")),
    ("offset    ", _each("offset", _offset)),
    ("largest", _percent("confidence")),
    ("nearest", _each("nearest_head", lambda head: f"{head.nearest_head} {head.distance:.2f}")),
    ("BOS", _percent("mass_bos")),
    ("EOS", _percent("mass_eos")),
    ("PAD", _percent("mass_pad")),
    ("without", _percent("exact_match_without")),
)
