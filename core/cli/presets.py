"""``presets``: list the presets that can be trained, the quickest first; or print one, with all its keys."""

import argparse
import json
from typing import Any

from core.config import Preset, load_preset, preset_to_yaml
from core.config.listing import listed_presets, missing_package
from core.storage.errors import InputError


def run(options: argparse.Namespace) -> int:
    """Print every preset with its model's family and its description; or one preset as YAML."""
    if options.name is not None and options.times:
        raise InputError("--times measures all presets; leave NAME out")
    if options.name is not None:
        return _print_preset(load_preset(options.name), as_json=options.json)
    presets = listed_presets()
    names = max(len(preset.name) for preset in presets)
    families = max(len(preset.model.family) for preset in presets)
    result = {}
    for preset in presets:
        measured = _measured(preset) if options.times else {}
        result[preset.name] = preset.model_dump(exclude={"name"}) | measured
        missing = missing_package(preset)
        cells = [f"{preset.name:{names}}", f"{preset.model.family:{families}}"]
        cells += [f"{measured['parameters']:>11,} {_time(measured['seconds']):>16}"] if measured else []
        cells.append(preset.description + (f" ({missing})" if missing else ""))
        print("  ".join(cells), flush=True)
    if options.json:
        print(json.dumps({"presets": result}))
    return 0


def _print_preset(preset: Preset, *, as_json: bool) -> int:
    print(preset_to_yaml(preset), end="")
    if as_json:
        print(json.dumps({"presets": {preset.name: preset.model_dump(exclude={"name"})}}))
    return 0


def _measured(preset: Preset) -> dict[str, Any]:
    """Return a preset's number of parameters, and its training time as [low, high]; None if it cannot be measured."""
    from core.models import parameters_of  # imports torch, which the plain list does not wait for
    from core.runs.estimate import estimate_training_time
    from core.tasks import build_task

    time = None if missing_package(preset) else estimate_training_time(preset)
    return {
        "parameters": parameters_of(preset.model, build_task(preset.task)),
        "seconds": None if time is None else [round(time.low, 1), round(time.high, 1)],
    }


def _time(seconds: list[float] | None) -> str:
    from core.reports.formatting import duration_range

    return "not measured" if seconds is None else duration_range(*seconds)
