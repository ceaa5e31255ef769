"""Interventions on attention heads as the page and the API name them, before a model is loaded."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from core.config.sections import ModelConfig
from core.config.tasks import TaskConfig
from core.interpret.interventions import Ablation, Interventions
from core.interpret.trained import Trained
from core.models import outline_model
from core.models.seq2seq import Head
from core.runs import Run
from core.tasks import build_task

MAX_LENGTH = 2_000  # characters of a value in an address


@dataclass(frozen=True)
class InterventionSpec:
    """Heads to ablate and pattern interventions, by name. They belong to one run.

    Attributes:
        run: the run whose heads are named.
        ablate: heads (``cross.2.1``) and layers (``cross.2``) to ablate.
        patterns: pattern interventions such as ``cross.2.1=anti-diagonal``.
        ablate_with: replacement for the output of an ablated head, also where all heads are measured.
    """

    run: str | None = None
    ablate: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    ablate_with: Ablation = "zero"

    def __bool__(self) -> bool:
        """Whether there is any intervention."""
        return bool(self.ablate or self.patterns)

    def __str__(self) -> str:
        ablated = [f"without {', '.join(self.ablate)} ({self.ablate_with})"] if self.ablate else []
        return "; ".join(ablated + [f"with {each.replace('=', ' set to ')}" for each in self.patterns])

    def applied_to(self, trained: Trained) -> Trained:
        """Return a model with these interventions; InputError if they do not fit it."""
        return trained.ablate(*self.ablate, ablation=self.ablate_with, patterns=self.patterns)

    def validated(self, heads: Sequence[Head]) -> "InterventionSpec":
        """Return the spec with the shortest names for these heads; InputError if it does not fit them."""
        interventions = Interventions.parse(heads, ablate=self.ablate, patterns=self.patterns)
        return replace(self, ablate=_shortest_names(set(interventions.ablated), heads))

    def for_run(self, run: str | None) -> "InterventionSpec":
        """Return the spec for a run: unchanged for its own run, else empty with the same ``ablate_with``."""
        return self if run == self.run else InterventionSpec(run, ablate_with=self.ablate_with)

    def toggled(self, name: str, heads: Sequence[Head]) -> "InterventionSpec":
        """Ablate a head or a layer, or restore it if all of it is ablated.

        Raises:
            InputError: the head does not exist or has a pattern intervention.
        """
        named = set(Interventions.parse(heads, ablate=[name]).ablated)
        ablated = set(Interventions.parse(heads, ablate=self.ablate).ablated)
        remaining = ablated - named if named <= ablated else ablated | named
        return replace(self, ablate=tuple(map(str, remaining))).validated(heads)

    def with_pattern(self, head: str, pattern: str | None, heads: Sequence[Head]) -> "InterventionSpec":
        """Replace the attention pattern of a head; None removes the intervention.

        Raises:
            InputError: the cross-attention head or the pattern does not exist, or the head is ablated.
        """
        others = [each for each in self.patterns if each.partition("=")[0] != head]
        return replace(self, patterns=(*others, *([f"{head}={pattern}"] if pattern else []))).validated(heads)

    def cleared(self) -> "InterventionSpec":
        """Return the spec without interventions."""
        return InterventionSpec(self.run, ablate_with=self.ablate_with)

    def as_query(self) -> dict[str, str]:
        """Return the spec as parameters of the page's address; empty values stand for the defaults."""
        ablate_with = "" if self.ablate_with == "zero" else self.ablate_with
        return {"ablate": ",".join(self.ablate), "ablate_with": ablate_with, "pattern": ",".join(self.patterns)}


NO_INTERVENTIONS = InterventionSpec()


def from_query(query: dict[str, str], run: str | None) -> InterventionSpec:
    """Return the spec in the page's address, for the run that it opens; empty if the address names another run."""
    ablate_with: Ablation = "mean" if query.get("ablate_with") == "mean" else "zero"
    if query.get("run", run) != run:
        return InterventionSpec(run, ablate_with=ablate_with)
    return from_text(run, query.get("ablate", ""), query.get("pattern", ""), ablate_with)


def from_text(run: str | None, ablate: str, pattern: str, ablate_with: Ablation) -> InterventionSpec:
    """Parse comma-separated names of heads and comma-separated pattern interventions."""
    return InterventionSpec(run, _items(ablate), _items(pattern), ablate_with)


def heads_of_run(run: Run) -> tuple[Head, ...]:
    """Return the heads of a run's model without allocating its weights; the run need not have any yet.

    A training by a user's own loop has none that could be ablated.
    """
    if run.preset.is_watched:
        return ()
    return _heads(run.preset.model, run.preset.task, run.folder.pairs)


@lru_cache(maxsize=64)
def _heads(model: ModelConfig, task: TaskConfig, pairs: Path) -> tuple[Head, ...]:
    return outline_model(model, build_task(task, pairs=pairs)).heads


def _items(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text[:MAX_LENGTH].split(",") if name.strip())


def _shortest_names(ablated: Set[Head], heads: Sequence[Head]) -> tuple[str, ...]:
    """Name heads; a layer whose heads are all ablated goes by the layer's name."""
    names: list[str] = []
    for (block, layer), members in groupby(heads, key=lambda head: (head.block, head.layer)):
        in_layer = list(members)
        out = [head for head in in_layer if head in ablated]
        names += [f"{block}.{layer}"] if len(out) == len(in_layer) > 1 else [str(head) for head in out]
    return tuple(names)
