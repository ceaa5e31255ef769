"""How the page's events are sent, where an event follows before the last one is answered."""

from pathlib import Path

import pytest

from core.server import Runs
from core.server.access import VisitorRuns
from ui.page import build_page


@pytest.fixture
def page(tmp_path: Path):
    return build_page(VisitorRuns(Runs(tmp_path)))


def test_no_event_with_data_of_its_own_is_sent_again_with_the_data_of_an_earlier_one(page):
    with_data = [each for each in page.fns.values() if each.collects_event_data]
    assert len(with_data) > 5
    assert [each.name for each in with_data if each.trigger_mode == "always_last"] == []


def test_no_component_is_told_of_events_in_progress(page):
    asked = [each for each in page.fns.values() if each.fn and each.targets and each.targets[0][0]]  # not the API
    assert len(asked) > 50
    assert [each.name for each in asked if each.show_progress_on != []] == []
