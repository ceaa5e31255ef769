"""What one visitor may see and do: the one place that decides it, between the page and all runs."""

import re
import secrets
import string
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from core.config import ConfigError, Preset
from core.runs import RunError, RunFolder, RunInfo
from core.runs.folder import free_name, numbered_name
from core.runs.importing import MAX_IMPORT_BYTES
from core.runs.load import LoadedRun
from core.runs.replay import Replay
from core.server.limits import MEGABYTE
from core.server.registry import RunProgress, Runs
from core.training.history import History

BROUGHT = 1_000  # own data that is remembered to be somebody's, until a run of theirs keeps it
OPENED_BY, OPENED_EACH = 10_000, 10  # shared runs that visitors are remembered to have opened
MAX_NAME = 48  # letters, as in NAME_PATTERN
SECRET_LETTERS = 24  # of 36 kinds each: 124 bits
_ALPHABET = string.ascii_lowercase + string.digits


def display_name(name: str) -> str:
    """Return a run's name as people call it, without what keeps it from being guessed."""
    return re.sub(f"-[a-z0-9]{{{SECRET_LETTERS}}}$", "", name)


@dataclass(frozen=True)
class Visitor:
    """Who asks.

    Attributes:
        owner: what stands for them on disk; None is somebody of whom nothing is known.
        returning: whether they brought what they are known by. Who does not, or cannot, is somebody else next time.
    """

    owner: str | None
    returning: bool = True


