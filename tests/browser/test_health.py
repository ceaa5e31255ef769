"""The fold Health in a real browser: asked for only when open, one chart a figure, words under marked heads."""

import csv
import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page, Request, expect

from core.config import load_preset
from core.interpret.health import head_marks
from core.runs import RunFolder
from core.runs.replay import Replay
from core.server import Runs
from tests.browser.chromium import choose_run
from tests.serving import SHIPPED
from tests.support.old_replay import remove_health
from tests.support.trainings import train_run


@pytest.mark.slow
def test_figures_are_fetched_when_the_fold_opens_and_drawn_and_saved(page: Page, seeds: list[str], runs: Runs):
    asked: list[str] = []

    def note(request: Request) -> None:
        if '"health"' in (request.post_data or ""):
            asked.append(request.url)

    page.on("request", note)
    choose_run(page, seeds[0])
    page.wait_for_timeout(1500)  # several polls
    assert asked == []
    page.locator("#bench-view .health > summary").click()
    charts = page.locator("#bench-view .health-charts")
    expect(charts.locator("figure")).to_have_count(12)  # two of decoder-only models, one of numbers modulo a prime
    expect(charts.locator("canvas").locator("visible=true")).to_have_count(9)  # drawn or not before they were hidden
    legend = page.locator("#bench-view .health-charts figure").nth(0).locator(".chart-legend")
    expect(legend).to_contain_text("embeddings")
    expect(legend).to_contain_text("decoder 1")
    page.wait_for_timeout(2500)  # a finished run has nothing new to ask for
    assert len(asked) == 1
    page.get_by_label("Heads in the charts").select_option("encoder")
    entropy = page.locator("#bench-view .health-charts figure").filter(has_text="Entropy of heads")
    expect(entropy.locator(".chart-legend")).to_contain_text("encoder 1.1")
    with page.expect_download() as download:
        page.get_by_role("button", name="All figures as CSV").click()
    rows = list(csv.DictReader(download.value.path().open(encoding="utf-8-sig")))
    snapshots = runs["pair-seed-0"].replay.snapshots()
    assert [row["step"] for row in rows] == [str(each.step) for each in snapshots]
    perplexity = [each.health.perplexity for each in snapshots]
    assert [float(row["perplexity validation"]) for row in rows] == pytest.approx(perplexity, rel=1e-3)
    page.remove_listener("request", note)


def test_the_shipped_run_shows_its_health_and_its_uniform_heads(page: Page):
    page.locator("#bench-view .health > summary").click()
    charts = page.locator("#bench-view .health-charts")
    expect(charts.locator("figure")).to_have_count(12)
    expect(charts.locator("canvas").locator("visible=true")).to_have_count(8)  # the size of its logits was not recorded
    page.get_by_label("Attention block").select_option("decoder self-attention")
    expect(page.locator("#bench-view .map .mark-word")).to_have_text(["uniform"] * 8)


@pytest.mark.slow
def test_frequencies_that_stand_out_are_named(page: Page, runs: Runs):
    small = {"task.prime": 13, "model.d_model": 8, "model.d_ff": 8, "training.steps": 20, "training.evaluate_every": 10}
    folder = RunFolder.create(runs.root, load_preset("grokking").with_changes(small), name="circles")
    train_run(folder)
    replay = Replay.load(folder.replay_file, 10)
    planted = Replay(10)
    for snapshot in replay.snapshots():
        heads = snapshot.health.heads.model_copy(update={"fourier_power": (0.02, 0.5, 0.02, 0.02, 0.42, 0.02)})
        planted.add(replace(snapshot, health=snapshot.health.model_copy(update={"heads": heads})))
    planted.save(folder.replay_file)
    choose_run(page, "circles")
    page.locator("#bench-view .health > summary").click()
    chart = page.locator("#bench-view .health-charts figure").filter(has_text="Fourier power")
    expect(chart.locator(".chart-legend li")).to_have_text(["frequency 2", "frequency 5"])


@pytest.mark.slow
def test_a_run_recorded_without_health_says_so(page: Page, runs: Runs):
    shutil.copytree(runs.root / SHIPPED, runs.root / "without-health")
    remove_health(runs.root / "without-health" / "replay.safetensors")
    folder = RunFolder(runs.root, "without-health")
    folder.write_info(folder.read_info().model_copy(update={"shipped": False, "created": datetime.now(UTC)}))  # listed
    choose_run(page, "without-health")
    page.locator("#bench-view .health > summary").click()
    expect(page.locator("#bench-view .health-note")).to_contain_text("recorded without these figures")
    page.goto("about:blank")
    shutil.rmtree(runs.root / "without-health")  # the next page would open with it


@pytest.mark.slow
def test_a_marked_head_has_its_word_under_the_map_and_in_its_name(page: Page, seeds: list[str], runs: Runs):
    choose_run(page, seeds[0])
    page.get_by_label("Attention block").select_option("encoder self-attention")
    marks = head_marks(runs["pair-seed-0"].replay.snapshots()[-1].health.heads)["encoder"]
    expected = [mark for layer in marks for mark in layer]
    words = page.locator("#bench-view .map .mark-word")
    expect(words).to_have_count(len(expected))
    expect(words).to_have_text(expected)
    for at, mark in enumerate(expected):
        if mark:
            assert mark in (page.locator("#bench-view .map").nth(at).get_attribute("aria-label") or "")
