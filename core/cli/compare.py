"""``compare``: compare runs of one task on the same test sequences, pair by pair and by length, or as groups."""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from textwrap import indent
from typing import Any, TypeVar

from tqdm import tqdm

from core.cli.arguments import check_sequences
from core.config.counting import percent
from core.config.tasks import format_range
from core.reports.comparison import Comparison, ComparisonProgress, as_data, compare
from core.reports.comparison.groups import (
    FORMATS,
    GroupComparison,
    compare_run_groups,
    groups_by_pattern,
    groups_of_sweep,
)
from core.reports.formatting import training_time
from core.runs import DEFAULT_ROOT, list_runs
from core.runs.run import Runs
from core.runs.sweeps.folder import SweepFolder
from core.runs.text_tables import aligned
from core.storage.error_messages import shortened
from core.storage.errors import InputError

Rows = list[list[str]]
C = TypeVar("C", Comparison, GroupComparison)
_METRICS = {
    "loss": "loss",
    "token_accuracy": "teacher-forced tokens",
    "token_accuracy_free_running": "free-running tokens",
    "exact_match": "exact match",
}
_LAYOUTS = {  # of the metrics that are no shares
    "loss": "{:.4f}".format,
    "bleu": "{:.2f}".format,
    "chrf": "{:.2f}".format,
    "perplexity": "{:.4f}".format,
}
_PAIRS_IN_SENTENCES = 3  # more pairs are printed as a table


def run(options: argparse.Namespace) -> int:
    """Print the figures of the runs, the settings that differ, and how every two runs or groups compare."""
    check_sequences(options.sequences)
    root = options.checkpoints or DEFAULT_ROOT
    _check_options(options)
    if options.runs is None:
        return _run_groups(options, root)
    lengths = lengths_of(options.lengths)
    check_sequences(options.per_length, option="--per-length")
    per_length = 0 if options.lengths is None else options.per_length
    names = named_runs(options.runs, [folder.name for folder in list_runs(root)])
    runs = Runs(root, pairs=options.pairs)
    compared = [runs[name] for name in names]
    comparison = _with_bar(compare(compared, sequences=options.sequences, per_length=per_length, lengths=lengths))
    result = as_data(comparison)
    print(f"{result['task']}: {result['sequences']:,} held-out inputs, the same for all, each decoded separately\n")
    _print_table(_figures(result))
    if any(group["n"] > 1 for group in result["groups"]):
        print("\nover seeds, mean ± standard deviation")
        _print_table(_spreads(result))
    if result["translation"]:
        _print_translation(result["translation"])
    if result["headline"]["without_bleu"]:
        print(f"\n{result['headline']['without_bleu']}")
    _print_settings(result)
    print()
    if len(result["pairs"]) <= _PAIRS_IN_SENTENCES:
        print("\n".join(pair["in_words"] for pair in result["pairs"]))
    else:
        for each in result["headline"]["measures"]:
            _print_table(_quality_pairs(result) if each["measure"] == "bleu" else _pairs(result))
    print("\n" + " ".join(result["cautions"]))
    if result["lengths"]:
        _print_lengths(result)
    if options.json:
        print(json.dumps(result))
    return 0


def _check_options(options: argparse.Namespace) -> None:
    """Refuse options that do not apply to the comparison."""
    of_groups = ("by", "baseline", "measure", "test", "format")
    if options.runs is not None:
        if given := next((name for name in of_groups if getattr(options, name) is not None), None):
            raise InputError(f"--{given} is for --groups and --sweep")
    elif options.lengths is not None:
        raise InputError("--lengths is for --runs")
    elif options.by is not None and options.sweep is None:
        raise InputError("--by is for --sweep; --groups names the runs of each group")