class VisitorRuns:
    """``Runs`` as one visitor may use them: has its methods, and refuses each for a run that is not for them.

    A run that a visitor may not see is refused in the words that a run gets which does not exist.

    Args:
        runs: all of them.
        who: tells who asks now; None means that there is one person only, who may see and do everything.
    """

    def __init__(self, runs: Runs, who: Callable[[], Visitor] | None = None) -> None:
        self._runs, self._who = runs, who
        self.limits, self.inference_priority = runs.limits, runs.inference_priority
        self._starting, self._opening = threading.Lock(), threading.Lock()
        self._brought: deque[tuple[str | None, str, Path]] = deque(maxlen=BROUGHT)
        self._opened: OrderedDict[str | None, tuple[str, ...]] = OrderedDict()

    @property
    def has_visitors(self) -> bool:
        """Whether there are several people, each with their own runs."""
        return self._who is not None

    # ---- what everybody may do with a run that they may see

    def names(self) -> list[str]:
        """Return the names of the visitor's runs, of shared ones that they have opened, and of those that shipped.

        A shared run is for those who know its name, from a link; it is listed for nobody else.
        """
        if self._who is None:
            return self._runs.names()
        owner = self._who().owner
        opened = self._opened.get(owner, ())
        own, shared, shipped = [], [], []
        for each in self._runs.listings():
            if owner is not None and each.ownership.owner == owner:
                own.append(each.name)
            elif each.shipped:
                shipped.append(each.name)
            elif each.ownership.shared and each.name in opened:
                shared.append(each.name)
        return [*own, *shared, *shipped]

    def preset(self, name: str) -> Preset:
        """See ``Runs.preset``."""
        return self._runs.preset(self._seen(name))

    def info(self, name: str) -> RunInfo:
        """See ``Runs.info``."""
        return self._runs.info(self._seen(name))

    def progress(self, name: str) -> RunProgress:
        """See ``Runs.progress``."""
        return self._runs.progress(self._seen(name))

    def history(self, name: str) -> History:
        """See ``Runs.history``."""
        return self._runs.history(self._seen(name))

    def replay(self, name: str) -> Replay:
        """See ``Runs.replay``."""
        return self._runs.replay(self._seen(name))

    def loaded(self, name: str) -> LoadedRun:
        """See ``Runs.loaded``."""
        return self._runs.loaded(self._seen(name))

    def has_weights(self, name: str) -> bool:
        """See ``Runs.has_weights``."""
        return self._runs.has_weights(self._seen(name))

    def folder(self, name: str) -> RunFolder:
        """See ``Runs.folder``."""
        return self._runs.folder(self._seen(name))

    def is_shared(self, name: str) -> bool:
        """Tell whether others may look at a run; RunError if there is no such run."""
        return self._runs.ownership(self._seen(name)).shared

    # ---- what its owner may do

    def is_mine(self, name: str) -> bool:
        """Tell whether the visitor may stop, resume, share and delete a run."""
        if self._who is None:
            return True
        owner = self._who().owner
        return owner is not None and self._runs.ownership(name).owner == owner

    def start(self, preset: Preset, *, like: str | None = None) -> str:
        """See ``Runs.start``; where there are visitors, the run gets a name that nobody can guess.

        Args:
            like: what the name is to be or, if it is taken, to begin with; None makes one up.

        Raises:
            ConfigError: the preset asks for more than the limits allow, or for somebody else's own data.
            RunError: the visitor, or all of them together, have as many runs as they may.
        """
        pairs = self.pairs_of(preset)
        self.limits.check(preset, pairs=pairs)
        with self._starting:
            self._check_room(keeps_one_more=True)
            return self._runs.start(preset, name=self._new_name(like), owner=self._owner(), pairs=pairs)

    def register_upload(self, data: str, pairs: Path) -> None:
        """Note that the visitor uploaded own pairs, with this SHA-256, and where they are: they may train on them."""
        self._brought.append((self._visitor(), data, pairs))

    def pairs_of(self, preset: Preset) -> Path | None:
        """Return the file of a preset's own pairs, which the visitor uploaded or has in a run; None if it has none.

        Raises:
            ConfigError: the visitor has no such pairs; who may look at a run may not take its pairs.
        """
        data = preset.task.own_data
        if not data:
            return None
        visitor = self._visitor()
        for owner, sha256, pairs in self._brought:
            if (owner, sha256) == (visitor, data) and pairs.is_file():
                return pairs
        for each in self._runs.listings():
            mine = self._who is None or (visitor is not None and each.ownership.owner == visitor)
            if mine and self._runs.preset(each.name).task.own_data == data:
                return self._runs.folder(each.name).pairs
        said = f"task.data={data[:12]}… is not among your pairs; upload them on the Train tab"
        raise ConfigError([("task.data", said)])

    def import_file(self, file: Path) -> str:
        """Make a run of a file that somebody brings, and return its name; refused as for ``start``.

        Raises:
            CheckpointError: it is not the file of a run, or not a sound one.
        """
        with self._starting:
            self._check_room(keeps_one_more=True)
            most = min(MAX_IMPORT_BYTES, self.limits.max_upload_mb * MEGABYTE)
            return self._runs.import_file(file, max_bytes=most, name=self._new_name(), owner=self._owner())

    def resume(self, name: str) -> None:
        """See ``Runs.resume``; refused as for ``start``."""
        self.limits.check(self._runs.preset(self._mine(name)), pairs=self._runs.folder(name).pairs)
        with self._starting:
            self._check_room(keeps_one_more=False)
            self._runs.resume(name)

    def stop(self, name: str) -> None:
        """See ``Runs.stop``."""
        self._runs.stop(self._mine(name))

    def delete(self, name: str) -> None:
        """See ``Runs.delete``."""
        self._runs.delete(self._mine(name))

    def share(self, name: str, shared: bool) -> None:
        """See ``Runs.share``."""
        self._runs.share(self._mine(name), shared)

    # ---- deciding

    def _may_see(self, name: str) -> bool:
        """Decide whether a run is for the visitor: it is theirs, shared, or came with the program."""
        return self.is_mine(name) or self._runs.ownership(name).shared or self._runs.info(name).shipped

    def _seen(self, name: str) -> str:
        self._runs.info(name)  # a run that does not exist is refused here
        if self._may_see(name):
            self._note_opened(name)
            return name
        raise RunError(f"run={name!r}: there is no such run")

    def _is_foreign(self, name: str) -> bool:
        return not self.is_mine(name) and not self._runs.info(name).shipped

    def _note_opened(self, name: str) -> None:
        """Remember that the visitor knows the name of a shared run."""
        if self._who is None or not self._is_foreign(name) or not (visitor := self._who()).returning:
            return
        with self._opening:
            known = self._opened.pop(visitor.owner, ())
            self._opened[visitor.owner] = (name, *(each for each in known if each != name))[:OPENED_EACH]
            while len(self._opened) > OPENED_BY:
                self._opened.popitem(last=False)

    def _mine(self, name: str) -> str:
        if not self.is_mine(self._seen(name)):
            raise RunError(f"run={name!r} is not yours: only who started it can do this")
        return name

    def _visitor(self) -> str | None:
        """Return what stands for the visitor; None where there is one person only, or nothing is known of them."""
        return None if self._who is None else self._who().owner

    def _owner(self) -> str | None:
        if self._who is None:
            return None
        visitor = self._who()
        if visitor.owner is None or not visitor.returning:
            raise RunError(
                "a run needs somebody to belong to, and your browser or program sent no cookie to know you by; "
                "allow cookies for this page, or see README on how programs keep theirs"
            )
        return visitor.owner

    def _new_name(self, like: str | None = None) -> str | None:
        if self._who is None:
            return like and numbered_name(self._runs.root, like)
        secret = "".join(secrets.choice(_ALPHABET) for _ in range(SECRET_LETTERS))
        known = (like or free_name(self._runs.root))[: MAX_NAME - SECRET_LETTERS - 1].strip("-")
        return f"{known}-{secret}"

    def _check_room(self, *, keeps_one_more: bool) -> None:
        """Refuse one more run where there are enough."""
        limits, owner, active = self.limits, self._owner(), self._runs.active()
        waiting = self._runs.counts()["queued"]
        if limits.max_queued is not None and waiting >= limits.max_queued:
            raise RunError(f"{waiting} runs wait already, as many as may; try again when some have trained")
        mine = sum(live.owner == owner for live in active)
        if limits.max_active_per_visitor is not None and mine >= limits.max_active_per_visitor:
            raise RunError(
                f"{mine} of your runs train or wait, and at most {limits.max_active_per_visitor} may; stop one, or wait"
            )
        if not keeps_one_more:
            return
        kept = [each.name for each in self._runs.listings() if each.ownership.owner == owner]
        if limits.max_runs_per_visitor is not None and len(kept) >= limits.max_runs_per_visitor:
            raise RunError(
                f"{len(kept)} of your runs are kept, and at most {limits.max_runs_per_visitor} are; delete one"
            )
        self._check_disk(kept)

    def _check_disk(self, kept: list[str]) -> None:
        for most, names, whose, cure in (
            (self.limits.max_disk_mb_per_visitor, kept, "your", "delete one"),
            (self.limits.max_disk_mb, self._runs.names(), "all", "try again when old ones were deleted"),
        ):
            used = sum(RunFolder(self._runs.root, name).size() for name in names) // MEGABYTE if most else 0
            if most is not None and used >= most:
                raise RunError(f"{whose} runs take {used:,} MB of disk, and at most {most:,} MB are for them; {cure}")
