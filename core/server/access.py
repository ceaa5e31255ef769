"""Access control: which runs a visitor may see, and what they may do with them."""

import secrets
import string
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core.config import ConfigError, Preset, shipped_pairs
from core.config.listing import missing_package
from core.runs import Run, RunError, RunFolder
from core.runs.imported_tokens import Languages
from core.runs.importing import MAX_IMPORT_BYTES, MAX_UPLOADED_HEADER_BYTES
from core.runs.names import SECRET_LENGTH, Naming, default_title, new_names, unshortened_title
from core.runs.starting import misfits
from core.server.classroom import Classroom
from core.server.estimates import Answer
from core.server.limits import MEGABYTE
from core.server.networks import site_of
from core.server.queue import NO_POOL
from core.server.registry import Runs
from core.server.run_list import RunList, find_runs
from core.server.starts import NewRun, StartChoice, StartChoices, Starts
from core.server.sweeps import Sweeps
from core.storage.errors import LabError, UnavailableError
from core.storage.tensor_file import MAX_HEADER_BYTES
from core.tasks.vocabularies import missing_vocabulary

MAX_UPLOADS = 1_000  # uploaded pairs whose owner is remembered, until a run of theirs holds them
MAX_VISITORS, MAX_OPENED = 10_000, 10  # visitors remembered, and opened shared runs for each
MAX_IMPORTS = 2  # files read at a time: each takes its size in memory several times
MAX_SHARED = 10_000  # runs whose network is remembered
SHARED_PARTS = 8  # of the disk, one of which the runs shared from one network may take
MAX_REASONS = 3  # listed why a preset cannot begin with a run
ACTIVE_PER_STUDENT = 2  # runs of a student of a class that are training or queued
_ALPHABET = string.ascii_lowercase + string.digits


@dataclass(frozen=True)
class Visitor:
    """The visitor that a request comes from.

    Attributes:
        owner: their id as stored on disk, see ``ownership.owner_of``; None if the visitor is unknown.
        returning: whether the request carried their cookie. Without it, the next request has another owner.
        network: where the request comes from; "" if unknown. Visitors can share it, and invent owners in it.
    """

    owner: str | None
    returning: bool = True
    network: str = ""

    @property
    def site(self) -> str:
        """The networks of IPv6 that may be the same customer's, see ``site_of``; else ``network``."""
        return site_of(self.network)


