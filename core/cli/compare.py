"""``compare``: runs of one task side by side, on the same held-out test sequences."""

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from tqdm import tqdm

from core.cli.evaluate import check_sequences
from core.config.tasks import span
from core.reports.comparison import Comparison, Progress, as_data, compare
from core.reports.report.numerals import percent
from core.runs import DEFAULT_ROOT, list_runs
from core.runs.load import SavedRuns
from core.storage.errors import InputError

Rows = list[list[str]]
_SHARES = {
    "token_accuracy": "teacher-forced tokens",
    "token_accuracy_free_running": "free-running tokens",
    "exact_match": "exact match",
}
_PAIRS_IN_WORDS = 3  # more are given as a table


def run(options: argparse.Namespace) -> int:
    """Measure the runs, and print their figures, what differs in them, and who wins how often."""
    check_sequences(options.sequences)
    root = options.checkpoints or DEFAULT_ROOT
    lengths = lengths_of(options.lengths)
    check_sequences(options.per_length, option="--per-length")
    per_length = 0 if options.lengths is None else options.per_length
    names = named_runs(options.runs, [folder.name for folder in list_runs(root)])
    comparison = _with_bar(SavedRuns(root), names, sequences=options.sequences, per_length=per_length, lengths=lengths)
    said = as_data(comparison)
    print(f"{said['task']}: {said['sequences']:,} held-out inputs, the same for all, each answered by itself\n")
    _print_table(_figures(said))
    if any(group["n"] > 1 for group in said["groups"]):
        print("\nover seeds, mean ± standard deviation")
        _print_table(_spreads(said))
    _print_settings(said)
    print()
    if len(said["pairs"]) <= _PAIRS_IN_WORDS:
        print("\n".join(pair["in_words"] for pair in said["pairs"]))
    else:
        _print_table(_pairs(said))
    print("\n" + " ".join(said["cautions"]))
    if said["lengths"]:
        _print_lengths(said)
    if options.json:
        print(json.dumps(said))
    return 0


def named_runs(text: str, known: Sequence[str]) -> list[str]:
    """Return the runs that ``a,b`` names: a name that is no run's stands for the seeds trained under it, if any."""
    names: list[str] = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        seeds = [each for each in known if re.fullmatch(rf"{re.escape(name)}-seed-\d+", each)]
        names += [name] if name in known or not seeds else sorted(seeds, key=lambda each: int(each.rpartition("-")[2]))
    return names


def lengths_of(text: str | None) -> range | None:
    """Return the lengths that ``41-100`` names; None for "" and None, the task's own.

    Raises:
        InputError: it is no range of lengths.
    """
    if not text:
        return None
    found = re.fullmatch(r"(\d{1,4})-(\d{1,4})", text)
    first, last = map(int, found.groups()) if found else (0, 0)
    if not 1 <= first <= last:
        raise InputError(f"--lengths={text[:60]} must be two lengths, the shortest and the longest, such as 41-100")
    return range(first, last + 1)


def _with_bar(runs: SavedRuns, names: Sequence[str], **settings: Any) -> Comparison:
    """Compare with a progress bar on standard error."""
    events = compare(runs, names, **settings)
    event = next(events)  # before there is a bar: what cannot be compared is refused here
    quiet = 0.1 if sys.stderr.isatty() else 2.0
    layout = "{desc} {percentage:3.0f}%|{bar}| {elapsed}"
    with tqdm(total=1.0, bar_format=layout, file=sys.stderr, mininterval=quiet) as bar:
        while isinstance(event, Progress):
            bar.set_description_str(event.run, refresh=False)
            bar.update(event.done - bar.n)
            event = next(events)
    return event


def _figures(said: dict[str, Any]) -> Rows:
    rows = [["run", "weights", "parameters", "trained", "loss", *_SHARES.values()]]
    for each in said["runs"]:
        weights, parameters = f"{each['weights']}, step {each['step']:,}", f"{each['parameters']:,}"
        shares = [percent(each[name]) for name in _SHARES]
        rows.append([each["run"], weights, parameters, f"{each['seconds']:.1f} s", f"{each['loss']:.4f}", *shares])
    return rows


