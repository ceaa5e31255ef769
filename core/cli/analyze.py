"""``analyze``: score every attention head of a run on its own decodes of test sequences, and ablate each in turn.

With ``--health``: print how gradients, updates and heads developed over the training. With ``--why INPUT``: explain one
predicted token.
"""

import argparse
import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean

import pandas as pd
from tqdm import tqdm

from core.cli.analyze_prediction import check_options, explain
from core.cli.arguments import check_sequences
from core.config.counting import percent
from core.interpret.ablation import AblatedHead, ablation_rows, cached_grid, grid_cells
from core.interpret.head_table import measure_heads
from core.interpret.health import MARKS, Figure
from core.interpret.health_course import health_rows, health_series, health_steps, marked_heads
from core.interpret.layer_table import measure_layers
from core.interpret.trained import Trained
from core.runs import DEFAULT_ROOT, RunFolder
from core.runs.run import Runs
from core.runs.text_tables import aligned
from core.storage.atomic import write_atomically
from core.storage.errors import InputError
from core.tasks import Batch, fixed_pairs

FormatColumn = Callable[[pd.DataFrame], list[str]]

HOW_TO_READ = """\
produced, read: attention on the source token of the token the step produced, or read; uniform: of uniform attention
AER: alignment error rate of the largest weights, for each of the two; * marks the best of its column
links: tokens with a gold alignment; in a translation in subwords those of the words that input and output share,
such as numbers and names
entropy: 0 on one token, 1 uniform; offset: the most frequent offset of the largest weight from the token read, and its
share (pos: positional head); largest: mean largest weight; nearest: the most similar head of the layer, distance 0 to 1
distances are those of Jensen and Shannon: 0 the same weights, 1 no key in common
BOS, EOS, PAD: attention on these tokens; without: exact match with the head's output replaced by zeros
induct, before: of a decoder-only model, on random tokens that are repeated: attention on the token after an earlier
occurrence of the token read (an induction head), and on the token before it
Attention shows where a head attends, not why the model produced its output; the last column tests that."""


def run(options: argparse.Namespace) -> int:
    """Print one line per head: where it attends, how sharply, its nearest head, and exact match without it."""
    check_sequences(options.sequences)
    check_options(options)
    root = options.checkpoints or DEFAULT_ROOT
    runs = Runs(root, pairs=options.pairs)
    if options.why is not None:
        return _why(runs, options)
    if options.health:
        return _health(runs, options)
    if options.csv:
        raise InputError(f"--csv={options.csv} needs --health")
    loaded = runs[options.run].trained()
    if not loaded.heads:
        raise InputError(f"run={options.run!r} has no attention heads; --why explains a prediction without them")
    pairs = fixed_pairs(loaded.task, options.sequences, split="test")
    cells = _ablated(loaded, pairs, RunFolder(root, options.run))
    table = measure_heads(loaded.model, loaded.task, pairs).merge(_without(cells), on=["block", "layer", "head"])
    print(f"run {loaded.run} ({loaded.preset.name}), best weights, from step {loaded.step}")
    print(f"attention while decoding {len(pairs)} held-out sequences, free-running\n")
    print(_lines(table))
    print(f"\n{_best_head(table)}")
    layers = _without(cells, layers=True)
    without = ", ".join(
        f"{layer.block}.{layer.layer} {percent(layer.exact_match_without)}" for _, layer in layers.iterrows()
    )
    print(f"\nexact match: {percent(cells[0].intact)} with all heads; without all heads of a layer: {without}")
    between = measure_layers(loaded.model, loaded.task, pairs)
    if neighbors := _neighbors(between):
        print(f"distance between the mean patterns of a layer and the next: {neighbors}")
    spectrum = loaded.fourier_power() if loaded.task.cyclic_tokens else None
    if spectrum is not None:
        print(f"Fourier power of the number embeddings: {_strongest(spectrum)}")
    print(f"\n{HOW_TO_READ}")
    if options.json:
        result = {"run": loaded.run, "preset": loaded.preset.name, "step": loaded.step, "sequences": len(pairs)}
        result |= {"exact_match": cells[0].intact, "heads": _records(table), "layers": _records(layers)}
        result["layer_distances"] = _records(between)
        if spectrum is not None:
            result["fourier_power"] = {str(frequency): round(share, 6) for frequency, share in spectrum.items()}
        print(json.dumps(result))
    return 0


