"""``sweep``: train many settings of a preset with many seeds, in several processes."""

import argparse
import contextlib
import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm

from core.cli.signals import print_or_stop, stopped_by_signals
from core.config.counting import counted
from core.config.preset import PLUGIN_FILES
from core.runs import DEFAULT_ROOT
from core.runs.logs import check_logs
from core.runs.sweeps import load_sweep
from core.runs.sweeps.checks import check_sweep
from core.runs.sweeps.cluster import Cluster
from core.runs.sweeps.driver import Driver, RunResult
from core.runs.sweeps.folder import SweepFile, SweepFolder
from core.runs.sweeps.processes import usable_cores
from core.runs.sweeps.search import EXHAUSTED, open_search, require_optuna
from core.runs.sweeps.sweep import MAX_RUNS, Sweep, base_of
from core.runs.sweeps.trials import examined_trials
from core.storage.errors import InputError

MAX_PARTS = 10_000


def run(options: argparse.Namespace) -> int:
    """Train the unfinished runs, and print a line for every run that ends."""
    sweep = load_sweep(options.file)
    base, pairs = base_of(sweep, options.file.parent)
    logs = check_logs(options.log)
    if options.ray is not None and "trackio" in logs:
        raise InputError("--log=trackio with --ray: Trackio writes where a run is trained, outside its folder")
    if options.ray is not None and PLUGIN_FILES:
        raise InputError(f"--ray with --plugin {next(iter(PLUGIN_FILES))}: the nodes do not have the file")
    jobs, part = _jobs(options, sweep), _part(options, sweep)
    if sweep.needs_optuna:
        require_optuna(sweep)
    elif options.storage is not None:
        raise InputError("--storage is for search=random or tpe, and for pruning; a grid stores nothing but its runs")
    folder = SweepFolder(options.checkpoints or DEFAULT_ROOT, sweep.name)
    trials = examined_trials(sweep, base)
    file = SweepFile(sweep=sweep, base=base)
    check_sweep(file, trials, folder, pairs, on_cluster=options.ray is not None)
    with contextlib.ExitStack() as stack:
        cluster = _connected(options.ray, sweep, stack)
        folder.prepare(file, extend=options.extend)
        search = open_search(file, folder, trials, storage=options.storage)
        expected = sweep.num_runs if part is None else len(range(part[0], sweep.num_runs, part[1]))
        at_a_time = f"on the cluster {options.ray}" if cluster else f"{jobs} at the same time"
        print(f"sweep {sweep.name}: {sweep.size}, {at_a_time}", flush=True)
        bar = stack.enter_context(tqdm(total=expected, desc=sweep.name, unit="run", file=sys.stderr, disable=None))
        progress = _Progress(bar, sweep, stop=lambda: driver.stop())
        driver = Driver(
            folder, file, search, jobs=jobs, pairs=pairs, part=part, cluster=cluster, logs=logs, on_result=progress.show
        )
        with stopped_by_signals(driver.stop) as signals:
            driver.run()
    counts = progress.counts
    print(_summary(sweep, counts, options.checkpoints))
    begun = len(folder.records())
    if begun < sweep.num_trials and folder.exhausted.exists() and not signals:
        print(f"{counted(begun, 'trial')} of {sweep.num_trials:,}: {EXHAUSTED}")
    status = "stopped" if signals else "failed" if counts["failed"] else "finished"
    if options.json:
        print(json.dumps({"sweep": sweep.name, "status": status, "runs": expected} | dict(counts)))
    return 128 + signals[0] if signals else int(bool(counts["failed"]))


def _connected(address: str | None, sweep: Sweep, stack: contextlib.ExitStack) -> Cluster | None:
    """Connect to the given cluster, if any, until the stack is closed."""
    if address is None:
        return None
    cluster = Cluster(address, sweep.resources)
    stack.callback(cluster.close)
    if not cluster.fits():
        wanted = ", ".join(f"{name}={value:g}" for name, value in sweep.resources if value)
        print(f"no node of the cluster has {wanted}, so runs wait until one joins", file=sys.stderr)
    return cluster


def _jobs(options: argparse.Namespace, sweep: Sweep) -> int | None:
    """Return how many runs to train at the same time; None for as many as a cluster has room for."""
    jobs: int | None = options.jobs
    if options.ray is not None:
        if jobs is not None and not 1 <= jobs <= MAX_RUNS:
            raise InputError(f"--jobs={jobs} must be from 1 to {MAX_RUNS:,} with --ray")
        return jobs
    if sweep.resources.gpus:
        raise InputError(
            f"resources.gpus={sweep.resources.gpus:g} needs --ray; without it, runs are trained on the CPU"
        )
    cores = usable_cores()
    if jobs is None:
        return cores
    if not 1 <= jobs <= cores:
        raise InputError(f"--jobs={jobs} must be from 1 to {cores}, the number of cores that this process may use")
    return jobs


def _part(options: argparse.Namespace, sweep: Sweep) -> tuple[int, int] | None:
    """Return index and number of parts; None for the whole sweep."""
    index, parts = options.index, options.of
    if index is None and parts is None:
        return None
    if index is None or parts is None:
        raise InputError("--index and --of must be given together, such as --index 0 --of 4")
    if not 1 <= parts <= MAX_PARTS or not 0 <= index < parts:
        raise InputError(
            f"--index={index} --of={parts}: the index must be from 0 to N - 1, and N from 1 to {MAX_PARTS}"
        )
    if sweep.needs_optuna:
        reason = "start the same command several times without --index; the processes share the trials"
        raise InputError(f"--index={index} is for search=grid without pruning; {reason}")
    return index, parts


class _Progress:
    """Prints a line for every run that ends, above a bar on the terminal, if there is one."""

    def __init__(self, bar: tqdm, sweep: Sweep, *, stop: Callable[[], None]) -> None:
        self.counts: Counter[str] = Counter({"done": 0, "skipped": 0, "pruned": 0, "failed": 0})
        self._bar, self._metric, self._stop = bar, sweep.goal.metric, stop

    def show(self, result: RunResult) -> None:
        """Show one result; runs that were done before are only counted."""
        if result.status == "stopped":
            return
        self.counts[result.status] += 1
        self._bar.update(1)
        if result.status == "skipped" or (result.status == "pruned" and not result.message):
            return
        parts = [result.run, result.status if result.status != "done" else ""]
        if result.value is not None:
            parts.append(f"{self._metric.replace('_', ' ')} {result.value:.6g}")
        parts += [f"{result.seconds:.1f} s", result.message]
        print_or_stop("  ".join(filter(None, parts)), self._stop, self._bar)


def _summary(sweep: Sweep, counts: Counter[str], root: Path | None) -> str:
    parts = [f"{counted(counts['done'], 'run')} trained"]
    parts += [f"{counts['skipped']:,} done before"] if counts["skipped"] else []
    parts += [f"{counts[each]:,} {each}" for each in ("pruned", "failed") if counts[each]]
    where = "" if root is None else f"--checkpoints {shlex.quote(str(root))} "
    return f"sweep {sweep.name}: {', '.join(parts)}; python -m core {where}sweep-table {sweep.name}"
