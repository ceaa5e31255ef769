"""The list of presets for the preset picker: by task, the quickest to train first, with examples and training times."""

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

from core.config import Preset
from core.config.listing import listed_presets, missing_package
from core.models import parameters_of
from core.reports.formatting import duration_range
from core.server.access import VisitorRuns
from core.storage.errors import LabError
from core.tasks import build_task
from ui.components.preset_picker import TimesRequest

_SHOWN_CHARACTERS = 36  # of an example
_log = logging.getLogger(__name__)


@cache
def shipped_presets() -> dict[str, Preset]:
    """Return the shipped presets by name, the quickest to train first, those that cannot be trained here last."""
    return {preset.name: preset for preset in listed_presets()}


def first_preset() -> Preset:
    """Return the preset that a new page opens with: the quickest to train."""
    return next(iter(shipped_presets().values()))


def picker_value(chosen: Preset, picked: str = "", *, edition: int = 0) -> dict[str, Any]:
    """Return the value of the preset picker.

    Args:
        chosen: the preset that the form is open with; one that is not shipped, such as that of the user's own pairs,
            is listed too.
        picked: the visitor's choice that opened the form, if it was one.
        edition: that of the form's draft.
    """
    families = by_family({preset: _listed(preset) for preset in shipped_presets().values()})
    if chosen.name not in shipped_presets():
        found = next((each for each in families if each["name"] == chosen.task.family), None)
        if found is None:
            found = {"name": chosen.task.family, "label": chosen.task.title, "presets": []}
            families.append(found)
        found["presets"].insert(0, _listed(chosen))
    return {
        "families": families,
        "chosen": chosen.name,
        "pairs": chosen.task.own_data,
        "picked": picked,
        "edition": edition,
    }


def training_times(runs: VisitorRuns, request: TimesRequest) -> dict[str, Any]:
    """Return examples of shipped presets, and their training times as far as measured; have the others measured."""
    order = sorted(request.presets, key=lambda name: name != request.chosen)
    presets = [shipped_presets()[name] for name in order if name in shipped_presets()]
    times = {preset.name: _time_text(runs, preset) for preset in presets}
    runs.request_training_times([preset for preset in presets if times[preset.name] is None])
    # One that is not shipped, as that of the visitor's own pairs, has its time in the form's summary only
    others = dict.fromkeys(set(order) - shipped_presets().keys(), "")
    known = {name: text for name, text in times.items() if text is not None}
    return {"times": others | known, "examples": {name: _example(name) for name in times}}


def _time_text(runs: VisitorRuns, preset: Preset) -> str | None:
    """Return a preset's training time, or why it has none; None while it is to be measured."""
    try:
        time = runs.training_time(preset)
    except LabError as error:  # beyond the limits of this server
        return str(error)
    if time == "pending":
        return None
    return "too large to estimate the time" if time is None else duration_range(time.low, time.high)


def _listed(preset: Preset) -> dict[str, Any]:
    return {
        "name": preset.name,
        "about": preset.description,
        "missing": missing_package(preset) or "",
    }


@cache
def _example(name: str) -> str:
    """Return an example and the size of a shipped preset, or "". Building some of the tasks takes a second or two."""
    preset = shipped_presets()[name]
    if missing_package(preset):
        return ""
    try:
        return described_preset(preset)
    except LabError as error:
        _log.warning("preset %s cannot be described: %s", name, error)
        return ""


def described_preset(preset: Preset) -> str:
    """Return an example and the size: "4 8 2 9 → 9 2 8 4 · 170 k parameters"."""
    task = build_task(preset.task)
    example = task.examples[0].strip()
    answer = "…" if task.open_ended else " ".join(task.answer(task.tokenize(example)))
    return f"{_cut(f'{example} → {answer}')} · {_size(parameters_of(preset.model, task))}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1].rstrip() + "…"


def _size(parameters: int) -> str:
    """Return a number of parameters with its unit: "170 k parameters", "1.7 M parameters"."""
    if parameters < 1_000_000:
        return f"{parameters / 1000:.0f} k parameters"
    millions = parameters / 1_000_000
    return f"{millions:.1f} M parameters" if millions < 10 else f"{millions:.0f} M parameters"


def by_family(listed: Mapping[Preset, dict[str, Any]]) -> list[dict[str, Any]]:
    """Group shipped presets by the family of their tasks; one with pairs of its own is a family of its own.

    Args:
        listed: what is shown of each preset.

    Returns:
        Of each family, in the order of its first preset, ``name``, ``label`` and ``presets``.
    """
    families: dict[str, dict[str, Any]] = {}
    for preset, shown in listed.items():
        is_own = preset.task.family == "own-pairs"
        name = preset.name if is_own else preset.task.family
        label = preset.name.replace("-", " ").capitalize() if is_own else preset.task.title
        families.setdefault(name, {"name": name, "label": label, "presets": []})["presets"].append(shown)
    return list(families.values())
