"""Runs as objects: ``Runs`` is the mapping of a folder's runs, ``Run`` one of them, read when it is asked for.

```python
runs = Runs(Path("checkpoints"))
run = runs["digits-reversal-3"]
print(run.title, run.info.status, run.preset.training.steps)
run.trained().decode("4 8 2 9")
```
"""

import json
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from core.config import Preset
from core.config.tasks import NOT_HERE
from core.runs.folder import RunError, RunFolder, check_resumable, list_runs
from core.runs.info import RunInfo, without_weights
from core.runs.names import TITLE_FILE, Naming
from core.storage.cache import FileCache
from core.storage.error_messages import short_repr
from core.storage.errors import InputError, UnavailableError

if TYPE_CHECKING:  # a list of runs waits for none of them
    from core.interpret.trained import Trained
    from core.runs.replay import Replay
    from core.runs.training import Training
    from core.runs.weights_by_step import WeightsByStep
    from core.tasks import Task
    from core.teaching.doctor import Examination
    from core.training.history import History

_Loaded = TypeVar("_Loaded", "History", "Replay", "WeightsByStep")
CACHED_FILES = 2_000
CACHED_LARGE_FILES = 64  # histories, replays, models: a class of fifty has as many runs open
MAX_CACHED_BYTES = 50_000_000  # of the files of histories, and of replays
MAX_CACHED_MODEL_BYTES = 1_000_000_000  # of weight files; a model that was imported may have 300 MB
CACHED_WEIGHTS_BY_STEP = 4  # of at most 8 MB
CACHED_EARLIER_MODELS = 8  # of at most 3 MB, see ``core.runs.weights_by_step``


@dataclass(frozen=True)
class RunProgress:
    """Progress of a run.

    Attributes:
        steps: total number of training steps; None if it is not known, as of a training by a user's own loop.
        queue_position: position in the queue, from 1; None if it is not queued.
        steps_per_second: over the last seconds; None if this process is not training it.
        seconds_to_start: estimated seconds until a queued run starts; None if it is not queued, or cannot be estimated.
    """

    info: RunInfo
    steps: int | None
    queue_position: int | None = None
    steps_per_second: float | None = None
    seconds_to_start: float | None = None

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds to the last step at the current rate, evaluations included."""
        if self.steps is None or not self.steps_per_second:
            return None
        return (self.steps - self.info.step) / self.steps_per_second


class RunCache:
    """What the files of a ``Runs`` hold, kept in memory until a file changes. Thread-safe."""

    def __init__(self) -> None:
        self.presets: FileCache[Preset] = FileCache(CACHED_FILES)
        self.infos: FileCache[RunInfo] = FileCache(CACHED_FILES)
        self.titles: FileCache[str] = FileCache(10 * CACHED_FILES)  # a new run's title differs from all
        self.sizes: FileCache[int] = FileCache(10 * CACHED_FILES)
        self.histories: FileCache[History] = FileCache(CACHED_LARGE_FILES, max_bytes=MAX_CACHED_BYTES)
        self.replays: FileCache[Replay] = FileCache(CACHED_LARGE_FILES, max_bytes=MAX_CACHED_BYTES)
        self.weights_by_step: FileCache[WeightsByStep] = FileCache(CACHED_WEIGHTS_BY_STEP)
        self.models: FileCache[Trained] = FileCache(CACHED_LARGE_FILES, max_bytes=MAX_CACHED_MODEL_BYTES)
        self._earlier: OrderedDict[tuple[Path, int], tuple[Any, Trained]] = OrderedDict()
        self._lock = threading.Lock()

    def earlier_model(self, run: "Run", step: int) -> "Trained":
        """Return a run's model after an earlier training step, kept as long as few others are asked for."""
        from core.runs.load import build_run

        weights = run.weights_by_step.at(step)
        if weights is None:
            kept = ", ".join(map(str, run.weights_by_step.steps)) or "no step"
            raise RunError(f"step={short_repr(step)} is not one whose weights run={run.name!r} kept: {kept}")
        key = (run.folder.path, step)
        with self._lock:
            if key in self._earlier and self._earlier[key][0] is weights:
                self._earlier.move_to_end(key)
                return self._earlier[key][1]
        label = f"the file of weights at step {step}"
        trained = build_run(run.folder, run.preset, weights, kind="kept", step=step, label=label)
        with self._lock:
            self._earlier[key] = weights, trained
            self._earlier.move_to_end(key)
            while len(self._earlier) > CACHED_EARLIER_MODELS:
                self._earlier.popitem(last=False)
        return trained


