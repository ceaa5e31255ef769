"""Limits: strict in public, loose on a laptop, set by flags and variables."""

from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from core.config import ConfigError, load_preset, preset_names
from core.server import Runs, limits
from core.server.limits import LAPTOP, PUBLIC, Limits, limits_from
from core.storage.errors import InputError
from tests.support.run_helpers import wait_for


def test_public_limits_are_complete_and_never_looser():
    for name in Limits.model_fields:
        lax, strict = getattr(LAPTOP, name), getattr(PUBLIC, name)
        assert strict is not None, name
        assert lax is None or strict <= lax, name


def test_every_preset_is_allowed_on_a_laptop():
    for name in preset_names():
        LAPTOP.check(load_preset(name))


def test_beginner_presets_are_allowed_in_public():
    for name in ("digits-reversal", "digits-reversal-gru", "words-reversal-gru", "addition"):
        PUBLIC.check(load_preset(name))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"training.steps": 20_001}, "training.steps=20,001 is more than this server allows: at most 20,000"),
        ({"training.batch_size": 513}, "training.batch_size × training.gradient_accumulation_steps=513"),
        (
            {"training.batch_size": 300, "training.gradient_accumulation_steps": 2},
            "gradient_accumulation_steps=600 is more than",
        ),
        (
            {"training.group_by_length": True, "training.tokens_per_batch": 12 * 513},
            "sequences in training.tokens_per_batch × training.gradient_accumulation_steps=513 is more than",
        ),
        ({"model.d_model": 512, "model.d_ff": 2048}, "parameters is more than this server allows: at most 2,000,000"),
        ({"model.d_model": 1024, "training.steps": 1_000_000}, "training.steps=1,000,000"),
    ],
)
def test_exceeded_limits_are_reported_with_key_value_and_limit(changes, said):
    preset = load_preset("digits-reversal").with_changes(changes)
    LAPTOP.check(preset)
    with pytest.raises(ConfigError, match=said):
        PUBLIC.check(preset)


def test_estimated_memory_is_limited():
    preset = load_preset("digits-reversal").with_changes({"training.batch_size": 512})
    with pytest.raises(ConfigError, match=r"batch_size=512 takes about \d+ MB of memory .* at most 10 MB"):
        PUBLIC.model_copy(update={"max_memory_mb": 10}).check(preset)


def test_a_public_server_knows_what_shipped_presets_take_before_a_visitor_trains_one(tmp_path, monkeypatch):
    measured = []

    def training_memory(preset, pairs):
        measured.append(preset.name)
        return SimpleNamespace(total=0)

    monkeypatch.setattr(limits, "training_memory", training_memory)
    runs = Runs(tmp_path, limits=PUBLIC)
    runs.warm_up()
    wait_for(lambda: {"tiny", "digits-reversal", "number-words-german"} <= set(measured))
    runs.close()


def test_the_memory_of_a_token_budget_is_limited():
    changes = {"training.group_by_length": True, "training.tokens_per_batch": 6_000}
    preset = load_preset("digits-reversal").with_changes(changes)
    with pytest.raises(ConfigError, match=r"tokens_per_batch=6000 takes about \d+ MB of memory .* at most 10 MB"):
        PUBLIC.model_copy(update={"max_memory_mb": 10}).check(preset)


def test_flags_override_variables_and_variables_override_defaults():
    environment = {"ATTENTION_LAB_MAX_STEPS": "300", "ATTENTION_LAB_MAX_RUNS": "3", "ATTENTION_LAB_KEEP_HOURS": "none"}
    limits = limits_from({"max_steps": "500", "max_runs": None}, environment, public=True)
    assert (limits.max_steps, limits.max_runs, limits.keep_hours) == (500, 3, None)
    assert limits.max_parameters == PUBLIC.max_parameters
    assert limits_from({}, {}, public=False) == LAPTOP
    assert limits_from({}, {}, public=True) == PUBLIC


def test_invalid_limits_are_reported():
    for value in ("0", "-1", "many", "1.5", "", "nan", "1e3"):
        with pytest.raises(ConfigError, match=rf'max_steps={value!r} is not a valid limit: .* or "none"'):
            limits_from({"max_steps": value}, {}, public=True)
    with pytest.raises(ConfigError, match="max_runs='none' is not a valid limit: use a whole number above 0"):
        limits_from({"max_runs": "none"}, {}, public=True)


def test_an_unknown_limit_is_an_error():
    with pytest.raises(ValidationError):
        Limits(max_stepz=3)


def test_text_input_must_be_valid_and_bounded():
    for text in (None, 3, [], "x" * 501, "a\x00b", "\ud800", "\x1b[31m"):
        with pytest.raises(InputError, match=r"^input "):
            PUBLIC.check_text("input", text)


def test_ordinary_text_is_unchanged():
    for text in ("", "4 8 2 9", "a\tb\nc", "ünïcødé 语言 🔬", "\u202eabc"):
        assert PUBLIC.check_text("input", text) == text
