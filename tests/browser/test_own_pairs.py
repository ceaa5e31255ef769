"""Own pairs on the page: what is uploaded or pasted is what Train trains, or the page says what is missing."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from core.server import Runs
from core.server.access import VisitorRuns
from core.tasks.ingest import StagingArea
from tests.browser.chromium import PHONE
from tests.serving import SHIPPED
from tests.support.run_helpers import wait_for
from ui.forms import own_data
from ui.updates import Updates

COVERED = """(box) => {
  const [label, icon] = [box.querySelector("label"), box.querySelector("button svg")];
  return label.getBoundingClientRect().bottom > icon.getBoundingClientRect().top;
}"""  # whether the label of an upload is over its icon
PAIRS = "".join(f"{number}\t{str(number)[::-1]}\n" for number in range(100, 160))


def test_an_uploaded_file_is_what_train_trains(page: Page, runs: Runs, tmp_path: Path):
    file = tmp_path / "backwards.tsv"
    file.write_text(PAIRS)
    before = set(runs)
    page.locator("#own-open").click()
    assert page.locator("#own-data").locator(":is(#own-file, #own-targets, #own-held-out)").evaluate_all(
        f"(boxes) => boxes.map({COVERED})"
    ) == [False, False, False]
    page.locator("#own-file input[type=file]").set_input_files(file)
    expect(page.locator("#own-preview .notice")).to_contain_text("The data is valid")
    expect(page.locator("#preset-picker input[value=backwards]")).to_be_checked()
    page.locator("#train").click()
    expect(page.locator("#run-bar .run .title")).to_contain_text("backwards")
    trained = (set(runs) - before).pop()
    assert runs[trained].preset.task.family == "own-pairs"


def test_pasted_pairs_stay_through_a_reload_and_hide_no_run_that_a_link_opens(
    page: Page, address: str, reload: Callable
):
    form, pasted = page.locator("#own-data"), page.locator("#own-pasted textarea")
    page.locator("#own-open").click()
    pasted.fill(PAIRS)
    reload()
    expect(pasted).to_have_value(PAIRS)
    reload(f"{address}?tab=train&run={SHIPPED}")
    expect(page.locator("#bench-view .answer")).to_have_count(4)
    expect(form).to_be_hidden()
    page.locator("#own-open").click()
    expect(pasted).to_have_value(PAIRS)
    page.locator("#own-close").click()
    reload()
    expect(page.locator("#bench-view .answer")).to_have_count(4)
    expect(form).to_be_hidden()


def test_train_says_what_is_missing_for_pairs_that_are_not_checked_or_not_valid(page: Page, runs: Runs):
    before = set(runs)
    page.locator("#own-open").click()
    page.locator("#own-pasted textarea").fill(PAIRS.replace("\t", " => "))
    page.locator("#train").click()
    notice = page.locator("#own-preview .notice")
    expect(notice).to_contain_text("not checked yet")
    page.locator("#own-look").click()
    expect(notice).to_contain_text("The data is valid")
    expect(page.locator("#preset-picker input:checked")).to_have_value(re.compile("pasted"))
    page.locator("#own-pasted textarea").fill("no arrow")
    expect(notice).to_have_text("These pairs are not checked yet. Press Check the data.")  # a result is that of others
    expect(page.locator("#own-preview .summary")).to_be_hidden()
    page.locator("#own-look").click()
    expect(notice).to_contain_text("✗")
    page.locator("#train").click()
    assert set(runs) == before


def test_what_is_left_is_checked_when_a_file_is_removed(page: Page, tmp_path: Path):
    notice, files = page.locator("#own-preview .notice"), [tmp_path / "pairs.tsv", tmp_path / "test.tsv"]
    files[0].write_text(PAIRS)
    files[1].touch()
    page.locator("#own-open").click()
    page.locator("#own-file input[type=file]").set_input_files(files[0])
    expect(notice).to_contain_text("The data is valid")
    page.locator("#own-held-out input[type=file]").set_input_files(files[1])
    expect(notice).to_contain_text("file='test.tsv' is empty")
    page.locator("#own-held-out").get_by_label("Clear").click()
    expect(notice).to_contain_text("The data is valid")
    page.locator("#own-pasted textarea").fill(PAIRS)
    page.locator("#own-look").click()
    expect(notice).to_have_text("✗ there are both a file and pasted pairs; remove one of them")
    page.locator("#own-file").get_by_label("Clear").click()
    expect(notice).to_contain_text("The data is valid")


def test_a_file_that_is_too_large_or_does_not_arrive_is_refused_with_the_reason(
    page: Page, tab: tuple[Page, list[str]], tmp_path: Path
):
    notice, chosen = page.locator("#own-preview .notice"), page.locator("#own-file input[type=file]")
    large, small = tmp_path / "large.tsv", tmp_path / "small.tsv"
    large.write_bytes(b"")
    os.truncate(large, 57_155_560)
    small.write_text(PAIRS)
    page.locator("#own-open").click()
    chosen.set_input_files(large)
    expect(page.locator(".toast-body")).to_contain_text("size")  # Gradio's own message goes
    expect(notice).to_have_text("✗ large.tsv has 57.16 MB; an upload must not be above 50 MB.")
    expect(page.locator("#own-preview [aria-busy]")).to_have_count(0)
    page.route("**/upload?*", lambda route: route.fulfill(status=503))
    chosen.set_input_files(small)
    expect(notice).to_have_text("✗ The upload failed. Choose the file again.")
    page.unroute("**/upload?*")
    chosen.set_input_files(small)
    expect(notice).to_contain_text("The data is valid")
    tab[1].clear()  # the browser logs the answer 503


def test_the_answer_for_an_earlier_file_is_not_trained_in_place_of_the_later_one(
    page: Page, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked, release, check = Event(), Event(), own_data.check_pairs

    def slow_first(runs: VisitorRuns, staging: StagingArea, pairs: str | None, *given: Any, **columns: Any) -> Updates:
        if pairs and pairs.endswith("large.tsv"):
            asked.set()
            assert release.wait(60)
        return check(runs, staging, pairs, *given, **columns)

    monkeypatch.setattr(own_data, "check_pairs", slow_first)
    before = set(runs)
    for name in ("large", "later"):
        (tmp_path / f"{name}.tsv").write_text(PAIRS)
    page.locator("#own-open").click()
    page.locator("#own-file input[type=file]").set_input_files(tmp_path / "large.tsv")
    assert asked.wait(30)
    page.get_by_label("Remove this file").or_(page.locator("#own-file button[aria-label=Clear]")).first.click()
    page.locator("#own-file input[type=file]").set_input_files(tmp_path / "later.tsv")
    expect(page.locator("#own-file")).to_contain_text("later")
    page.locator("#train").click()  # neither is checked
    expect(page.locator("#own-preview .notice")).to_contain_text("not checked yet")
    release.set()
    expect(page.locator("#preset-picker input[value=later]")).to_be_checked()
    expect(page.locator("#own-preview .notice")).to_contain_text("The data is valid")
    page.locator("#train").click()
    expect(page.locator("#run-bar .run .title")).to_contain_text("later")
    assert [runs[name].preset.name for name in set(runs) - before] == ["later"]


def test_tokens_that_are_chosen_during_a_check_are_checked_after_it(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked, release, check, kinds = Event(), Event(), own_data.check_pairs, []

    def slow_first(*given: Any, **columns: Any) -> Updates:
        kinds.append(given[-2:])
        asked.set()
        assert release.wait(60)
        return check(*given, **columns)

    monkeypatch.setattr(own_data, "check_pairs", slow_first)
    (tmp_path / "pairs.tsv").write_text(PAIRS)
    page.locator("#own-open").click()
    page.locator("#own-file input[type=file]").set_input_files(tmp_path / "pairs.tsv")
    assert asked.wait(30)
    page.locator("#own-source-kind").get_by_role("radio", name="subword").check()
    expect(page.locator("#own-answer-kind").get_by_role("radio", name="subword")).to_be_checked()  # it follows
    release.set()
    expect(page.locator("#own-preview .notice")).not_to_contain_text("Reading")
    wait_for(lambda: kinds == [("automatic", "automatic"), ("subword", "subword")])


def test_the_columns_of_a_file_are_a_choice_that_shows_what_each_reading_makes(page: Page, runs: Runs, tmp_path: Path):
    file = tmp_path / "spanish-train-high"
    file.write_text("".join(f"gat{number}\tgat{number}s\tN;PL\n" for number in range(60)))
    page.locator("#own-open").click()
    assert page.locator("#own-data").locator(":is(#own-file, #own-targets, #own-held-out)").evaluate_all(
        f"(boxes) => boxes.map({COVERED})"
    ) == [False, False, False]
    page.locator("#own-file input[type=file]").set_input_files(file)
    readings = page.locator("#own-preview .readings label")
    expect(readings.first).to_contain_text("columns 1 and 3 → column 2")
    expect(readings.first).to_contain_text("gat0 N;PL  →  gat0s")
    expect(readings.first.get_by_role("radio")).to_be_checked()
    readings.filter(has_text="column 3 is left out").first.get_by_role("radio").check()
    expect(readings.first).to_contain_text("column 1 → column 2; column 3 is left out")
    expect(page.locator("#own-preview .pairs tbody tr").first).to_have_text("gat0gat0s")
    page.locator("#own-look").click()  # keeps the choice
    expect(page.locator("#own-preview .notice")).to_contain_text("The data is valid")
    expect(readings.first).to_contain_text("column 1 → column 2; column 3 is left out")


def test_the_time_of_an_earlier_reading_never_replaces_a_later_reading(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked, release = Event(), Event()
    add_time = own_data.with_time

    def slow_first(value: dict[str, Any], time: str) -> dict[str, Any]:
        if not asked.is_set():
            asked.set()
            assert release.wait(60)
        return add_time(value, time)

    monkeypatch.setattr(own_data, "with_time", slow_first)
    file = tmp_path / "inflection"
    file.write_text("".join(f"gat{number}\tgat{number}s\tN;PL\n" for number in range(60)))
    page.locator("#own-open").click()
    assert page.locator("#own-data").locator(":is(#own-file, #own-targets, #own-held-out)").evaluate_all(
        f"(boxes) => boxes.map({COVERED})"
    ) == [False, False, False]
    page.locator("#own-file input[type=file]").set_input_files(file)
    readings = page.locator("#own-preview .readings label")
    expect(readings.first).to_contain_text("columns 1 and 3 → column 2")
    assert asked.wait(30)
    readings.filter(has_text="column 3 is left out").first.get_by_role("radio").check()
    expect(readings.first).to_contain_text("column 1 → column 2; column 3 is left out")
    expect(page.locator("#own-preview .facts")).not_to_contain_text("training time")
    release.set()
    expect(page.locator("#own-preview .facts")).to_contain_text("training time")
    expect(readings.first).to_contain_text("column 1 → column 2; column 3 is left out")


def test_two_files_with_any_suffix_and_test_sets_named_after_their_files(page: Page, tmp_path: Path):
    for name, first, count in (("train", 100, 60), ("long", 5000, 4), ("short", 10, 3), ("dev", 700, 5)):
        numbers = [str(number) for number in range(first, first + count)]
        (tmp_path / f"{name}.en").write_text("\n".join(numbers) + "\n")
        (tmp_path / f"{name}.fr").write_text("\n".join(each[::-1] for each in numbers) + "\n")
    page.locator("#own-open").click()
    page.locator("#own-file input[type=file]").set_input_files(tmp_path / "train.en")
    expect(page.locator("#own-preview .notice")).to_contain_text("✗")  # one column, without its targets
    page.locator("#own-targets input[type=file]").set_input_files(tmp_path / "train.fr")
    expect(page.locator("#own-preview .notice")).to_contain_text("The data is valid")
    held_out = [tmp_path / f"{name}.{side}" for name in ("long", "short", "dev") for side in ("en", "fr")]
    page.locator("#own-held-out input[type=file]").set_input_files(held_out)
    facts = page.locator("#own-preview .facts")
    expect(facts).to_contain_text("long (4), short (3)")
    expect(facts).to_contain_text("validation pairs5, marked as held out")


def test_on_a_phone_the_form_below_the_settings_comes_into_view(page: Page):
    page.set_viewport_size(PHONE)
    page.locator("#preset-picker .settings").click()
    page.get_by_role("button", name="Your own pairs").click()
    expect(page.locator("#own-data").get_by_role("heading", name="Your own pairs")).to_be_in_viewport()