class Run:
    """A run on disk. Its properties read its files when they are used, and raise ``RunError`` if one is damaged.

    Attributes:
        name: of the run, unique in its folder of runs.
        folder: its files, and what writes them.
        pairs: the file of the pairs of a run that is published without them; None leaves it without.
    """

    def __init__(self, folder: RunFolder, cache: RunCache | None = None, pairs: Path | None = None) -> None:
        self.folder, self.cache, self.pairs = folder, cache or RunCache(), pairs

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def name(self) -> str:
        """The run's name."""
        return self.folder.name

    @property
    def preset(self) -> Preset:
        """The preset that the run was started with; restored from the best weights if ``preset.yaml`` was deleted."""
        return self.cache.presets.get(self.folder.path / "preset.yaml", self.folder.ensure_preset)

    @property
    def info(self) -> RunInfo:
        """Status and latest metrics; "interrupted" also if the file says that it trains, but no process does."""
        info = self.cache.infos.get(self.folder.path / "run.json", self.folder.written_info)
        return self.folder.with_verified_status(info)

    @property
    def progress(self) -> RunProgress:
        """How far the training is."""
        return RunProgress(self.info, self.preset.planned_steps)

    @property
    def title(self) -> str:
        """The title that a person gave the run, or its default, see ``core.runs.names``."""
        return self.cache.titles.get(self.folder.path / TITLE_FILE, self.folder.read_title)

    @property
    def history(self) -> "History":
        """The metrics by step; empty if there are none."""
        from core.training.history import History

        def load() -> History:
            sha256 = self.folder.written_info().metrics_sha256
            return self._noted(History.load(self.folder.metrics, sha256=sha256))

        return self.cache.histories.get(self.folder.metrics, load)

    @property
    def replay(self) -> "Replay":
        """The attention snapshots; empty if there are none."""
        from core.runs.replay import Replay

        every, file = self.preset.training.evaluate_every, self.folder.replay_file
        return self.cache.replays.get(file, lambda: self._noted(Replay.load(file, every)))

    @property
    def weights_by_step(self) -> "WeightsByStep":
        """The weights at a few training steps; none if they were not kept."""
        from core.runs.weights_by_step import WeightsByStep

        file = self.folder.weights_by_step_file
        return self.cache.weights_by_step.get(file, lambda: self._noted(WeightsByStep.load(file)))

    @property
    def examination(self) -> "Examination":
        """The doctor's findings that a training by a user's own loop has stored; UnavailableError if there are none."""
        from core.teaching.doctor import Examination

        try:
            return Examination.from_data(json.loads(self.folder.examination_file.read_bytes()))
        except FileNotFoundError:
            raise UnavailableError(
                f"run={self.name!r} has no findings yet: call watch.diagnose(bos=…, eos=…) in its program"
            ) from None
        except (OSError, ValueError, AttributeError) as error:
            raise RunError(f"run={self.name!r}: {self.folder.examination_file.name} is damaged") from error

    @property
    def size(self) -> int:
        """The size of its files in bytes; counted again after its folder has changed."""
        return self.cache.sizes.get(self.folder.path, self.folder.count_bytes)

    @property
    def has_weights(self) -> bool:
        """Whether ``trained`` can return a model."""
        return self.folder.best.exists()

    def trained(self, step: int | None = None) -> "Trained":
        """Return the run's model with its task: the weights with the lowest validation loss.

        Args:
            step: one of ``weights_by_step``, whose weights are returned instead.

        Raises:
            RunError: there are no weights yet, or none of that training step, or they are damaged.
            CheckpointError: the weights of that training step do not fit the model.
        """
        from core.runs.load import load_run  # imports torch, which a list of runs does not wait for

        if step is not None:
            return self.cache.earlier_model(self, step)
        if not self.has_weights:
            raise RunError(f"run={self.name!r} {self._why_without_weights()}")
        return self.cache.models.get(self.folder.best, lambda: load_run(self.folder.path, pairs=self.pairs))

    def training(self, *, steps: int | None = None, device: str = "cpu") -> "AbstractContextManager[Training]":
        """Train the run: ``with run.training() as events: for event in events: …``; see ``core.runs.training``.

        Entering the block locks the run and resumes it; leaving it, also by ``break``, stops the run and saves it.

        Args:
            steps: number of training steps in all, to extend the run; None leaves that of its preset.
            device: "cpu", "cuda", "mps" or "auto", the fastest.

        Raises:
            RunError: the run is shipped, is active, or has no steps left; or another process uses it.
            InputError: this machine has no such device, or ``steps`` is not a whole number.
        """
        from core.interpret.any_module.calling import checked_number
        from core.runs.training import training
        from core.training.devices import device_named

        steps = None if steps is None else checked_number("steps", steps, 1)
        check_resumable(self.folder, steps=steps, how_to_extend="training(steps=N)")
        preset = None if steps is None else self.preset.with_changes({"training.steps": steps})
        return training(self.folder, preset=preset, device=device_named(device))

    def task(self) -> "Task":
        """Return the run's task, with its vocabularies and data; the run need not have any weights."""
        from core.tasks import build_task

        return build_task(self.preset.task, pairs=self.folder.pairs)

    def _noted(self, loaded: _Loaded) -> _Loaded:
        """Return what was loaded from a file, after adding a note to the run's message if the file is damaged."""
        if loaded.damage:
            self.folder.add_note(loaded.damage)
        return loaded

    def _why_without_weights(self) -> str:
        if self.preset.is_watched:  # raises if it is missing too
            return NOT_HERE
        return without_weights(self.info)


