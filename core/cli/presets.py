"""``presets``: list the presets that can be trained."""

import argparse
import json

from core.cli.arguments import add_json
from core.config import load_preset, preset_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print every preset with its description."""
    presets = [load_preset(name) for name in preset_names()]
    width = max(len(preset.name) for preset in presets)
    for preset in presets:
        print(f"{preset.name:{width}}  {preset.description}")
    if options.json:
        print(json.dumps({"presets": {preset.name: preset.model_dump(exclude={"name"}) for preset in presets}}))
    return 0
