"""Which runs can be compared, which of them differ only in their seed, and in what settings the others do."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.config import SECTIONS, Preset
from core.config.sections import Section
from core.storage.errors import InputError

MAX_RUNS = 20
_ONLY_OF_TRAINING = {"eos_in_targets"}  # task settings that change what is trained on, not what is held out


@dataclass(frozen=True)
class RunGroup:
    """Runs with the same settings, whatever their seed.

    Attributes:
        label: what they are called together.
        runs: their names.
        seeds: of each.
    """

    label: str
    runs: tuple[str, ...]
    seeds: tuple[int, ...]


def held_out_key(task: Section) -> tuple[tuple[str, Any], ...]:
    """Return what decides a task's vocabulary and its held-out items: equal keys, equal items in the same order."""
    return tuple(task.model_dump(exclude=_ONLY_OF_TRAINING).items())


def check_comparable(presets: Mapping[str, Preset]) -> None:
    """Raise InputError unless these runs, by name, can be compared: there are several, and of one task."""
    names = list(presets)
    if not 2 <= len(names) <= MAX_RUNS:
        raise InputError(f"runs={','.join(names)[:200]!r}: {len(names)} named, where 2 to {MAX_RUNS} can be compared")
    first = names[0]
    for other in names[1:]:
        if held_out_key(presets[first].task) != held_out_key(presets[other].task):
            tasks = settings_that_differ([presets[first], presets[other]], sections=("task",))
            differing = "; ".join(
                f"{key}: {_shown(values[0])} and {_shown(values[1])}" for key, values in tasks.items()
            )
            raise InputError(
                f"runs {first!r} and {other!r} are of different tasks, so no held-out items are the same for both "
                f"({differing})"
            )


def settings_that_differ(
    presets: Sequence[Preset], *, sections: Sequence[str] = SECTIONS
) -> dict[str, tuple[Any, ...]]:
    """Return the settings, the seed aside, that are not the same in all presets, with the value of each.

    None stands for a setting that a preset, being of another family, does not have.
    """
    documents = [preset.model_dump(exclude={"training": {"seed"}}) for preset in presets]
    differing = {}
    for section in sections:
        for field in dict.fromkeys(field for document in documents for field in document[section]):
            values = tuple(document[section].get(field) for document in documents)
            if any(value != values[0] for value in values):
                differing[f"{section}.{field}"] = values
    return differing


def groups_of(presets: Mapping[str, Preset]) -> list[RunGroup]:
    """Put runs together that differ in nothing but their seed, in the order in which they are named.

    A run with the seed of another is the same training again, not another sample of it, so it stands apart.
    """
    groups: dict[tuple, list[str]] = {}
    for name, preset in presets.items():
        document = preset.model_dump(include=set(SECTIONS))
        seed, again = document["training"].pop("seed"), 0
        same = tuple(str(section) for section in document.values())
        while any(presets[other].training.seed == seed for other in groups.get((same, again), ())):
            again += 1
        groups.setdefault((same, again), []).append(name)
    labels = [_common_name(names) for names in groups.values()]
    return [
        RunGroup(
            label if labels.count(label) == 1 else _counted(names),
            tuple(names),
            tuple(presets[name].training.seed for name in names),
        )
        for label, names in zip(labels, groups.values(), strict=True)
    ]


def _common_name(names: Sequence[str]) -> str:
    """Return the name that runs were given together, or one made of the first of theirs."""
    stems = {re.sub(r"-seed-\d+$", "", name) for name in names}
    return stems.pop() if len(names) > 1 == len(stems) else _counted(names)


def _counted(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)
