"""Malformed presets are refused quickly with a ConfigError that names the key; every field checks its range."""

import contextlib
import math
import random
import time
from typing import Any

import pytest
from annotated_types import Ge, Gt, Le, Lt, MaxLen

from core import config
from core.config import ConfigError, load_preset, parse_preset, preset_names, preset_to_yaml, read_preset
from core.models import parameters_of
from core.tasks import build_task
from core.training.memory import estimate_memory

SECONDS = 0.5  # of CPU time: other processes may be busy

VALUES = {
    "true": "true",
    "no": "no",
    "null": "null",
    "nothing": "",
    "a text": "many",
    "a quoted number": "'500'",
    "a fraction": "1.5",
    "below": "0",
    "negative": "-1",
    "above": "1000001",
    "1e308": "1e308",
    "1e999": "1e999",
    "not a number": ".nan",
    "infinite": ".inf",
    "5,000 digits": "9" * 5_000,
    "20 digits": "9" * 20,
    "base 60": "1:30:00",
    "base 8": "010",
    "a list": "[500]",
    "a mapping": "{a: 500}",
    "a date": "2001-01-01",
    "markup": "<script>alert(1)</script>",
}


def test_malformed_values_are_refused_quickly_by_their_key():
    good = preset_to_yaml(load_preset("tiny"))
    for name, value in VALUES.items():
        start = time.process_time()
        with pytest.raises(ConfigError) as caught:
            read_preset(good.replace("steps: 400", f"steps: {value}"), name="x")
        message = str(caught.value)
        assert time.process_time() - start < SECONDS
        assert len(message) < 1_500
        assert any(word in message for word in ("training.steps", "digits", "characters", "base-60")), (name, message)


ALWAYS_BAD: list[Any] = [math.nan, math.inf, -math.inf, None, [1], {"a": 1}, "<script>", 10**400, b"x", -(10**30)]


def fields() -> list[tuple[dict, str, str, Any]]:
    """Return (document, section, field, info) of every field of every section class."""
    result = {}
    for name in preset_names():
        document = load_preset(name).model_dump()
        for section in config.SECTIONS:
            for section_class in config.section_classes(section):
                if (
                    section_class.model_fields.get("family")
                    and section_class.model_fields["family"].default != document[section]["family"]
                ):
                    continue
                for field, info in section_class.model_fields.items():
                    result.setdefault((section_class.__name__, field), (document, section, field, info))
    return list(result.values())


def bad_values(info: Any) -> list[Any]:
    """Values the field must refuse: out of bounds or of another type."""
    bad = list(ALWAYS_BAD)
    for bound in info.metadata:
        step = 1 if info.annotation is int else 1e-6
        bad += [bound.ge - step] if isinstance(bound, Ge) else []
        bad += [bound.gt] if isinstance(bound, Gt) else []
        bad += [bound.le + step] if isinstance(bound, Le) else []
        bad += [bound.lt] if isinstance(bound, Lt) else []
    bad += [] if info.annotation is bool else [True, False]
    bad += [0.5] if info.annotation is int else []
    bad += ["1", "true", 1e308]
    if not any(isinstance(bound, MaxLen) for bound in info.metadata):
        return bad
    return [*(value for value in bad if not isinstance(value, str)), "x" * 1_000]  # any short text is valid


def test_every_field_refuses_invalid_values_without_allocating_memory(memory):
    assert len(fields()) > 45
    for document, section, field, info in fields():
        for value in bad_values(info):
            with pytest.raises(ConfigError) as caught:
                parse_preset({**document, section: {**document[section], field: value}})
            assert field in str(caught.value), (section, field, value)
            assert len(str(caught.value)) < 1_000
    assert memory.grown() < 100


def extreme_values(info: Any) -> list[Any]:
    """Return the bounds of the field that are themselves valid."""
    names = ("ge", "le")
    return [getattr(bound, name) for bound in info.metadata for name in names if getattr(bound, name, None) is not None]


def test_extreme_values_give_a_preset_or_config_error():
    """One field at a time, and random combinations of one family: rules across fields must hold too."""
    rng, known = random.Random(0), fields()
    for document, section, field, info in known:
        for value in extreme_values(info):
            for _ in range(6):
                changed = {**document, section: {**document[section], field: value}}
                for own_document, other, name, other_info in known:
                    same = own_document["task"]["family"] == document["task"]["family"]
                    if same and name in changed[other] and rng.random() < 0.3 and extreme_values(other_info):
                        changed[other] = {**changed[other], name: rng.choice(extreme_values(other_info))}
                with contextlib.suppress(ConfigError):
                    assert parse_preset(changed)


def test_the_largest_models_are_estimated_without_being_built(memory):
    blocks = {"d_model": 1024, "num_heads": 32, "d_ff": 4096}
    sizes = {
        "transformer": blocks | {"num_encoder_layers": 24, "num_decoder_layers": 24},
        "decoder-only": blocks | {"num_layers": 24},
        "encoder-only": blocks | {"num_layers": 24},
        "gru": {"d_embedding": 1024, "d_hidden": 2048, "num_layers": 8},
    }
    most = 0
    for family, size in sizes.items():
        changes = {f"model.{key}": value for key, value in size.items()}
        preset = load_preset("tiny").with_changes({"model.family": family, "model.max_seq_len": 512} | changes)
        most = max(most, parameters_of(preset.model, build_task(preset.task)))
    assert estimate_memory(preset.with_changes({"model.num_layers": 1}), batch_size=4096, length=32).total > 10**10
    assert memory.grown() < 500  # what PyTorch imports for this; the weights would be thousands
    assert most > 3 * 10**8
