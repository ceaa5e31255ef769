"""What a run says about itself in ``run.json``: its status, its latest metrics, and how it was trained.

Weight files have the quality and the provenance too.
"""

import hashlib
import re
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from core.config.preset import LoadedPlugin
from core.evaluation.headline import EXACT_MATCH, BleuName, HeadlineFigure, HeadlineFigures

Status = Literal["queued", "training", "stopping", "stopped", "finished", "failed", "interrupted"]
ACTIVE: tuple[Status, ...] = ("queued", "training", "stopping")
MAX_SESSIONS = 8  # that ``run.json`` and weight files keep: the first and the latest ones
MAX_STEPS = 1_000_000_000  # of a watched training; the lab's own make at most 1,000,000
MAX_IMPORTS = 32  # modules of a plugin's folder that they name


class RunQuality(BaseModel):
    """BLEU and chrF of a run on the validation set, as ``run.json`` and weight files keep them.

    Attributes:
        bleu, chrf: 0-100, rounded to four digits after the point.
        bleu_name: see ``core.evaluation.headline.bleu_name_of``.
    """

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    bleu: Annotated[float, Field(ge=0, le=100)]
    chrf: Annotated[float, Field(ge=0, le=100)]
    bleu_name: BleuName


class ValidationFigures(BaseModel):
    """Figures of a run on the validation set, as ``run.json`` keeps them: of the step with the best weights.

    Attributes:
        validation_loss: in nats per token.
        token_accuracy, exact_match: 0-1.
        free_running_loss: None unless the preset has it measured.
        bleu, chrf: 0-100; None unless the answers have BLEU.
        error_rate, token_error_rate: None unless an error rate decides.
        train_token_accuracy, train_exact_match: of a sample of training pairs, 0-1; None in older files.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    validation_loss: float
    token_accuracy: float
    exact_match: float
    free_running_loss: float | None = None
    bleu: float | None = None
    chrf: float | None = None
    error_rate: float | None = None
    token_error_rate: float | None = None
    train_token_accuracy: float | None = None
    train_exact_match: float | None = None


_Words = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ().,@+:_-]{0,99}$")]
_NOT_IN_WORDS = re.compile(r"[^A-Za-z0-9 ().,@+:_-]+")
_Count = Annotated[int, Field(ge=0, le=1_000_000)]
_Steps = Annotated[int, Field(ge=0, le=MAX_STEPS)]
_Time = Annotated[AwareDatetime, Field(ge=datetime(1970, 1, 1, tzinfo=UTC), lt=datetime(9000, 1, 1, tzinfo=UTC))]


def without_weights(info: "RunInfo") -> str:
    """Return why a run has no best weights, after its name."""
    if info.status == "failed":
        return "failed before weights were saved"
    if info.best_step is not None:
        return "has lost its best weights: best.safetensors is missing"
    return f"has no weights yet; it is {info.status}"


def recorded_name(text: str) -> str:
    """Return a version or a name as ``TrainingSession`` and ``PluginFile`` allow it."""
    return _NOT_IN_WORDS.sub(" ", text).lstrip(" ().,@+:_-")[:100].rstrip() or "unknown"


class FileHash(BaseModel):
    """Which version of a file was loaded.

    Attributes:
        name: of a plugin without its folder; of what it imports, the module's.
        sha256: of its content.
    """

    model_config = ConfigDict(frozen=True)

    name: _Words
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class PluginFile(FileHash):
    """A file that registered something the run may need; see ``core.plugins``.

    Attributes:
        imports: the modules that it imported from its own folder; empty in older files.
    """

    imports: Annotated[tuple[FileHash, ...], Field(max_length=MAX_IMPORTS)] = ()


def recorded_plugin(name: str, plugin: LoadedPlugin) -> PluginFile:
    """Return a plugin as a run records it; of many modules that it imports, the last ones have one joint hash."""
    imports = [FileHash(name=recorded_name(each), sha256=sha256) for each, sha256 in sorted(plugin.imports.items())]
    if len(imports) > MAX_IMPORTS:
        rest = "".join(each.sha256 for each in imports[MAX_IMPORTS - 1 :])
        joint = FileHash(name="others", sha256=hashlib.sha256(rest.encode()).hexdigest())
        imports = [*imports[: MAX_IMPORTS - 1], joint]
    return PluginFile(name=recorded_name(name), sha256=plugin.sha256, imports=tuple(imports))


class TrainingSession(BaseModel):
    """One session of a run's training, from its start or a resumption to its end: which program, where, and how.

    It names no person, host or folder, because runs are given away. Files from anyone have it, so every text is short
    and has no character that means anything in HTML, in a path or in a Markdown table.

    Attributes:
        command: arguments of ``python -m core``, files without their folder; "page" if it was started on the page, ""
            if Python code started it.
        start: time with a time zone.
        end: of the session; of its last write while it lasts, or if its process was killed.
        step: number of training steps made before it.
        version: of Attention Lab.
        commit: of the checkout that ran, with "-dirty" if its files differed; None if it was not a git checkout.
        python, torch, numpy: versions.
        system: operating system and instruction set.
        cpu: model of the CPU.
        device: kind of device trained on.
        gpu: name of that device; None unless it is "cuda".
        threads: torch threads of each process.
        processes: number of processes that trained together.
        plugins: the files that were loaded by ``--plugin``; empty in older files.
    """

    model_config = ConfigDict(frozen=True)

    command: Annotated[str, Field(pattern=r"^[ -.0-;=?-\[\]-_a-{}~]{0,1000}$")]
    start: _Time
    end: _Time
    step: _Steps
    version: _Words
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40,64}(-dirty)?$")] | None
    python: _Words
    torch: _Words
    numpy: _Words
    system: _Words
    cpu: _Words
    device: Literal["cpu", "cuda", "mps"]
    gpu: _Words | None
    threads: _Count
    processes: _Count
    plugins: Annotated[tuple[PluginFile, ...], Field(max_length=16)] = ()


class StartingPoint(BaseModel):
    """The weights of another run that a run began with.

    Attributes:
        run: name of that run, without its secret; it may have been deleted since.
        step: number of training steps after which those weights were saved; 0 for a model of another program.
        sha256: of their values.
    """

    model_config = ConfigDict(frozen=True)

    run: _Words
    step: _Count
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @property
    def text(self) -> str:
        """``digits-reversal-3 after step 1,000``."""
        return f"{self.run} after step {self.step:,}"


Provenance = Annotated[tuple[TrainingSession, ...], Field(max_length=MAX_SESSIONS, strict=False)]
"""The sessions of a run's training, the first first; empty in older files."""


