"""Malformed presets are refused quickly with a ConfigError that names the key; every field checks its range."""

import contextlib
import math
import random
import time
from typing import Any

import pytest
from annotated_types import Ge, Gt, Le, Lt, MaxLen
from hypothesis import given, settings
from hypothesis import strategies as st

from core import config
from core.config import ConfigError, Preset, load_preset, parse_preset, preset_names, preset_to_yaml, read_preset
from core.models import parameters_of
from core.tasks import build_task
from core.training.memory import estimate_memory

SECONDS = 0.5  # of CPU time: other processes may be busy
GENERATED = 3_000

# Document, and a part of the expected message.
DOCUMENTS = {
    "nothing": ("", "preset"),
    "a text": ("hello", "preset"),
    "a list": ("[1, 2]", "preset"),
    "a number": ("7", "preset"),
    "no sections": ("name: a\ndescription: b", "task is missing"),
    "an unknown section": ("description: b\nmodell: {}", "modell is not a known key"),
    "Python": ("a: !!python/object/apply:os.system [ls]", "tags are not allowed"),
    "Python name": ("a: !!python/name:os.system", "tags are not allowed"),
    "Python module": ("a: !!python/module:os", "tags are not allowed"),
    "new object": ("a: !!python/object/new:os.system [ls]", "tags are not allowed"),
    "binary": ("a: !!binary aGVsbG8=", "tags are not allowed"),
    "set": ("a: !!set {b}", "tags are not allowed"),
    "local tag": ("a: !x 1", "tags are not allowed"),
    "many laughs": ("a: &a [x]\n" + "\n".join(f"{c}: [*a,*a]" for c in "bcdef"), "anchors and aliases"),
    "an anchor alone": ("a: &a 1", "anchors and aliases"),
    "an alias of itself": ("a: &a [*a]", "anchors and aliases"),
    "an unknown alias": ("a: *b", "anchors and aliases"),
    "merge keys": ("<<: {a: 1}", "merge keys"),
    "merge keys that double": ("a: &a {b: 1}\nc: {<<: [*a,*a]}", "anchors and aliases"),
    "a deep list": ("[" * 60_000, "levels deep"),
    "a deep block": ("- " * 30_000, "levels deep"),
    "deep questions": ("? " * 30_000, "levels deep"),
    "deep mappings": ("{a: " * 10_000, "levels deep"),
    "more than is read": ("a: 1\n" * 20_000, "bytes of YAML"),
    "a megabyte": ("x" * 1_000_000, "bytes of YAML"),
    "a long list": ("- a\n" * 10_000, "YAML events"),
    "a long text": ("a: " + "x" * 10_000, "characters"),
    "two documents": ("a: 1\n---\nb: 2", "not valid YAML"),
    "a directive": ("%YAML 9.9\n---\na: 1", "not valid YAML"),
    "an open quote": ("a: 'b", "not valid YAML"),
    "a tab": ("a:\n\t- b", "not valid YAML"),
    "a NUL": ("a: \x00", "not valid YAML"),
    "a bell": ("a: \x07", "not valid YAML"),
    "a list for a key": ("? [a]\n: 1", "not valid YAML"),
    "a mapping for a key": ("{{a: 1}: 2}", "not valid YAML"),
    "the same key": ("name: a\nname: b", "duplicate key 'name'"),
    "not UTF-8": (b"\xff\xfe\x00", "UTF-8"),
    "UTF-16": ("name: a".encode("utf-16"), "UTF-8"),
    "an invalid date": ("a: 2001-13-45", "invalid value"),
}
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


def good() -> str:
    return preset_to_yaml(load_preset("tiny"))


def refusal(text: str | bytes) -> str:
    start = time.process_time()
    with pytest.raises(ConfigError) as caught:
        read_preset(text, name="x")
    assert time.process_time() - start < SECONDS
    assert len(str(caught.value)) < 1_500
    return str(caught.value)


def test_malformed_documents_and_values_are_refused(row):
    for name, (text, message) in DOCUMENTS.items():
        assert message in refusal(text), name
    for name, value in VALUES.items():
        message = refusal(good().replace("steps: 400", f"steps: {value}"))
        assert any(word in message for word in ("training.steps", "digits", "characters", "base-60")), (name, message)
    learning_rate = read_preset(
        good().replace("learning_rate: 0.008", "learning_rate: 1e-3"), name="x"
    ).training.learning_rate
    assert learning_rate == 0.001
    count = len(DOCUMENTS) + len(VALUES)
    assert count >= 45
    row("S2", "YAML that is not a preset", f"{count} cases", "one exception type, the key named; 1e-3 is a number")


PIECES = [
    ": ",
    "- ",
    "\n",
    "\n  ",
    *"[]{}'\"#|>%@`~?,\t\x00\ud800é",
    "a",
    "task",
    "model:",
    "training:",
    "steps",
    "&a",
    "*a",
]
PIECES += ["!!", "<<", "1e3", ".nan", "null", "0x1f", "1:30", "010"]


def is_read_or_refused(text: str | bytes) -> bool:
    """Whether the text is a preset or raises ConfigError; any other exception propagates."""
    try:
        return isinstance(read_preset(text, name="x"), Preset)
    except ConfigError as error:
        return len(str(error)) > 0


@settings(max_examples=GENERATED)
@given(st.one_of(st.lists(st.sampled_from(PIECES), max_size=60).map("".join), st.binary(max_size=200), st.text()))
def check_any_text(text: str | bytes) -> None:
    assert is_read_or_refused(text)


@settings(max_examples=500)
@given(st.data())
def check_changed_preset(data: st.DataObject) -> None:
    text = good()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    assert is_read_or_refused(text[:start] + "".join(data.draw(st.lists(st.sampled_from(PIECES)))) + text[end:])


def test_generated_text_is_a_preset_or_raises_config_error(row):
    check_any_text()
    check_changed_preset()
    row("S2", "generated YAML", f"{GENERATED + 500} texts", "a preset or ConfigError")


# --- values ------------------------------------------------------------------------------------------------------

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


def test_every_field_refuses_invalid_values_without_allocating_memory(memory, row):
    refused = 0
    assert len(fields()) > 45
    for document, section, field, info in fields():
        for value in bad_values(info):
            with pytest.raises(ConfigError) as caught:
                parse_preset({**document, section: {**document[section], field: value}})
            assert field in str(caught.value), (section, field, value)
            assert len(str(caught.value)) < 1_000
            refused += 1
    assert memory.grown() < 100
    row("S3", "values out of range", f"{refused} values", f"of {len(fields())} fields, each refused by its name")


def extreme_values(info: Any) -> list[Any]:
    """Return the bounds of the field that are themselves valid."""
    names = ("ge", "le")
    return [getattr(bound, name) for bound in info.metadata for name in names if getattr(bound, name, None) is not None]


def test_extreme_values_give_a_preset_or_config_error(row):
    """One field at a time, and random combinations of one family: rules across fields must hold too."""
    rng, count, known = random.Random(0), 0, fields()
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
                count += 1
    row("S3", "values at the end of their range", f"{count} presets", "a preset or ConfigError")


def test_the_largest_models_are_estimated_without_being_built(memory, row):
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
    assert memory.grown() < 100
    assert most > 3 * 10**8
    row("S3", "largest models, estimated", f"{len(sizes)} families", f"{most:,} parameters in {memory.grown():.0f} MB")