class VisitorRuns:
    """The runs that the current visitor may see: ``runs[name]`` decides that, ``runs.own(name)`` what they may change.

    Args:
        runs: all runs of the server.
        current_visitor: returns the visitor of the current request; None for a single user with all rights.
    """

    def __init__(self, runs: Runs, current_visitor: Callable[[], Visitor] | None = None) -> None:
        self._runs, self._current_visitor = runs, current_visitor
        self.limits, self.inference_priority = runs.limits, runs.inference_priority
        self._start_lock, self._opened_lock = threading.Lock(), threading.Lock()
        self._imports = threading.BoundedSemaphore(MAX_IMPORTS)
        self._uploads: deque[tuple[str | None, str, Path]] = deque(maxlen=MAX_UPLOADS)
        self._starts = Starts()
        self._opened: OrderedDict[str | None, tuple[str, ...]] = OrderedDict()
        self._shared_from: OrderedDict[str, str] = OrderedDict()  # the network that each run was shared from
        self._networks: dict[str, str] = {}  # where each active run was started from

    @property
    def device(self) -> str:
        """The device that runs train on."""
        return self._runs.device

    @property
    def has_visitors(self) -> bool:
        """Whether there are several visitors, each with their own runs."""
        return self._current_visitor is not None

    @property
    def sweeps(self) -> Sweeps:
        """The sweeps; for a single user only.

        Raises:
            UnavailableError: there are visitors. One sweep trains more than all of their quotas together.
        """
        if self.has_visitors:
            raise UnavailableError("sweeps are switched off on a public server; start Attention Lab on your computer")
        return self._runs.sweeps

    # ---- for every run that the visitor may see

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the visitor's own runs, of runs of others they have opened, and of shipped runs.

        A shared run is visible to those who have its link, one of a class to its teacher; it is not listed for anyone
        else, nor for them before they open it.
        """
        if self._current_visitor is None:
            return iter(self._runs)
        owner = self._current_visitor().owner
        opened = self._opened.get(owner, ())
        own, shared, shipped = [], [], []
        for each in self._runs.listings():
            if owner is not None and each.ownership.owner == owner:
                own.append(each.name)
            elif each.shipped:
                shipped.append(each.name)
            elif each.name in opened and (each.ownership.shared or self._runs.classes.may_read(owner, each.name)):
                shared.append(each.name)
        return iter([*own, *shared, *shipped])

    def find(self, search: str = "", *, task: str = "", keep: Collection[str] = ()) -> RunList:
        """Return the latest of these runs, or the latest that match a search; see ``find_runs``."""
        return find_runs(self._runs, list(self), search=search, task=task, keep=keep)

    def __getitem__(self, name: str) -> Run:
        """Return a run that the visitor may see: their own, a shared or a shipped one, or one of a class they teach.

        Raises:
            RunError: there is no such run; the same message for one that the visitor may not see.
        """
        run = self._runs[name]
        if not (self.is_mine(name) or self._is_readable_for_visitor(run)):
            raise RunError(f"run={name!r}: there is no such run")
        self._note_opened(run)
        return run

    def is_shared(self, name: str) -> bool:
        """Return whether others may view a run; RunError if there is no such run."""
        return self._runs.ownership(self[name].name).shared

    # ---- for every preset that the visitor can train

    def training_time(self, preset: Preset) -> Answer:
        """Return the training time of a preset, as far as it is known.

        Raises:
            ConfigError: the preset exceeds a limit, its pairs belong to someone else, or a package that it needs is
                not installed. It is never measured.
        """
        new = self._trainable(preset)
        return self._runs.estimates.get(new.preset, new.pairs)

    def wait_for_training_time(self, preset: Preset, *, start_from: str = "", seconds: float) -> Answer:
        """Return the training time once it is measured, or after ``seconds``; refused as ``start`` is."""
        new = self._trainable(preset, start_from)
        return self._runs.estimates.wait(new.preset, new.pairs, seconds=seconds)

    def request_training_times(self, presets: Iterable[Preset]) -> None:
        """Have the training times of presets measured, without those that the visitor cannot train."""
        trainable = []
        for preset in presets:
            with suppress(ConfigError):
                trainable.append((preset, self._trainable(preset).pairs))
        self._runs.estimates.request(trainable)

    def starting_points(self, preset: Preset, search: str = "", *, keep: str = "") -> StartChoices:
        """Return the runs of ``find`` that have weights, and whether a preset can begin with them.

        Their vocabularies are not read; ``new_run`` refuses those that differ in them only.
        """
        listed, choices = self.find(search, keep=[keep]), []
        for row in listed.rows:
            if self._runs[row.name].has_weights:
                reasons = [message for _, message in misfits(preset, row.preset, "it")]
                more = [f"{len(reasons) - MAX_REASONS} more"] if len(reasons) > MAX_REASONS else []
                choices.append(StartChoice(row.name, row.title, "; ".join(reasons[:MAX_REASONS] + more)))
        return StartChoices(choices, listed.unlisted, listed.unsearched)

    def new_run(self, preset: Preset, start_from: str = "") -> NewRun:
        """Return the run that a preset becomes: with the file of its own pairs, and with the weights to begin with.

        Args:
            start_from: name of a run that the visitor may read, whose best weights it begins with; "" for random ones.

        Raises:
            ConfigError: the preset's pairs belong to someone else, or it does not fit the run to start from.
            RunError: there is no such run, the visitor may not read it, or it has no weights yet.
        """
        pairs = self.pairs_of(preset)
        if start_from:
            run = self[start_from]
            if not run.has_weights:
                raise RunError(f"{run.title} has no weights to start from yet; it is {run.info.status}")
            return self._starts.new_run(preset, run, pairs)
        if preset.task.inherited_vocabulary:
            raise missing_vocabulary(preset.task.inherited_vocabulary)
        return NewRun(preset, pairs)

    def _trainable(self, preset: Preset, start_from: str = "") -> NewRun:
        """Return the run that a preset becomes; ConfigError if the visitor cannot train it."""
        if missing := missing_package(preset):
            raise ConfigError([("task.family", f"task.family={preset.task.family!r} {missing}")])
        new = self.new_run(preset, start_from)
        self.limits.check(new.preset, pairs=new.pairs)
        return new

    # ---- for the run's owner

    def is_mine(self, name: str) -> bool:
        """Return whether the visitor owns a run, and so may stop, resume, share and delete it."""
        if self._current_visitor is None:
            return True
        owner = self._current_visitor().owner
        return owner is not None and self._runs.ownership(name).owner == owner

    def start(self, preset: Preset, *, start_from: str = "", like: str | None = None) -> str:
        """Start a run, see ``Runs.start``, and return its name.

        It is named after its preset and one more than the largest number among the visitor's own runs, if there are
        visitors followed by a secret that nobody can guess; see ``core.runs.names``.

        Args:
            start_from: see ``new_run``.
            like: what it is named after instead of its preset; then the first of these has no number.

        Raises:
            ConfigError: the preset exceeds a limit, its pairs belong to someone else, a package that it needs is not
                installed, or it does not fit the run to start from.
            RunError: the visitor, or all visitors together, have reached a limit on runs; or ``new_run`` refuses.
        """
        new = self._trainable(preset, start_from)
        with self._start_lock:
            self._check_limits(adds_run=True)
            owner = self._owner()
            pool = self._runs.classes.pool_of(owner)
            naming = self._naming(like)
            name = self._runs.start(new.preset, name=naming, owner=owner, pairs=new.pairs, pool=pool, start=new.start)
            self._note_network(name)
            self._note_in_class(name, pool)
            self._title_new(name, like or preset.name)
            return name

    def register_upload(self, data: str, pairs: Path) -> None:
        """Register pairs that the visitor uploaded, so that they may train on them.

        Args:
            data: SHA-256 of the pairs.
            pairs: their file.
        """
        self._uploads.append((self._visitor(), data, pairs))

    def pairs_of(self, preset: Preset) -> Path | None:
        """Return the file of a preset's own pairs, if any: shipped, or the visitor's upload, or of one of their runs.

        Raises:
            ConfigError: the visitor has no such pairs. Viewing a shared run does not allow training on its pairs.
        """
        data = preset.task.own_data
        if not data:
            return None
        if shipped := shipped_pairs(data):
            return shipped
        visitor = self._visitor()
        for owner, sha256, pairs in self._uploads:
            if (owner, sha256) == (visitor, data) and pairs.is_file():
                return pairs
        for each in self._runs.listings():
            mine = self._current_visitor is None or (visitor is not None and each.ownership.owner == visitor)
            has_pairs = mine and RunFolder(self._runs.root, each.name).pairs.is_file()
            if has_pairs and self._runs.is_readable(each.name) and self._runs[each.name].preset.task.own_data == data:
                return self._runs[each.name].folder.pairs
        message = f"task.data={data[:12]}… is not among your pairs; upload them on the Train tab"
        raise ConfigError([("task.data", message)])

    def import_file(self, file: Path) -> str:
        """Import a run from an uploaded file and return its name; refused as for ``start``.

        Raises:
            CheckpointError: the file is not a run's, or it is damaged.
        """
        max_bytes = min(MAX_IMPORT_BYTES, self.limits.max_upload_mb * MEGABYTE)
        max_header_bytes = MAX_UPLOADED_HEADER_BYTES if self.has_visitors else MAX_HEADER_BYTES
        with self._start_lock:  # before the file is read
            self._check_limits(adds_run=True)
        with (
            self._imports,
            self._runs.draft_of_file(file, max_bytes=max_bytes, max_header_bytes=max_header_bytes) as draft,
            self._start_lock,
        ):
            self._check_limits(adds_run=True)  # others may have arrived meanwhile
            name = self._runs.adopt(draft, name=self._naming(), owner=self._owner())
            self._title_new(name, self._runs[name].preset.name)
            return name

    def import_model(
        self,
        source: Path,
        *,
        pairs: Path | None,
        mapping: str | None,
        languages: Languages,
        on_phase: Callable[[str], None],
    ) -> str:
        """Import another program's model from a path of this computer and return the run's name; see ``Runs``.

        Raises:
            RunError: there are visitors, and visitors may not read this computer's files.
        """
        if self.has_visitors:
            raise RunError("models are imported from paths of this computer by its own user only")
        name = self._runs.import_model(
            source, pairs=pairs, mapping=mapping, languages=languages, name=self._naming(), on_phase=on_phase
        )
        with self._start_lock:
            self._title_new(name, self._runs[name].preset.name)
        return name

    def resume(self, name: str) -> None:
        """Continue a run of the visitor's from its last saved state; refused as ``start`` is."""
        self.limits.check(self._runs[self.own(name).name].preset, pairs=self._runs[name].folder.pairs)
        with self._start_lock:
            self._check_limits(adds_run=False)
            pool = self._runs.classes.pool_of(self._owner())
            self._runs.resume(name, pool=pool)
            self._note_network(name)
            self._note_in_class(name, pool)

    def classroom(self) -> Classroom:
        """Return what the visitor may do with classes.

        Raises:
            RunError: the server has a single user, or the visitor would not be recognized again.
        """
        owner = self._owner()
        if owner is None:
            raise RunError(
                "A class needs the public mode, which tells visitors apart: python app.py --host 0.0.0.0 --public"
            )
        return Classroom(self._runs, owner, self._network())

    def stop(self, name: str) -> None:
        """Stop a run of the visitor's after its current step."""
        self._runs.stop(self.own(name).name)

    def delete(self, name: str) -> None:
        """Delete a run of the visitor's and all its files permanently."""
        self._runs.delete(self.own(name).name)

    def share(self, name: str, shared: bool) -> None:
        """Share a run of the visitor's with everyone who knows its name, or stop sharing it.

        Raises:
            RunError: shared runs of the visitor's network, whatever cookies it sends, have their part of the disk.
        """
        self.own(name)
        with self._start_lock:
            if shared:
                self._check_shared(name)
            self._runs.share(name, shared)
            self._shared_from.pop(name, None)
            if shared:
                self._shared_from[name] = self._network()
                while len(self._shared_from) > MAX_SHARED:
                    self._shared_from.popitem(last=False)

    def rename(self, name: str, title: str) -> str:
        """Give a run another title, which is returned; an empty one restores the default. See ``RunFolder.rename``.

        Raises:
            InputError: the title is not valid, or another run that the visitor can see has it.
            RunError: there is no such run, or it is not the visitor's, or shipped with the program.
        """
        with self._start_lock:  # two runs cannot be given the same title at the same time
            self._runs.rename(self.own(name).name, title, others=self._other_titles(name))
        return self._runs[name].title

    # ---- decisions

    def _is_readable_for_visitor(self, run: Run) -> bool:
        """Return whether a run of somebody else is shared, or shipped, or of a class that the visitor teaches."""
        if self._runs.ownership(run.name).shared or run.info.shipped:
            return True
        return self._runs.classes.may_read(self._visitor(), run.name)

    def _note_opened(self, run: Run) -> None:
        """Remember that the visitor has opened somebody else's run."""
        if self._current_visitor is None or self.is_mine(run.name) or run.info.shipped:
            return
        self._runs.note_opened(run.name)
        visitor = self._current_visitor()
        if not visitor.returning:
            return
        with self._opened_lock:
            opened = self._opened.pop(visitor.owner, ())
            self._opened[visitor.owner] = (run.name, *(each for each in opened if each != run.name))[:MAX_OPENED]
            while len(self._opened) > MAX_VISITORS:
                self._opened.popitem(last=False)

    def own(self, name: str) -> Run:
        """Return a run that the visitor owns, and so may stop, resume, share, rename and delete.

        Raises:
            RunError: there is no such run, or it is somebody else's.
        """
        run = self[name]
        if not self.is_mine(name):
            raise RunError(f"run={name!r} is not yours: only its owner can do this")
        return run

    def _visitor(self) -> str | None:
        """Return the visitor's id; None for a single user, or an unknown visitor."""
        return None if self._current_visitor is None else self._current_visitor().owner

    def _owner(self) -> str | None:
        """Return the owner of a new run; RunError if the visitor would not be recognized again."""
        if self._current_visitor is None:
            return None
        visitor = self._current_visitor()
        if visitor.owner is None or not visitor.returning:
            raise RunError(
                "a run needs an owner, but your browser or program sent no cookie to recognize you by; "
                "allow cookies for this page, or let your program keep them between requests"
            )
        return visitor.owner

    def _naming(self, like: str | None = None) -> Naming:
        """Return the function that names a new run of the visitor's."""
        secret = "".join(secrets.choice(_ALPHABET) for _ in range(SECRET_LENGTH)) if self.has_visitors else ""
        used = list(self._runs.names_in_use(self._visitor()))
        return lambda preset: new_names(like or preset.name, used, secret=secret, bare_first=like is not None)

    def _title_new(self, name: str, stem: str) -> None:
        """Title a new run: as it was exported, or with the whole stem of its name if that is shortened.

        A title that another run has is not given again.
        """
        imported = self._runs[name].title
        proposals = (imported if imported != default_title(name) else None, unshortened_title(name, stem))
        for title in filter(None, proposals):
            with suppress(LabError):  # another run has it, or the disk is full
                self._runs.rename(name, title, others=self._other_titles(name))
                return
        if imported != default_title(name):
            self._runs.rename(name, "")

    def _other_titles(self, name: str) -> list[str]:
        return [self._runs[other].title for other in self if other != name]

    def _check_limits(self, *, adds_run: bool) -> None:
        """Raise RunError if a limit on the number of runs, or on their disk space, is reached."""
        limits, owner, active = self.limits, self._owner(), self._runs.active()
        num_active, max_active = sum(live.owner == owner for live in active), limits.max_active_per_visitor
        if self._runs.classes.pool_of(owner):
            max_active = ACTIVE_PER_STUDENT if max_active is None else min(max_active, ACTIVE_PER_STUDENT)
        else:
            self._check_queue()
        if max_active is not None and num_active >= max_active:
            raise RunError(
                f"{num_active} of your runs are training or queued, and the limit is {max_active}; stop one, or wait"
            )
        if not adds_run:
            return
        own = [each.name for each in self._runs.listings() if each.ownership.owner == owner]
        if limits.max_runs_per_visitor is not None and len(own) >= limits.max_runs_per_visitor:
            raise RunError(f"you have {len(own)} runs, and the limit is {limits.max_runs_per_visitor}; delete one")
        self._check_disk(own)

    def _check_queue(self) -> None:
        """Raise RunError if the queue is full, or the visitor's network holds half of it, regardless of cookies.

        Runs of classes do not count: those have their own limit.
        """
        network = self._network()
        if self.limits.max_queued is None:
            return
        queued = sum(live.pool == NO_POOL for live in self._runs.queued())
        if queued >= self.limits.max_queued:
            raise RunError(f"{queued} runs are queued, which is the limit; try again when some have finished")
        if not network:
            return
        active = {live.folder.name for live in self._runs.active()}
        of_site = [
            whose for name, whose in self._networks.items() if name in active and site_of(whose) == site_of(network)
        ]
        half, more = max(1, self.limits.max_queued // 2), max(1, self.limits.max_queued * 3 // 4)
        for used, limit in ((of_site.count(network), half), (len(of_site), more)):
            if used >= limit:
                raise RunError(
                    f"{used} runs from your network are training or queued, and the limit is {limit}; stop one, or wait"
                )

    def _check_shared(self, name: str) -> None:
        """Raise RunError if the visitor's network would share more than its part of the disk."""
        network, max_mb = self._network(), self.limits.max_disk_mb
        if not network or max_mb is None:
            return
        shared = {each for each, whose in self._shared_from.items() if whose == network} | {name}
        names = {each.name for each in self._runs.listings() if each.ownership.shared} | {name}
        used = sum(self._runs[each].size for each in shared & names) // MEGABYTE
        if used >= max_mb // SHARED_PARTS:
            raise RunError(
                f"run={name!r} cannot be shared: runs shared from your network would take {used:,} MB, and the limit "
                f"is {max_mb // SHARED_PARTS:,} MB; stop sharing another"
            )

    def _note_network(self, name: str) -> None:
        active = {live.folder.name for live in self._runs.active()}
        self._networks = {run: whose for run, whose in self._networks.items() if run in active}
        in_class = self._runs.classes.pool_of(self._visitor()) != NO_POOL
        self._networks[name] = "" if in_class else self._network()

    def _note_in_class(self, name: str, pool: str) -> None:
        """Show a run that was started to the teacher, or stop it if its owner has left the class meanwhile."""
        owner = self._visitor()
        if owner is not None and pool != NO_POOL and self._runs.classes.pool_of(owner) != pool:
            self._runs.stop_in_class(owner, pool)
        self._runs.classes.add_run(owner, name)

    def _network(self) -> str:
        return "" if self._current_visitor is None else self._current_visitor().network

    def _check_disk(self, own: list[str]) -> None:
        for max_mb, names, whose, remedy in (
            (self.limits.max_disk_mb_per_visitor, own, "your", "delete one"),
            (self.limits.max_disk_mb, list(self._runs), "all", "try again when old ones have been deleted"),
        ):
            used = self._runs.count_bytes(names) // MEGABYTE if max_mb else 0
            if max_mb is not None and used >= max_mb:
                raise RunError(f"{whose} runs take {used:,} MB on disk, and the limit is {max_mb:,} MB; {remedy}")
