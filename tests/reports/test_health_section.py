"""The health section of a report: the last figures and marks; none for runs recorded without."""

import dataclasses

import pytest

from core.interpret.snapshots import Snapshot
from core.reports.report import health_section as module
from core.reports.report import write_report
from core.reports.report.health_section import health_section
from core.runs import RunFolder
from core.runs.run import Runs
from tests.support.trainings import train_run


@pytest.fixture(scope="module")
def saved(tmp_path_factory, tiny) -> Runs:
    folder = RunFolder.create(tmp_path_factory.mktemp("runs"), tiny, name="a")
    train_run(folder)
    return Runs(folder.path.parent)


def snapshots(saved: Runs) -> list[Snapshot]:
    return saved["a"].replay.snapshots()


def test_the_tables_have_the_last_figures(saved):
    last, section = snapshots(saved)[-1], health_section(snapshots(saved))
    assert section.step == last.step == 8
    assert section.perplexity == f"{last.health.perplexity:.4f}"
    parts = {row[0]: row[1:] for row in section.parts[1:]}
    assert parts["output"] == [
        f"{last.health.gradient_norm['output']:.3g}",
        f"{last.health.update_size['output']:.3g}",
        f"{last.health.heads.logit_rms:.3g}",
    ]
    assert parts["decoder.1"][2] == f"{last.health.heads.layer_rms['decoder.1']:.3g}"
    heads = {row[0]: row[1:] for row in section.heads[1:]}
    assert heads["cross.1.2"][0] == f"{last.health.heads.entropy['cross'][0][1]:.3g}"
    assert heads["cross.1.2"][4] == f"{last.health.heads.change['cross'][0][1]:.3g}"


def test_marks_are_listed_with_their_meaning(saved):
    last = snapshots(saved)[-1]
    uniform = {
        block: tuple(tuple(0.99 for _ in of) for of in layers)
        for block, layers in last.health.heads.entropy_share.items()
    }
    heads = last.health.heads.model_copy(update={"entropy_share": uniform})
    marked = dataclasses.replace(last, health=last.health.model_copy(update={"heads": heads}))
    section = health_section([marked])
    assert {row[-1] for row in section.heads[1:]} == {"uniform"}
    (meaning,) = section.marks
    assert meaning.startswith("uniform: its entropy is more than 95 %")


def test_of_many_heads_only_those_with_a_mark_are_listed(saved, monkeypatch):
    monkeypatch.setattr(module, "MAX_LISTED", 1)
    section = health_section(snapshots(saved))
    assert section.is_partial
    assert all(row[-1] != "–" for row in section.heads[1:])


def test_a_run_recorded_without_health_has_no_section(saved):
    assert health_section([dataclasses.replace(each, health=None) for each in snapshots(saved)]) is None


def test_the_report_contains_the_section(saved):
    report = write_report(saved["a"], sequences=5)
    assert "## Health" in report.markdown
    assert "cross.1.1" in report.markdown
    assert "<h2>Health</h2>" in report.html


def test_of_many_marked_heads_the_rest_is_counted(saved, monkeypatch):
    last = snapshots(saved)[-1]
    share = last.health.heads.entropy_share
    uniform = {block: tuple(tuple(0.99 for _ in of) for of in layers) for block, layers in share.items()}
    heads = last.health.heads.model_copy(update={"entropy_share": uniform})
    marked = dataclasses.replace(last, health=last.health.model_copy(update={"heads": heads}))
    total = sum(len(of) for layers in uniform.values() for of in layers)
    monkeypatch.setattr(module, "MAX_LISTED", 2)
    section = health_section([marked])
    assert (len(section.heads) - 1, section.unlisted) == (2, total - 2)
    assert total > 4
