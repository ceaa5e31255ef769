"""The metrics that the page fetches: thinned for its charts, small for any run, and merged by its script."""

import json
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from core.config import Preset
from core.runs import RunFolder, RunInfo
from core.server import Runs
from core.server.access import VisitorRuns
from core.training.history import EVALUATION_COLUMNS, OPTIONAL_COLUMNS, POINT_COLUMNS
from tests.ui.server_functions import call
from ui.api import Api
from ui.components.run_bar import run_bar
from ui.run_info import progress_since

HISTORY_JS = Path(__file__).parents[2] / "ui/web/history.js"
MAX_BYTES = 150_000


@pytest.fixture
def write_run(root: Path, tiny: Preset) -> Callable[..., Runs]:
    """Write a stopped run "long" with metrics of given steps, evaluated every 20 steps; returns the runs."""

    def write(steps: range, num_steps: int) -> Runs:
        folder = RunFolder.create(root, tiny.with_changes({"training.steps": 1_000_000}), name="long")
        folder.write_info(RunInfo(status="stopped", step=num_steps))
        evaluated = range(0, num_steps + 1, 20)
        rows = [dict(zip(POINT_COLUMNS, (step, *metrics_of(step)), strict=True)) for step in steps]
        rows += [dict(zip(EVALUATION_COLUMNS, (step, *metrics_of(step)), strict=True)) for step in evaluated]
        folder.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return Runs(root)

    return write


def metrics_of(step: int) -> tuple[float, float, float]:
    """Three numbers of many digits, irregular but the same ones whenever the step is trained."""
    return step * 0.6180339887 % 1, step * 0.4142135623 % 1 / 1_000, step * 0.7320508075 % 1


def poll(runs: Any, **held: int) -> dict[str, Any]:
    return progress_since(runs["long"], **({"since_step": -1, "since_evaluation": -1} | held))


def test_a_response_about_a_long_run_is_small(write_run):
    num_steps = 819_180  # just before the groups widen
    runs = write_run(range(20, num_steps + 1, 20), num_steps)
    whole = poll(runs)
    assert 900 < len(whole["points"]["columns"]["step"]) <= 1_601
    assert 500 < len(whole["evaluations"]["columns"]["step"]) <= 1_001
    assert len(json.dumps(whole)) <= MAX_BYTES
    held = {"step_width": whole["points"]["width"], "evaluation_width": whole["evaluations"]["width"]}
    later = poll(runs, since_step=num_steps, since_evaluation=num_steps, **held)
    assert len(json.dumps(later)) < 2_000
    assert later["points"]["columns"]["step"][-1] == num_steps
    assert later["points"]["from"] == num_steps // held["step_width"] * held["step_width"]


def test_a_short_run_is_shown_whole(write_run):
    runs = write_run(range(1, 1_600), 1_599)
    whole = poll(runs)
    assert whole["points"]["columns"]["step"] == list(range(1, 1_600))
    assert whole["evaluations"]["columns"]["step"] == list(range(0, 1_600, 20))
    assert set(whole["points"]["columns"]) == {"step", "loss", "learning_rate", "gradient_norm"}
    assert set(whole["evaluations"]["columns"]) == {"step", "loss", "token_accuracy", "exact_match"}
    assert "restart" not in whole


def test_the_api_returns_the_recorded_rows_after_a_step(write_run):
    runs = write_run(range(1, 5_001), 5_000)
    api = Api(VisitorRuns(runs))
    recorded = api.progress("long", 1_000)
    assert recorded["points"]["step"] == list(range(1_001, 5_001))
    assert recorded["evaluations"]["step"] == list(range(1_020, 5_001, 20))
    assert set(recorded["evaluations"]) == {"step", "loss", "token_accuracy", "exact_match"}
    assert not recorded["restart"]
    assert api.progress("long", 5_001)["restart"]


@pytest.mark.parametrize("field", ["step_width", "evaluation_width"])
def test_a_width_is_a_count_of_steps(write_run, field):
    bar = run_bar(VisitorRuns(write_run(range(1, 10), 9)))
    for width in (-1, 1.5, "1", None):
        assert "error" in call(bar, "feed", {"run": "long", field: width})
    assert call(bar, "feed", {"run": "long", "since_step": 9, field: 10**30})["points"]["from"] == 0


# --- the page's script -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def node() -> str:
    """The path of Node.js."""
    playwright = find_spec("playwright")
    bundled = Path(playwright.origin).parent / "driver/node" if playwright and playwright.origin else None
    path = shutil.which("node") or (str(bundled) if bundled and bundled.exists() else None)
    if path is None:
        pytest.skip("no Node.js")
    return path


def in_node(node: str, script: str) -> Any:
    """Run statements after the functions of ``history.js``; returns the value that they ``show``."""
    source = f"{HISTORY_JS.read_text()}\nconst show = (value) => console.log(JSON.stringify(value));\n{script}"
    command = [node, "--input-type=module", "-"]
    return json.loads(subprocess.run(command, input=source, capture_output=True, check=True, text=True).stdout)


def test_the_script_replaces_rows_and_tells_whether_any_changed(node):
    script = """
    const columns = { step: [], loss: [] };
    const rows = (from, step, loss) => ({ width: 4, from, columns: { step, loss } });
    const changed = [
      mergeRows(columns, rows(0, [1, 3, 5], [1, 2, 3])),
      mergeRows(columns, rows(4, [5], [3])),
      mergeRows(columns, rows(4, [5, 6], [3, 4])),
      mergeRows(columns, rows(4, [6, 7], [4, 5])),
      mergeRows(columns, rows(4, [6, 7], [4, 6])),
      mergeRows(columns, { error: "no such run" }),
      mergeRows(columns, undefined),
    ];
    show([changed, structuredClone(columns), mergeRows(columns, rows(0, [], [])), columns.step.length]);
    """
    changed, columns, emptied, length = in_node(node, script)
    assert changed == [True, False, True, True, True, False, False]
    assert columns == {"step": [1, 3, 6, 7], "loss": [1, 2, 4, 6]}
    assert (emptied, length) == (True, 0)


def test_the_script_asks_for_what_it_lacks_and_ends_with_what_a_new_page_gets(node, write_run, root):
    """Responses at several moments of a run, each to the request that the script makes then."""
    responses: list[dict[str, Any]] = []
    for last in (5, 30, 300, 300, 700, 3_000, 3_100, 2_900):  # a doubled response, a run rewound to step 2,900
        shutil.rmtree(root, ignore_errors=True)
        runs = write_run(range(1, last + 1), last)
        script = "const held = emptyHistory();\n"
        script += "".join(f"mergeHistory(held, {json.dumps(each)});\n" for each in responses)
        responses.append(poll(runs, **in_node(node, f"{script} show(heldRows(held));")))
        held = in_node(node, f"{script} mergeHistory(held, {json.dumps(responses[-1])}); show(held);")
        new = poll(runs)
        evaluations = new["evaluations"]["columns"]
        assert held == {
            "widths": {name: new[name]["width"] for name in ("points", "evaluations")},
            "points": new["points"]["columns"],
            "evaluations": evaluations | {name: [None] * len(evaluations["step"]) for name in OPTIONAL_COLUMNS},
        }
    assert [each["points"]["from"] for each in responses][2:5] == [30, 300, 0]
