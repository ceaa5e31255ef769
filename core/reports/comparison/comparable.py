"""Which runs can be compared, which runs differ only in the seed, and in which settings the others differ."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.config import SECTIONS, Preset
from core.config.sections import Section
from core.runs.info import RunInfo
from core.storage.error_messages import short_repr
from core.storage.errors import InputError

MAX_RUNS = 20  # item by item, every two of them
MAX_GROUPED_RUNS = 200
# Task settings that leave the held-out items as they are: those of the training data, and what is said of own pairs.
_NOT_OF_ITEMS = {"eos_in_targets", "markers_as_data", "unk_in_training", "origin", "examples"}
_MOST_NAMED = 4  # runs in a sentence
_LONGEST_VALUE = 40  # characters in a message; a checksum has more


@dataclass(frozen=True)
class RunGroup:
    """Runs with the same settings, except for the seed.

    Attributes:
        label: name of the group.
        runs: names of its runs.
        seeds: seed of each run.
    """

    label: str
    runs: tuple[str, ...]
    seeds: tuple[int, ...]


def held_out_key(task: Section) -> tuple[tuple[str, Any], ...]:
    """Return a key of a task's vocabulary and held-out items; equal keys mean equal items in equal order."""
    return tuple(task.model_dump(exclude=_NOT_OF_ITEMS).items())


def check_comparable(presets: Mapping[str, Preset], *, most: int = MAX_RUNS) -> None:
    """Raise InputError unless these runs, by name, can be compared: at least two, all of the same task."""
    names = list(presets)
    if not 2 <= len(names) <= most:
        more = f"; up to {MAX_GROUPED_RUNS} as --groups" if most < len(names) <= MAX_GROUPED_RUNS else ""
        raise InputError(
            f"runs={short_repr(','.join(names), 200)}: {len(names)} given; 2 to {most} runs can be compared{more}"
        )
    first = names[0]
    for other in names[1:]:
        if held_out_key(presets[first].task) != held_out_key(presets[other].task):
            differences = _task_differences(presets[first], presets[other])
            raise InputError(
                f"runs {first!r} and {other!r} have different tasks, so they share no held-out items ({differences})"
            )


def _task_differences(first: Preset, other: Preset) -> str:
    """Name the settings by which two tasks have other items: the family alone, or those with a value in both tasks."""
    settings = differing_settings([first, other], sections=("task",))
    if "task.family" in settings:
        settings = {"task.family": settings["task.family"]}
    else:
        settings = {key: values for key, values in settings.items() if key.removeprefix("task.") not in _NOT_OF_ITEMS}
        of_both = {key: values for key, values in settings.items() if not {None, ""} & set(values)}
        settings = of_both or settings
    return "; ".join(f"{key}: {' and '.join(map(_format_value, values))}" for key, values in settings.items())


def differing_settings(presets: Sequence[Preset], *, sections: Sequence[str] = SECTIONS) -> dict[str, tuple[Any, ...]]:
    """Return the settings, except for the seed, that differ between presets, with each preset's value.

    If the settings of all sections are compared, they include ``bug``. None stands for a setting that the family of a
    preset lacks.
    """
    documents = [preset.model_dump(exclude={"training": {"seed"}}) for preset in presets]
    differing = {}
    for section in sections:
        for field in dict.fromkeys(field for document in documents for field in document[section]):
            values = tuple(document[section].get(field) for document in documents)
            if any(value != values[0] for value in values):
                differing[f"{section}.{field}"] = values
    bugs = tuple(preset.bug for preset in presets)
    if sections == SECTIONS and any(bug != bugs[0] for bug in bugs):
        differing["bug"] = bugs
    return differing


def unfinished(runs: Iterable[tuple[str, RunInfo]]) -> str:
    """Say which of some runs, by name or title, were not trained to their end; "" if all were."""
    texts = [f"{name} ({info.status} at step {info.step:,})" for name, info in runs if info.status != "finished"]
    if not texts:
        return ""
    others = f" and {len(texts) - _MOST_NAMED:,} more" if len(texts) > _MOST_NAMED else ""
    return f"Not trained to the end: {', '.join(texts[:_MOST_NAMED])}{others}. They count as the others do."


def group_runs(presets: Mapping[str, Preset], *, titles: Mapping[str, str]) -> list[RunGroup]:
    """Group runs that differ only in the seed, in the given order.

    Two runs with the same settings and the same seed are repetitions of one training, not two samples, so the second
    run gets a separate group.

    Args:
        presets: the runs' presets by name.
        titles: the runs' titles by name, for the labels of the groups.
    """
    groups: dict[tuple[tuple[str, ...], int], list[str]] = {}
    for name, preset in presets.items():
        document = preset.model_dump(include={*SECTIONS, "bug"})
        seed, repetition = document["training"].pop("seed"), 0
        settings = tuple(str(section) for section in document.values())
        while any(presets[other].training.seed == seed for other in groups.get((settings, repetition), ())):
            repetition += 1
        groups.setdefault((settings, repetition), []).append(name)
    labels = [_group_label(names, titles) for names in groups.values()]
    return [
        RunGroup(
            label if labels.count(label) == 1 else _first_and_number(names, titles),
            tuple(names),
            tuple(presets[name].training.seed for name in names),
        )
        for label, names in zip(labels, groups.values(), strict=True)
    ]


def _group_label(names: Sequence[str], titles: Mapping[str, str]) -> str:
    """Return the common name of runs without ``-seed-N``, or a label made from the first run's title."""
    stems = {re.sub(r"-seed-\d+$", "", name) for name in names}
    return stems.pop() if len(names) > 1 == len(stems) else _first_and_number(names, titles)


def _first_and_number(names: Sequence[str], titles: Mapping[str, str]) -> str:
    first = titles[names[0]]
    return first if len(names) == 1 else f"{first} and {len(names) - 1} more"


def _format_value(value: Any) -> str:
    text = str(value)
    return "none" if value in (None, "") else text if len(text) <= _LONGEST_VALUE else f"{text[:12]}…"
