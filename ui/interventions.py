"""What a visitor has done to the heads of the current run: part of the current decode, as the strategy is."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import get_args

from core.config.sections import ModelConfig
from core.config.tasks import TaskConfig
from core.interpret.ablation import parse_interventions
from core.interpret.interventions import Ablation, Interventions
from core.models import outline_model
from core.models.heads import Head
from core.runs.load import LoadedRun
from core.server.access import VisitorRuns
from core.tasks import build_task

MAX_LETTERS = 2_000  # of a value in an address


@dataclass(frozen=True)
class RequestedInterventions:
    """Heads that are knocked out or forced, by name; they belong to one run and are forgotten with it.

    Attributes:
        run: whose heads.
        without: knocked-out heads (``cross.2.1``) and layers (``cross.2``).
        force: ``cross.2.1=anti-diagonal``.
        ablation: what stands in for a head's output, here and where all heads are measured.
    """

    run: str | None = None
    without: tuple[str, ...] = ()
    force: tuple[str, ...] = ()
    ablation: Ablation = "zero"

    def __bool__(self) -> bool:
        """Whether anything is done to a head."""
        return bool(self.without or self.force)

    def __str__(self) -> str:
        out = [f"without {', '.join(self.without)} ({self.ablation})"] if self.without else []
        return "; ".join(out + [f"with {each.replace('=', ' forced to ')}" for each in self.force])

    def on(self, loaded: LoadedRun) -> Interventions:
        """Return what is to be done to a model; InputError if it cannot be done."""
        return parse_interventions(
            loaded.model, loaded.task, ablate=self.without, patterns=self.force, ablation=self.ablation
        )

    def checked(self, heads: Sequence[Head]) -> "RequestedInterventions":
        """Return this with names as short as can be, if it can be done to these heads; InputError if not."""
        interventions = Interventions.parse(heads, ablate=self.without, patterns=self.force)
        return replace(self, without=_short(set(interventions.ablated), heads))

    def of_run(self, run: str | None) -> "RequestedInterventions":
        """Return what of this goes for a run: all if it is its own, else only what stands in for a head's output."""
        return self if run == self.run else RequestedInterventions(run, ablation=self.ablation)

    def toggled(self, name: str, heads: Sequence[Head]) -> "RequestedInterventions":
        """Knock out a head or a layer, or put it back if all of it is out.

        Raises:
            InputError: there is no such head, or it is forced.
        """
        named = set(Interventions.parse(heads, ablate=[name]).ablated)
        out = set(Interventions.parse(heads, ablate=self.without).ablated)
        left = out - named if named <= out else out | named
        return replace(self, without=tuple(map(str, left))).checked(heads)

    def forced(self, head: str, pattern: str | None, heads: Sequence[Head]) -> "RequestedInterventions":
        """Make a head look where a pattern says; None lets it look as it learned to.

        Raises:
            InputError: there is no such cross-attention head or pattern, or the head is knocked out.
        """
        others = [each for each in self.force if each.partition("=")[0] != head]
        return replace(self, force=(*others, *([f"{head}={pattern}"] if pattern else []))).checked(heads)

    def restored(self) -> "RequestedInterventions":
        """Put all heads back."""
        return RequestedInterventions(self.run, ablation=self.ablation)

    def as_query(self) -> dict[str, str]:
        """Return what an address tells of it."""
        ablation = "" if self.ablation == "zero" else self.ablation
        return {"without": ",".join(self.without), "ablation": ablation, "force": ",".join(self.force)}


ALL_HEADS = RequestedInterventions()


def from_query(asked: dict[str, str], run: str | None) -> RequestedInterventions:
    """Return what an address tells of, for the run that it opens; nothing if it means another one."""
    ablation = asked["ablation"] if asked.get("ablation") in get_args(Ablation) else "zero"
    if asked.get("run", run) != run:
        return RequestedInterventions(run, ablation=ablation)
    return from_text(run, asked.get("without", ""), asked.get("force", ""), ablation)


def from_text(run: str | None, without: str, force: str, ablation: Ablation) -> RequestedInterventions:
    """Read names of heads and forced heads, each with commas between them."""
    return RequestedInterventions(run, _listed(without), _listed(force), ablation)


def heads_in(runs: VisitorRuns, run: str) -> tuple[Head, ...]:
    """Name the heads of a run's model, which need not have weights yet."""
    preset = runs.preset(run)
    return _heads_of(preset.model, preset.task, runs.folder(run).pairs)


@lru_cache(maxsize=64)
def _heads_of(model: ModelConfig, task: TaskConfig, pairs: Path) -> tuple[Head, ...]:
    return outline_model(model, build_task(task, pairs=pairs)).heads


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text[:MAX_LETTERS].split(",") if name.strip())


def _short(out: Set[Head], heads: Sequence[Head]) -> tuple[str, ...]:
    """Name heads, those of a layer that is out altogether by the layer's name."""
    names: list[str] = []
    for (block, layer), members in groupby(heads, key=lambda head: (head.block, head.layer)):
        all_of_layer = list(members)
        gone = [head for head in all_of_layer if head in out]
        whole = len(gone) == len(all_of_layer) > 1
        names += [f"{block}.{layer}"] if whole else [str(head) for head in gone]
    return tuple(names)
