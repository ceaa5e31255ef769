"""``analyse``: every head of a run in numbers, from its own decodes of held-out test sequences, and without it."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator

import pandas as pd
from tqdm import tqdm

from core.cli.evaluate import check_sequences
from core.interpret import measure_heads
from core.interpret.ablation import AblatedHead, ablation_table, cells_of, remembered_grid
from core.runs import DEFAULT_ROOT, RunFolder
from core.runs.load import LoadedRun, SavedRuns
from core.tasks import Batch, fixed_pairs

Write = Callable[[pd.DataFrame], list[str]]

HOW_TO_READ = """\
produced, read: attention on the input token that the token produced, or read, comes from; uniform: if all got the same
AER: alignment error rate of the largest weights, for the one and the other; * best of its column
entropy: 0 on one token, 1 evenly spread; offset: the largest weight's commonest, from the token read (pos: positional)
largest: mean of the largest weight; nearest: the most similar head of the layer, and its distance from 0 to 1
BOS, EOS, PAD: attention on these; without: exact match with zeros in place of what the head makes.
Attention shows where a head looked, not by itself why the model answered so; the last column tests it."""


def run(options: argparse.Namespace) -> int:
    """Print a line a head: where it looks, how sharply, how like the others, and what goes without it."""
    check_sequences(options.sequences)
    root = options.checkpoints or DEFAULT_ROOT
    loaded = SavedRuns(root).loaded(options.run)
    pairs = fixed_pairs(loaded.task, options.sequences, split="test")
    cells = _knocked_out(loaded, pairs, RunFolder(root, options.run))
    table = measure_heads(loaded.model, loaded.task, pairs).merge(_without(cells), on=["block", "layer", "head"])
    print(f"run {loaded.run} ({loaded.preset.name}), best weights, from step {loaded.step}")
    print(f"attention while writing {len(pairs)} held-out sequences, free-running\n")
    for line in _lines(table):
        print(line)
    layers = _without(cells, layers=True)
    worth = ", ".join(f"{layer.block}.{layer.layer} {layer.exact_match_without:.1%}" for layer in layers.itertuples())
    print(f"\nexact match: {cells[0].intact:.1%} with all heads; without a whole layer's: {worth}")
    print(f"\n{HOW_TO_READ}")
    if options.json:
        said = {"run": loaded.run, "preset": loaded.preset.name, "step": loaded.step, "sequences": len(pairs)}
        said |= {"exact_match": cells[0].intact, "heads": _records(table), "layers": _records(layers)}
        print(json.dumps(said))
    return 0


def _knocked_out(loaded: LoadedRun, pairs: Batch, folder: RunFolder) -> list[AblatedHead]:
    """Decode the pairs without each head, with a bar; what was measured before is remembered."""
    cells = remembered_grid(folder.ablate, loaded.model, pairs, step=loaded.step)
    count = len(cells_of(loaded.model.heads))
    return list(tqdm(cells, desc="knocking out", total=count, unit="head", file=sys.stderr, leave=False))


def _without(cells: list[AblatedHead], *, layers: bool = False) -> pd.DataFrame:
    """Return exact match without each head, or without each whole layer, as ``exact_match_without``."""
    table = ablation_table(cells).drop(columns="change").rename(columns={"exact_match": "exact_match_without"})
    whole = table["head"] == 0
    return table[whole].drop(columns="head") if layers else table[~whole]


def _records(table: pd.DataFrame) -> list[dict]:
    """Return the rows as plain data, None where there is no figure."""
    return table.round(6).astype(object).where(table.notna(), None).to_dict("records")


def _lines(table: pd.DataFrame) -> Iterator[str]:
    """Write the table for people, each column as wide as it needs to be."""
    names = ["head", *(f"{head.block}.{head.layer}.{head.head}" for head in table.itertuples())]
    columns = [[heading, *write(table)] for heading, write in COLUMNS]
    widths = [max(map(len, column)) for column in columns]
    for name, *cells in zip(names, *columns, strict=True):
        padded = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        yield "  ".join([name.ljust(max(map(len, names))), *padded]).rstrip()


def _each(name: str, write: Callable[[pd.Series], str]) -> Write:
    """Return what writes a column head by head, with a dash where there is no figure."""

    def column(table: pd.DataFrame) -> list[str]:
        return ["–" if pd.isna(head[name]) else write(head) for _, head in table.iterrows()]

    return column


def _offset(head: pd.Series) -> str:
    return f"{head.offset:+d} {head.offset_share:.1%} {'pos' if head.positional else '   '}"


def _percent(name: str) -> Write:
    return _each(name, lambda head: f"{head[name]:.1%}")


def _starred(name: str, best: Callable[[pd.Series], float]) -> Write:
    """Return what writes a column of shares, with a star behind the best."""

    def column(table: pd.DataFrame) -> list[str]:
        marks = table[name].eq(best(table[name])).map({True: "*", False: " "})
        return [text + mark for text, mark in zip(_percent(name)(table), marks, strict=True)]

    return column


COLUMNS: tuple[tuple[str, Write], ...] = (
    ("produced ", _starred("share_produced", pd.Series.max)),
    ("uniform", _percent("uniform_produced")),
    ("AER ", _starred("aer_produced", pd.Series.min)),
    ("read ", _starred("share_read", pd.Series.max)),
    ("uniform", _percent("uniform_read")),
    ("AER ", _starred("aer_read", pd.Series.min)),
    ("entropy", _each("entropy", lambda head: f"{head.entropy:.2f}")),
    ("offset    ", _each("offset", _offset)),
    ("largest", _percent("confidence")),
    ("nearest", _each("nearest_head", lambda head: f"{head.nearest_head} {head.distance:.2f}")),
    ("BOS", _percent("on_bos")),
    ("EOS", _percent("on_eos")),
    ("PAD", _percent("on_pad")),
    ("without", _percent("exact_match_without")),
)
