"""Start from a run, in the form: what is listed, what does not fit, and what is started."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.config import Preset, load_preset
from core.runs import RunFolder
from core.runs.importing_models import import_model
from core.server import Runs
from core.server.access import VisitorRuns
from core.storage.errors import UnavailableError
from core.tasks.ingest import StagingArea
from tests.support.foreign_models import write_marian_text_model
from tests.support.run_helpers import wait_for, wait_for_status
from tests.support.trainings import train_run
from ui.forms import preset_form
from ui.forms.own_data import check_pairs, draft_for
from ui.forms.preset_form import Draft
from ui.run_info import settings_line
from ui.tabs.train import first_draft, reused_draft


@pytest.fixture
def own_runs(root: Path, tiny: Preset) -> Iterator[Runs]:
    """A lab with one finished run."""
    runs = Runs(root)
    train_run(RunFolder.create(root, tiny, name="first"))
    yield runs
    runs.close()


def filled(draft: Draft, start_from: str = "", **values: Any) -> tuple[Draft, dict[str, Any]]:
    """The form as a browser sends it."""
    opened = preset_form.opened_fields(draft)
    changed = {f"model.{field}": value for field, value in values.items()}
    return draft, {"edition": draft.edition, "values": opened["values"] | changed, "start_from": start_from}


def test_the_form_lists_the_runs_and_starts_from_the_chosen_one(own_runs: Runs, tiny: Preset):
    mine, draft = VisitorRuns(own_runs), Draft(tiny, tiny)
    shown = preset_form.check(mine, *filled(draft, "first"))
    assert shown["fields"]["starts"]["starts"] == [{"name": "first", "title": "first", "reason": ""}]
    assert "begins with the weights of first" in shown["summary"]["text"]
    started = preset_form.started(mine, *filled(draft, "first"), ask=False)
    run = own_runs[started["run"]]
    wait_for_status(own_runs, run.name, "finished")
    wait_for(lambda: not own_runs.active())
    assert "; began with the weights of first after step 8" in settings_line(own_runs[run.name])
    assert reused_draft(mine, run.name, draft).start_from == "first"
    assert {each["name"] for each in preset_form.listed_starts(mine, *filled(draft))["fields"]["starts"]["starts"]} == {
        "first",
        run.name,
    }
    own_runs.delete("first")
    assert reused_draft(mine, run.name, draft).start_from == ""


def test_a_reloaded_page_has_the_chosen_run_still_unless_it_is_gone(own_runs: Runs, tiny: Preset):
    mine, draft = VisitorRuns(own_runs), Draft(tiny, tiny, is_first=True)
    kept = preset_form.check(mine, *filled(draft, "first"))["fields"]["kept"]
    sent = filled(draft)[1] | {"kept": kept}
    again = first_draft(mine, None, preset_form.kept_in(sent))
    assert (again.start, again.start_from) == (tiny, "first")
    assert preset_form.opened_fields(again)["start_from"] == "first"
    assert preset_form.check(mine, *filled(draft))["fields"]["kept"] == ""  # as the page opened it
    linked = first_draft(mine, None, preset_form.kept_in(sent), "addition")
    assert (linked.start, linked.picked, linked.start_from) == (load_preset("addition"), "addition", "")
    assert first_draft(mine, None, preset_form.kept_in(sent), "../tiny").start_from == "first"
    own_runs.delete("first")
    assert first_draft(mine, None, preset_form.kept_in(sent)).start_from == ""
    assert preset_form.kept_in(sent | {"kept": "name: of an older version"}) is None


@pytest.mark.parametrize(("start_from", "problem"), [("first", "model.d_ff=8, and first has 32"), ("x", "no such run")])
def test_a_run_that_does_not_fit_is_refused_where_it_is_chosen(own_runs: Runs, tiny: Preset, start_from, problem):
    form = filled(Draft(tiny, tiny), start_from, d_ff=8)
    shown = preset_form.check(VisitorRuns(own_runs), *form)
    assert problem in shown["summary"]["text"]
    assert shown["fields"]["starts"]["starts"][0]["reason"] == "model.d_ff=8, and it has 32"
    refused = preset_form.started(VisitorRuns(own_runs), *form, ask=True)
    assert problem in refused.get("summary", refused["message"]).get("text", refused["message"]["text"])
    assert list(own_runs) == ["first"]


def test_an_imported_model_is_fine_tuned_on_own_pairs(own_runs: Runs, tiny: Preset, tmp_path: Path):
    mine, staging = VisitorRuns(own_runs), StagingArea()
    write_marian_text_model(tmp_path / "opus", max_position_embeddings=64)
    import_model(own_runs.root, tmp_path / "opus", name="opus")
    with pytest.raises(UnavailableError, match="open your own pairs first"):
        reused_draft(mine, "opus", Draft(tiny, tiny))
    pasted = "".join(f"press enter {number} => drücken {number}\n" for number in range(40))
    preset = check_pairs(mine, staging, None, None, None, pasted, "subword", "subword")["preset"]
    draft = draft_for(preset, Draft(tiny, tiny))
    assert draft is not None
    tuned = reused_draft(mine, "opus", draft)
    assert (tuned.start_from, tuned.start.model) == ("opus", own_runs["opus"].preset.model)
    assert tuned.start.training.learning_rate == 5e-5
    few = tuned.start.with_changes({"training.steps": 2, "training.warmup_steps": 0})
    started = preset_form.started(mine, *filled(tuned.next(few, base=few, start_from="opus"), "opus"), ask=False)
    info = wait_for_status(own_runs, started["run"], "finished", "failed")
    wait_for(lambda: not own_runs.active())
    assert info.message == ""
    again = first_draft(mine, started["run"])  # the page opens with such a run's settings, from scratch
    assert again.start.task.inherited_vocabulary == ""
    assert preset_form.described(mine, again.start, again.base)["text"]
