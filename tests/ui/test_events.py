"""How the page's events are sent, where an event follows before the last one is answered."""

from pathlib import Path

from core.server import Runs
from core.server.access import VisitorRuns
from ui.page import build_page


def test_no_event_with_data_of_its_own_is_sent_again_with_the_data_of_an_earlier_one(tmp_path: Path):
    page = build_page(VisitorRuns(Runs(tmp_path)))
    with_data = [each for each in page.fns.values() if each.collects_event_data]
    assert len(with_data) > 5
    assert [each.name for each in with_data if each.trigger_mode == "always_last"] == []
