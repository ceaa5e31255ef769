"""``runs``: list the runs, the latest first."""

import argparse
import json
import sys
from typing import Any

from core.evaluation.headline import HeadlineFigure
from core.reports.formatting import headline_text
from core.runs import DEFAULT_ROOT, RunError, RunFolder, list_runs
from core.runs.text_tables import aligned

_COLUMNS = ("title", "name", "preset", "status", "step", "result", "created (UTC)", "task")


def run(options: argparse.Namespace) -> int:
    """Print a row for every run; a run that cannot be read is named on standard error."""
    listed = []
    for folder in list_runs(options.checkpoints or DEFAULT_ROOT):
        try:
            listed.append(_described(folder))
        except RunError as error:
            print(f"not listed: {error}", file=sys.stderr)
    if listed:
        print(aligned([_COLUMNS, *map(_row, listed)], left=len(_COLUMNS)))
    if options.json:
        print(json.dumps({"runs": listed}))
    return 0


def _described(folder: RunFolder) -> dict[str, Any]:
    info, preset = folder.read_info(), folder.read_preset()
    return {
        "run": folder.name,
        "title": folder.read_title(),
        "preset": preset.name,
        "task": preset.task.summary,
        "status": info.status,
        "shipped": info.shipped,
        "step": info.step,
        "steps": preset.planned_steps,
        "exact_match": info.exact_match,
        "train_exact_match": info.train_exact_match,
        "train_token_accuracy": info.train_token_accuracy,
        "headline": [figure.model_dump() for figure in info.figures],
        "quality": info.quality and info.quality.model_dump(),
        "without_bleu": info.without_bleu,
        "created": info.created.isoformat(),
    }


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    result = headline_text([HeadlineFigure(**figure) for figure in each["headline"]])
    planned = "" if each["steps"] is None else f"/{each['steps']:,}"
    step, created = f"{each['step']:,}{planned}", each["created"][:16].replace("T", " ")
    return each["title"], each["run"], each["preset"], each["status"], step, result, created, each["task"]
