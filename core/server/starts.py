"""New runs that begin with the weights of other runs, while a visitor chooses what they are."""

import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.config import Preset
from core.runs import Run
from core.runs.starting import Start, fit

MAX_KEPT = 16  # choices whose files are kept; each may hold a copy of pairs


@dataclass(frozen=True)
class NewRun:
    """A run to train.

    Attributes:
        preset: with the vocabularies of the run that it begins from, if it does.
        pairs: the file of its own pairs, beside its tokenizers; None for a task that reads no file.
        start: the weights that it begins with; None for random ones.
    """

    preset: Preset
    pairs: Path | None
    start: Start | None = None


@dataclass(frozen=True)
class StartChoice:
    """A run in the list of those to start from. ``reason``: why a preset cannot begin with it, "" if it can."""

    name: str
    title: str
    reason: str


@dataclass(frozen=True)
class StartChoices:
    """The runs to start from, and how many runs are not among them, see ``RunList``."""

    starts: list[StartChoice]
    unlisted: int
    unsearched: int


class Starts:
    """What presets need to begin with other runs' weights: laid out once, as the page asks again and again."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="attention-lab-starts-")
        weakref.finalize(self, self._folder.cleanup)
        self._kept: OrderedDict[tuple[Any, ...], tuple[Start, dict[str, Any]]] = OrderedDict()
        self._lock = threading.Lock()

    def new_run(self, preset: Preset, run: Run, pairs: Path | None) -> NewRun:
        """Return the run that a preset becomes with another run's weights; refused as by ``fit``.

        Args:
            pairs: the file of the preset's own pairs, if it has any.
        """
        key = (run.folder.path, run.preset, preset.task, preset.model, pairs)
        with self._lock:
            found = self._kept.get(key)
        if found is None or not found[0].pairs.parent.is_dir():
            found = self._laid_out(preset, run, pairs)
        with self._lock:
            self._kept[key] = found
            self._kept.move_to_end(key)
            while len(self._kept) > MAX_KEPT:
                oldest, _ = self._kept.popitem(last=False)[1]
                shutil.rmtree(oldest.pairs.parent, ignore_errors=True)
        start, changes = found
        changed = preset.with_changes(changes)
        return NewRun(changed, start.pairs, replace(start, preset=changed))

    def _laid_out(self, preset: Preset, run: Run, pairs: Path | None) -> tuple[Start, dict[str, Any]]:
        """Lay out what a new run is built from; return it, and what the preset's values become."""
        folder = Path(tempfile.mkdtemp(dir=self._folder.name))
        try:
            start = fit(run.folder, preset, folder, pairs=pairs)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return start, {field: new for field, (_, new) in start.preset.changed_from(preset).items()}
