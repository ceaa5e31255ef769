"""Presets: schema, validation and YAML. Nothing in this package imports torch."""

from core.config.pairs_file import pairs_beside, verified_pairs
from core.config.preset import (
    NAME_PATTERN,
    PRESET_FOLDER,
    SECTIONS,
    SPECIAL_TOKENS,
    ConfigError,
    Preset,
    load_preset,
    load_preset_file,
    parse_preset,
    preset_names,
    preset_to_yaml,
    read_preset,
    section_classes,
)

__all__ = [
    "NAME_PATTERN",
    "PRESET_FOLDER",
    "SECTIONS",
    "SPECIAL_TOKENS",
    "ConfigError",
    "Preset",
    "load_preset",
    "load_preset_file",
    "pairs_beside",
    "parse_preset",
    "preset_names",
    "preset_to_yaml",
    "read_preset",
    "section_classes",
    "verified_pairs",
]