class RunInfo(BaseModel):
    """Content of a run's ``run.json``: status and latest metrics, small enough to read for every row of a list.

    Attributes:
        format: version of the file format.
        status: one of

            - "queued": waiting for a worker; set by ``RunFolder.create`` and the server's worker pool.
            - "training": set by the ``Recorder``.
            - "stopping": asked to stop after the current step; only in the server's memory, never in the file.
            - "stopped": ended before its last step on request of the user or the server; set by ``core.runs.training``,
              or by the worker pool for a queued run.
            - "finished": all steps are done; set by the ``Recorder``, and for imported runs.
            - "failed": ended by an error or a non-finite loss; set by the ``Recorder``, ``mark_failed`` or the worker
              pool.
            - "interrupted": ended in the middle of an update by Ctrl+C in Python code, set by ``mark_failed``; or the
              file says that the run is active, but no process holds its lock, set when it is read
              (``RunFolder.with_verified_status``).
        message: reason for the status and notes for the user, separated by "; "; "" if there are none.
        created: time the run was created, with a time zone.
        shipped: whether the run comes with the program; such runs can be neither resumed nor deleted.
        parameters: number of the model's trainable parameters.
        step: number of the last recorded training step.
        best_step: step of the evaluation with the lowest validation loss; None before the first evaluation.
        exact_match: share of validation sequences predicted entirely correctly at the last evaluation, 0 to 1; None
            before the first evaluation.
        train_token_accuracy, train_exact_match: teacher-forced and free-running, on a fixed sample of training pairs at
            that evaluation, 0 to 1; None before it, and in older files.
        quality: BLEU and chrF at that evaluation; None if the task's answers have no BLEU, and in older files.
        headline: the figures of that evaluation that decide how good the run is, see ``core.evaluation.headline``;
            empty before the first evaluation, and in older files. ``figures`` has those of older files too.
        without_bleu: why answers that are texts have no BLEU; "" otherwise.
        validation: the validation figures at ``best_step``; None before the first evaluation, and in older files.
        sequences_seen: number of training sequences in all steps so far.
        seconds: training time in seconds, summed over all resumptions.
        start: the weights that the run began with; None for random ones, and in older files.
        provenance: the sessions of its training; empty before the first, and in older files.
        metrics_sha256: of ``metrics.jsonl`` when the training ended; None while it lasts, and in older files.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    format: Literal["attention-lab-run-1"] = "attention-lab-run-1"
    status: Status
    message: str = ""
    created: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))
    shipped: bool = False
    parameters: int = 0
    step: int = 0
    best_step: int | None = None
    exact_match: float | None = None
    train_token_accuracy: float | None = None
    train_exact_match: float | None = None
    quality: RunQuality | None = None
    headline: HeadlineFigures = ()
    without_bleu: Annotated[str, Field(max_length=300)] = ""
    validation: ValidationFigures | None = None
    sequences_seen: int = 0
    seconds: float = 0.0
    start: StartingPoint | None = None
    provenance: Provenance = ()
    metrics_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None

    @property
    def figures(self) -> tuple[HeadlineFigure, ...]:
        """The figures that decide how good the run is; of an older file BLEU if it has any, otherwise exact match.

        A BLEU of exactly 0 beside correct answers is that of references without 4-grams, so it is none.
        """
        if self.headline:
            return self.headline
        if self.quality and (self.quality.bleu or not self.exact_match):
            return (HeadlineFigure(measure="bleu", name=self.quality.bleu_name, value=self.quality.bleu),)
        return () if self.exact_match is None else EXACT_MATCH.figures({"exact_match": self.exact_match})