def _why(runs: Runs, options: argparse.Namespace) -> int:
    """Explain one prediction."""
    for name in ("health", "csv"):
        if getattr(options, name):
            raise InputError(f"--{name} cannot be combined with --why")
    return explain(runs[options.run].trained(), options)


def _health(runs: Runs, options: argparse.Namespace) -> int:
    """Print one line per recorded step, and write every figure to a file if asked to."""
    snapshots = runs[options.run].replay.snapshots()
    rows, course = health_rows(snapshots), health_steps(snapshots)
    if not course:
        raise InputError(f"run={options.run!r} has no recorded health: it was trained by an earlier version")
    series = health_series(health for _, health in course)
    print(f"run {options.run}: health at {len(course)} steps of its training\n")
    columns = [each for each in HEALTH_COLUMNS[1:] if series[each[1]]]
    print("  ".join(title for title, _, _ in (HEALTH_COLUMNS[0], *columns)) + "  marked heads")
    for at, (step, health) in enumerate(course):
        cells = [str(step).rjust(6)]
        for title, measure, summary in columns:
            known = [values[at] for values in series[measure].values()]
            cells.append(_summarized(known, summary).rjust(len(title)))
        counts = Counter(each.mark for each in marked_heads(health))
        marks = ", ".join(f"{counts[mark]} {mark}" for mark in MARKS if counts[mark])
        print("  ".join([*cells, marks]).rstrip())
    last = [f"{each.head} {each.mark}" for each in marked_heads(course[-1][1])]
    print(f"\nmarked at step {course[-1][0]}: {', '.join(last) or 'none'}\n\n{HOW_TO_READ_HEALTH}")
    for mark, meaning in MARKS.items():
        print(f"{mark}: {meaning}")
    if options.csv:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        try:
            write_atomically(options.csv, text.getvalue().encode())
        except OSError as error:
            raise InputError(f"--csv={options.csv} cannot be written: {error.strerror}") from error
        print(f"written: {options.csv}, {len(rows[0])} columns")
    if options.json:
        records = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
        print(json.dumps({"run": options.run, "health": records}))
    return 0


def _summarized(values: Sequence[Figure], summary: Callable[[list[float]], float]) -> str:
    known = [value for value in values if value is not None]
    return f"{summary(known):.3g}" if known else "–"


def _ablated(loaded: Trained, pairs: Batch, folder: RunFolder) -> list[AblatedHead]:
    """Decode the pairs without each head, with a progress bar; the result is cached in the run's folder."""
    cells = cached_grid(folder.ablation, loaded.model, loaded.task, pairs, step=loaded.step)
    count = len(grid_cells(loaded.model.heads))
    return list(tqdm(cells, desc="ablating", total=count, unit="head", file=sys.stderr, leave=False, disable=None))


def _without(cells: list[AblatedHead], *, layers: bool = False) -> pd.DataFrame:
    """Return exact match without each head, or without all heads of each layer, as ``exact_match_without``."""
    table = pd.DataFrame(ablation_rows(cells)).drop(columns="change")
    table = table.rename(columns={"exact_match": "exact_match_without"})
    whole = table["head"] == 0
    return table[whole].drop(columns="head") if layers else table[~whole]