def _run_groups(options: argparse.Namespace, root: Path) -> int:
    """Print how groups of runs compare."""
    measure: Any = "loss"
    if options.sweep is None:
        groups = groups_by_pattern(options.groups, [folder.name for folder in list_runs(root)])
    else:
        keys = [key.strip() for key in (options.by or "").split(",") if key.strip()]
        groups, left_out, measure = groups_of_sweep(SweepFolder(root, options.sweep), keys)
        if left_out:
            print(f"left out: {left_out:,} trials or groups, pruned or with fewer than two runs done", file=sys.stderr)
    events = compare_run_groups(
        Runs(root, pairs=options.pairs),
        groups,
        measure=options.measure or measure,
        test=options.test or "welch",
        sequences=options.sequences,
        baseline=options.baseline,
    )
    comparison = _with_bar(events)
    print(FORMATS[options.format or "text"](comparison))
    if options.json:
        print(json.dumps(comparison.as_json()))
    return 0


def named_runs(text: str, known: Sequence[str]) -> list[str]:
    """Return the runs named by ``a,b``; a name that is not a run stands for its seeds, NAME-seed-0 and so on."""
    names: list[str] = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        seeds = [each for each in known if re.fullmatch(rf"{re.escape(name)}-seed-\d+", each)]
        names += [name] if name in known or not seeds else sorted(seeds, key=lambda each: int(each.rpartition("-")[2]))
    return names


def lengths_of(text: str | None) -> range | None:
    """Parse a range of lengths such as ``41-100``; None for "" and None, which stand for the task's own lengths.

    Raises:
        InputError: it is not a range of lengths.
    """
    if not text:
        return None
    match = re.fullmatch(r"(\d{1,4})-(\d{1,4})", text)
    first, last = map(int, match.groups()) if match else (0, 0)
    if not 1 <= first <= last:
        raise InputError(
            f"--lengths={shortened(text)} must be two lengths, the shortest and the longest, such as 41-100"
        )
    return range(first, last + 1)


def _with_bar(events: Iterator[ComparisonProgress | C]) -> C:
    """Return the comparison that ends the events, with a progress bar on the terminal, if there is one."""
    event = next(events)  # raises here, before a bar is drawn, if the runs cannot be compared
    layout = "{desc} {percentage:3.0f}%|{bar}| {elapsed}"
    with tqdm(total=1.0, bar_format=layout, file=sys.stderr, disable=None) as bar:
        while isinstance(event, ComparisonProgress):
            bar.set_description_str(event.run, refresh=False)
            bar.update(event.done - bar.n)
            event = next(events)
    return event


def _figures(result: dict[str, Any]) -> Rows:
    columns = _columns(result)
    rows = [["run", "weights", "parameters", "trained", *columns.values()]]
    for each in result["runs"]:
        weights, parameters = f"{each['weights']}, step {each['step']:,}", f"{each['parameters']:,}"
        figures = [training_time(each["seconds"]), *(_LAYOUTS.get(name, percent)(each[name]) for name in columns)]
        rows.append([each["title"], weights, parameters, *figures])
    return rows


def _spreads(result: dict[str, Any]) -> Rows:
    columns = _columns(result)
    rows = [["settings of", "seeds", "trained", *columns.values()]]
    for group in result["groups"]:
        figures = group["figures"]
        seconds = _spread(figures["seconds"], "{:.1f}".format) + " s" if figures["seconds"]["mean"] else "–"
        cells = [
            _spread(figures[name], _LAYOUTS[name])
            if name in _LAYOUTS
            else _spread(figures[name], percent, lambda sd: f"{100 * sd:.2f}")
            for name in columns
        ]
        rows.append([group["label"], str(group["n"]), seconds, *cells])
    return rows


def _columns(result: dict[str, Any]) -> dict[str, str]:
    """Return the names of the metrics by their keys: what decides first, chrF after BLEU, then the others."""
    columns: dict[str, str] = {}
    for each in result["headline"]["measures"]:
        columns[each["measure"]] = each["name"]
        if each["measure"] == "bleu":
            columns["chrf"] = "chrF"
    return columns | {name: label for name, label in _METRICS.items() if name not in columns}


def _print_translation(translation: dict[str, Any]) -> None:
    """Print the scores of copying the source, the signatures, and how two runs are compared."""
    copying = translation["copying"]
    print(f"\nthe sources as they are: {copying['bleu_name']} {copying['bleu']:.2f}, chrF {copying['chrf']:.2f}")
    for name in ("bleu", "chrf"):
        print(f"sacrebleu signature {copying[f'{name}_signature']}")
    print(f"paired bootstrap resampling: {translation['resamples']:,} resamples, seed {translation['seed']}")