class Runs:
    """The runs in a folder by name, newest first: ``runs[name]``, ``for name in runs``, ``name in runs``.

    Args:
        root: the folder, such as ``checkpoints``.
        pairs: of runs that are published without theirs; see ``Trained.with_pairs``.

    Raises:
        InputError: ``root`` is not the path of a folder.
    """

    def __init__(self, root: str | Path, *, pairs: Path | None = None) -> None:
        if not isinstance(root, str | os.PathLike):
            raise InputError(f"root={short_repr(root)} must be the path of a folder of runs")
        self.root, self.cache = Path(root).absolute(), RunCache()  # a program may change its working directory later
        self.pairs = None if pairs is None else pairs.absolute()

    def __getitem__(self, name: str) -> Run:
        """Return a run; ``name`` may be untrusted input.

        Raises:
            RunError: the name is not valid, or there is no such run.
        """
        folder = RunFolder(self.root, name)
        if not folder.exists():
            raise RunError(f"run={name!r}: there is no such run")
        return Run(folder, self.cache, self.pairs)

    def __iter__(self) -> Iterator[str]:
        return (folder.name for folder in list_runs(self.root))

    def __len__(self) -> int:
        return len(list_runs(self.root))

    def __contains__(self, name: object) -> bool:
        try:
            return RunFolder(self.root, str(name)).exists()
        except RunError:
            return False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self)}>"

    def create(
        self,
        preset: Preset | None = None,
        *,
        name: str | Naming | None = None,
        pairs: Path | None = None,
        start_from: str | None = None,
    ) -> Run:
        """Create a run that has not been trained yet; see ``RunFolder.create``.

        Args:
            preset: of the new run; with ``start_from``, None is that run's.
            start_from: name of a run whose best weights the new one begins with, instead of random ones; its model and
                its vocabularies must be the preset's. Own pairs are split with its tokenizers; see
                ``core.runs.starting``.

        Raises:
            RunError: a run of that name exists; or there is no run to start from, or it has no weights yet.
            ConfigError: the file of own pairs is missing or holds other pairs; or the preset does not fit the run to
                start from.
            InputError: ``preset`` is none.
            TypeError: there is neither a preset nor a run to start from.
        """
        if not isinstance(preset, Preset | None):
            raise InputError(f"preset={short_repr(preset)} must be a Preset, such as load_preset('tiny') returns")
        if start_from is None:
            if preset is None:
                raise TypeError("create() needs a preset, or start_from")
            return Run(RunFolder.create(self.root, preset, name=name, pairs=pairs), self.cache)
        from core.runs.starting import fit  # imports torch, which a list of runs does not wait for

        with tempfile.TemporaryDirectory() as temporary:
            start = fit(self[start_from].folder, preset, Path(temporary), pairs=pairs)
            folder = RunFolder.create(self.root, start.preset, name=name, pairs=start.pairs, contents=start.contents())
        return Run(folder, self.cache)

    def ensemble(self, names: Sequence[str]) -> "Trained":
        """Return several runs of one task as one model, an ``Ensemble``; preset and step are the first one's.

        Raises:
            RunError: a run cannot be loaded, or has another task or vocabulary than the first.
        """
        from core.models.ensemble import Ensemble  # a single run needs neither
        from core.runs.load import load_run

        # Each is a model of its own.
        first, *others = members = [load_run(self[name].folder.path, pairs=self.pairs) for name in names]
        for other in others:
            if other.preset.task != first.preset.task:
                raise RunError(f"run={other.run!r} has another task than run={first.run!r}; an ensemble has one task")
            if _vocabularies(other.task) != _vocabularies(first.task):
                raise RunError(f"run={other.run!r} has another vocabulary than run={first.run!r}; an ensemble has one")
        model = Ensemble([member.model for member in members]).eval()
        return replace(first, run=" + ".join(member.run for member in members), model=model, facts={})


def _vocabularies(task: "Task") -> tuple[Sequence[str], Sequence[str]]:
    return task.src_vocab.tokens, task.tgt_vocab.tokens