def _best_head(table: pd.DataFrame) -> str:
    """Print the head that aligns best with the source of the produced token, chance level, and number of links."""
    scored = table[table["links"] > 0]
    if scored.empty:
        return "no gold alignment: no token is known to come from a single token of the source"
    best = scored.nsmallest(1, "aer_produced").iloc[0]
    return (
        f"best alignment with the source of the token produced: {best.block}.{best.layer}.{best['head']}, "
        f"AER {percent(best.aer_produced)}; uniform attention {percent(best.uniform_aer_produced)}; "
        f"{best.links:,} links"
    )


def _neighbors(between: pd.DataFrame) -> str:
    """Format the distances of each layer to the next of its block; "" for models of one layer."""
    following = between[between["second"] == between["first"] + 1]
    return ", ".join(
        f"{each.block}.{each.first} to {each.second} {each.distance:.2f}" for each in following.itertuples()
    )


def _strongest(spectrum: pd.Series) -> str:
    """Format the frequencies that have more than twice the power that each would have of equal shares."""
    above = spectrum[spectrum > 2 / len(spectrum)].sort_values(ascending=False)
    listed = ", ".join(f"{frequency}: {percent(share)}" for frequency, share in above.items())
    among = f"of {len(spectrum)} frequencies, {percent(1 / len(spectrum))} each if all were equal"
    return f"{listed or 'none stands out'} ({among})"


def _records(table: pd.DataFrame) -> list[dict]:
    """Return the rows as plain data, with None for NaN."""
    return table.round(6).astype(object).where(table.notna(), None).to_dict("records")


def _lines(table: pd.DataFrame) -> str:
    """Format the table with aligned columns."""
    names = ["head", *(f"{head.block}.{head.layer}.{head.head}" for head in table.itertuples())]
    shown = COLUMNS + (INDUCTION_COLUMNS if "induction" in table else ())
    columns = [[heading, *format_column(table)] for heading, format_column in shown]
    return aligned(list(zip(names, *columns, strict=True)), left=1)


def _each(name: str, format_cell: Callable[[pd.Series], str]) -> FormatColumn:
    """Return a function that formats a column head by head, with a dash for NaN."""

    def column(table: pd.DataFrame) -> list[str]:
        return ["–" if pd.isna(head[name]) else format_cell(head) for _, head in table.iterrows()]

    return column


def _offset(head: pd.Series) -> str:
    return f"{head.offset:+d} {percent(head.offset_fraction)} {'pos' if head.positional else '   '}"


def _percent(name: str) -> FormatColumn:
    return _each(name, lambda head: percent(head[name]))


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
INDUCTION_COLUMNS: tuple[tuple[str, FormatColumn], ...] = (
    ("induct ", _starred("induction", pd.Series.max)),
    ("before ", _starred("previous_token", pd.Series.max)),
)

HEALTH_COLUMNS: tuple[tuple[str, str, Callable[[list[float]], float]], ...] = (
    ("  step", "step", max),
    ("perplexity", "perplexity", max),
    ("gradient", "gradient_norm", max),
    ("  update", "update_size", max),
    ("  output", "layer_rms", max),
    ("logits", "logit_rms", max),
    ("frequency", "fourier_power", max),
    ("entropy", "entropy_share", fmean),
    ("distance", "distance", fmean),
    ("change", "change", fmean),
    ("diversity", "diversity", fmean),
    ("induct", "induction", max),
    ("before", "previous_token", max),
)
HOW_TO_READ_HEALTH = """\
perplexity: exp of the validation loss; gradient: norm before clipping; update: change of the weights / their norm (L2);
output: root mean square after a layer; each of the part where it is largest. logits: root mean square. frequency: share
of the strongest one in the power of the embeddings of numbers modulo a prime. Means over heads on fixed inputs: entropy
(0 on one token, 1 uniform), distance in tokens, change since the snapshot before, diversity of a layer's heads (0 to
1). Of the best head of a decoder-only model, on random tokens that are repeated: induct, attention on the token after
an earlier occurrence; before, on the token before
--csv FILE writes every part, layer and head"""
