"""The list of a visitor's runs: the latest ones, or the latest that match what is searched for."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from core.config import Preset
from core.runs import RunError, RunProgress
from core.server.registry import Runs

MAX_LISTED = 100
MAX_SEARCHED = 2_000  # runs, as many as have a cached preset: reading one takes a millisecond


@dataclass(frozen=True)
class RunRow:
    """A run in a list. ``shared``: whether others may view it."""

    name: str
    title: str
    shared: bool
    preset: Preset
    progress: RunProgress


@dataclass(frozen=True)
class RunList:
    """Runs as a list shows them.

    Attributes:
        rows: the latest runs that match, at most ``MAX_LISTED``, and those to keep.
        unlisted: number of further runs that match.
        unsearched: number of older runs that were not searched.
    """

    rows: tuple[RunRow, ...]
    unlisted: int
    unsearched: int


def find_runs(
    runs: Runs, names: Sequence[str], *, search: str = "", task: str = "", keep: Collection[str] = ()
) -> RunList:
    """Return the runs that match a search; without one, the latest.

    Runs that cannot be read are left out, and logged once.

    Args:
        names: the runs that the visitor may see, the latest first.
        search: words, each of which must be in the name, title, preset, task or status of a run; case does not matter.
        task: summary of the task, as rows have it; "" for all tasks.
        keep: names of runs to list anyway; those that are not among ``names`` are ignored.
    """
    words = search.lower().split()
    is_search = bool(words or task)
    searched = names[:MAX_SEARCHED] if is_search else names
    rows: list[RunRow] = []
    unlisted = 0
    for at, name in enumerate(searched):
        if len(rows) == MAX_LISTED and not is_search:
            unlisted = len(searched) - at  # none of them is read
            break
        row = _row(runs, name)
        if row is None or (is_search and not _matches(row, words, task)):
            continue
        if len(rows) < MAX_LISTED:
            rows.append(row)
        elif name not in keep:
            unlisted += 1
    missing = set(keep) - {row.name for row in rows}
    kept = [row for name in names if name in missing and (row := _row(runs, name))] if missing else []
    if not is_search:
        unlisted -= len(kept)
    return RunList((*rows, *kept), unlisted, len(names) - len(searched))


def _row(runs: Runs, name: str) -> RunRow | None:
    try:
        run = runs[name]
        return RunRow(name, run.title, runs.ownership(name).shared, run.preset, run.progress)
    except RunError:
        runs.is_readable(name)  # logs why it is not
        return None


def _matches(row: RunRow, words: Sequence[str], task: str) -> bool:
    summary = row.preset.task.summary
    if task and summary != task:
        return False
    text = " ".join([row.name, row.title, summary, row.preset.name, row.progress.info.status]).lower()
    return all(word in text for word in words)
