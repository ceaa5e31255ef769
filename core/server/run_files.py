"""What the files in runs' folders hold, kept in memory until a file changes."""

from core.config import Preset
from core.runs import RunFolder, RunInfo
from core.runs.names import TITLE_FILE
from core.runs.replay import Replay
from core.runs.weights_by_step import WeightsByStep
from core.server.ownership import Ownership, ownership_file, read_ownership
from core.storage.cache import FileCache
from core.training.history import History

CACHED_FILES = 2_000
CACHED_HISTORIES = CACHED_REPLAYS = 64  # a class of fifty has as many runs open
MAX_CACHED_BYTES = 50_000_000  # of the files of either
CACHED_WEIGHTS_BY_STEP = 4  # of at most 8 MB


class RunFiles:
    """Reads the files of runs that do not train here; those of one in training change all the time. Thread-safe.

    Each method raises ``RunError`` if there is no such run, unless it says otherwise.
    """

    def __init__(self) -> None:
        self._presets: FileCache[Preset] = FileCache(CACHED_FILES)
        self._infos: FileCache[RunInfo] = FileCache(CACHED_FILES)
        self._ownerships: FileCache[Ownership] = FileCache(CACHED_FILES)
        self._titles: FileCache[str] = FileCache(10 * CACHED_FILES)  # a new run's title differs from all
        self._sizes: FileCache[int] = FileCache(10 * CACHED_FILES)
        self._histories: FileCache[History] = FileCache(CACHED_HISTORIES, max_bytes=MAX_CACHED_BYTES)
        self._replays: FileCache[Replay] = FileCache(CACHED_REPLAYS, max_bytes=MAX_CACHED_BYTES)
        self._weights_by_step: FileCache[WeightsByStep] = FileCache(CACHED_WEIGHTS_BY_STEP)

    def preset(self, folder: RunFolder) -> Preset:
        """Return the preset a run was started with."""
        return self._presets.get(folder.path / "preset.yaml", folder.ensure_preset)

    def info(self, folder: RunFolder) -> RunInfo:
        """Return a run's status and metrics."""
        return folder.with_verified_status(self._infos.get(folder.path / "run.json", folder.written_info))

    def ownership(self, folder: RunFolder) -> Ownership:
        """Return a run's ownership as it is stored; nobody's if there is no such run."""
        return self._ownerships.get(ownership_file(folder), lambda: read_ownership(folder))

    def title(self, folder: RunFolder) -> str:
        """Return a run's title; its name if there is no such run."""
        return self._titles.get(folder.path / TITLE_FILE, folder.title)

    def size(self, folder: RunFolder) -> int:
        """Return the size of a run's files in bytes; counted again after its folder has changed."""
        return self._sizes.get(folder.path, folder.size)

    def history(self, folder: RunFolder) -> History:
        """Return a run's metrics by step; empty if there are none."""
        return self._histories.get(folder.metrics, lambda: History.load(folder.metrics))

    def replay(self, folder: RunFolder) -> Replay:
        """Return a run's attention snapshots."""
        every = self.preset(folder).training.evaluate_every
        return self._replays.get(folder.replay, lambda: Replay.load(folder.replay, every))

    def weights_by_step(self, folder: RunFolder) -> WeightsByStep:
        """Return a run's weights at a few training steps; none if they were not kept."""
        return self._weights_by_step.get(folder.weights_by_step, lambda: WeightsByStep.load(folder.weights_by_step))