def _quality_pairs(result: dict[str, Any]) -> Rows:
    title_of = {each["run"]: each["title"] for each in result["runs"]}
    names = (result["translation"]["copying"]["bleu_name"], "chrF")
    columns = [[name, "95 % interval", "p"] for name in names]
    rows = [["first", "second", *columns[0], *columns[1]]]
    for pair in result["pairs"]:
        cells = [[*pair["quality"][name]["points"], pair["quality"][name]["p"]] for name in ("bleu", "chrf")]
        rows.append([title_of[pair["first"]], title_of[pair["second"]], *cells[0], *cells[1]])
    return rows


def _spread(figure: dict[str, Any], layout: Callable[..., str], sd_layout: Callable[..., str] | None = None) -> str:
    sd = figure["sd"]
    return layout(figure["mean"]) + ("" if sd is None else f" ± {(sd_layout or layout)(sd)}")


def _print_settings(result: dict[str, Any]) -> None:
    """Print the settings that differ, one column per group."""
    if not result["settings"]:
        print("\nno setting differs" + (" except the seed" if len(result["groups"]) == 1 else ""))
        return
    print("\nsettings that differ")
    rows = [["setting", *(group["label"] for group in result["groups"])]]
    for key, values in result["settings"].items():
        rows.append([key, *("–" if value is None else str(value) for value in values)])
    _print_table(rows)


def _pairs(result: dict[str, Any]) -> Rows:
    title_of = {each["run"]: each["title"] for each in result["runs"]}
    rows = [["first", "second", "first wins", "second wins", "ties", "difference", "95 % interval", "p"]]
    for pair in result["pairs"]:
        counts = [f"{pair[name]:,}" for name in ("wins", "losses", "ties")]
        rows.append(
            [
                title_of[pair["first"]],
                title_of[pair["second"]],
                *counts,
                *pair["points"],
                pair["p"].removeprefix("p = "),
            ]
        )
    return rows


def _print_lengths(result: dict[str, Any]) -> None:
    """Print exact match by length: one row per length, one column per group."""
    lengths, (first, last) = result["lengths"], result["lengths"]["trained"]
    title_of = {each["run"]: each["title"] for each in result["runs"]}
    several = any(group["n"] > 1 for group in result["groups"])
    print(
        f"\nexact match by {lengths['unit']}; trained on {first} to {last}" + (", means over seeds" if several else "")
    )
    rows = [["length", "inputs", *(group["label"] for group in result["groups"])]]
    shares = [
        dict(zip(each["exact_match"]["at"], each["exact_match"]["mean"], strict=True)) for each in lengths["groups"]
    ]
    for length, inputs in zip(lengths["at"], lengths["inputs"], strict=True):
        cells = [percent(share[length]) if length in share else "–" for share in shares]
        rows.append([f"{length}{'' if first <= length <= last else ' *'}", str(inputs), *cells])
    _print_table(rows)
    print("* not trained on")
    for name, limit in lengths["limits"].items():
        print(f"{title_of[name]} is not evaluated on longer inputs: {limit}")
    if longer := lengths["longer"]:
        _print_longer(longer, result["groups"], title_of)


def _print_longer(longer: dict[str, Any], groups: list[dict[str, Any]], title_of: dict[str, str]) -> None:
    """Print means over lengths beyond training: one row per run, and the median over seeds."""
    print(f"\nmeans over lengths {format_range(longer['at'][0], longer['at'][-1])}, all lengths weighted equally")
    rows = [["run", "free-running tokens", "exact match"]]
    for group in groups:
        means = [list(longer["runs"][run].values()) for run in group["runs"]]
        rows += [[title_of[run], *map(percent, of_run)] for run, of_run in zip(group["runs"], means, strict=True)]
        if len(means) > 1:
            medians = map(median, zip(*means, strict=True))
            rows.append([f"median of {group['label']}", *map(percent, medians)])
    _print_table(rows)


def _print_table(rows: Rows) -> None:
    print(indent(aligned(rows, left=1), "  "))