def _spreads(said: dict[str, Any]) -> Rows:
    rows = [["settings of", "seeds", "trained", "loss", *_SHARES.values()]]
    for group in said["groups"]:
        figures = group["figures"]
        seconds = _spread(figures["seconds"], "{:.1f}".format) + " s"
        shares = [_spread(figures[name], percent, lambda sd: f"{100 * sd:.2f}") for name in _SHARES]
        rows.append([group["label"], str(group["n"]), seconds, _spread(figures["loss"], "{:.4f}".format), *shares])
    return rows


def _spread(figure: dict[str, Any], written: Callable[..., str], sd_written: Callable[..., str] | None = None) -> str:
    sd = figure["sd"]
    return written(figure["mean"]) + ("" if sd is None else f" ± {(sd_written or written)(sd)}")


def _print_settings(said: dict[str, Any]) -> None:
    """Print the settings that differ, a column a group."""
    if not said["settings"]:
        print("\nno setting differs" + (", but the seed" if len(said["groups"]) == 1 else ""))
        return
    print("\nsettings that differ")
    rows = [["setting", *(group["label"] for group in said["groups"])]]
    for key, values in said["settings"].items():
        rows.append([key, *("–" if value is None else str(value) for value in values)])
    _print_table(rows)


def _pairs(said: dict[str, Any]) -> Rows:
    rows = [["first", "second", "wins of the first", "of the second", "alike", "points apart", "95 % interval", "p"]]
    for pair in said["pairs"]:
        counts = [f"{pair[name]:,}" for name in ("wins", "losses", "ties")]
        rows.append([pair["first"], pair["second"], *counts, *pair["points"], pair["p"].removeprefix("p = ")])
    return rows


def _print_lengths(said: dict[str, Any]) -> None:
    """Print exact match by length, a row a length and a column a group."""
    lengths, (first, last) = said["lengths"], said["lengths"]["trained"]
    several = any(group["n"] > 1 for group in said["groups"])
    print(
        f"\nexact match by {lengths['unit']}; trained on {first} to {last}" + (", means over seeds" if several else "")
    )
    rows = [["length", "inputs", *(group["label"] for group in said["groups"])]]
    shares = [
        dict(zip(each["exact_match"]["at"], each["exact_match"]["mean"], strict=True)) for each in lengths["groups"]
    ]
    for length, inputs in zip(lengths["at"], lengths["inputs"], strict=True):
        cells = [percent(share[length]) if length in share else "–" for share in shares]
        rows.append([f"{length}{'' if first <= length <= last else ' *'}", str(inputs), *cells])
    _print_table(rows)
    print("* not trained on")
    for name, limit in lengths["limits"].items():
        print(f"{name} goes no further: {limit}")
    if longer := lengths["longer"]:
        _print_longer(longer, said["groups"])


def _print_longer(longer: dict[str, Any], groups: list[dict[str, Any]]) -> None:
    """Print the means over the lengths above those trained on, a row a run, and the medians of seeds."""
    print(f"\nmeans over lengths {span(longer['at'][0], longer['at'][-1])}, each length counting as much")
    rows = [["run", "free-running tokens", "exact match"]]
    for group in groups:
        means = [list(longer["runs"][run].values()) for run in group["runs"]]
        rows += [[run, *map(percent, of_run)] for run, of_run in zip(group["runs"], means, strict=True)]
        if len(means) > 1:
            medians = map(median, zip(*means, strict=True))
            rows.append([f"median of {group['label']}", *map(percent, medians)])
    _print_table(rows)


def _print_table(rows: Rows) -> None:
    """Print rows of text, the first of them the columns' names; the first column is on the left, others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  " + "  ".join([row[0].ljust(widths[0]), *cells]))
