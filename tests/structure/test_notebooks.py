"""The notebooks run as they are in a fresh clone, and what their text claims is true of what they compute."""

import contextlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "docs/notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LOOK, OWN_TASK, DEBUG, FIGURES = (path.name for path in NOTEBOOKS)
FEW_STEPS = {"training.steps": 10, "training.evaluate_every": 5, "training.validation_sequences": 16}
FIRST_LINES = """import sys

sys.path.insert(0, "../..")  # the repository's root, seen from docs/notebooks: nothing has to be installed
"""
PROGRAM = """
import json, sys
cells, parameters, expressions = json.load(sys.stdin)
namespace = {"__name__": "__main__"}
for number, (source, is_parameters) in enumerate(cells, start=1):
    exec(compile(source, f"code cell {number}", "exec"), namespace)
    if is_parameters:
        namespace |= parameters
print()
print(json.dumps({name: eval(expression, namespace) for name, expression in expressions.items()}))
"""


def read(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def code_cells(name: str) -> list[tuple[str, bool]]:
    """The source of each code cell, and whether it sets the parameters that a test may change."""
    cells = [cell for cell in read(name)["cells"] if cell["cell_type"] == "code"]
    return [("".join(cell["source"]), "parameters" in cell["metadata"].get("tags", [])) for cell in cells]


@pytest.fixture
def clone(tmp_path) -> Path:
    """The notebooks' folder in a copy of the repository, where they find the package and leave their files."""
    (tmp_path / "core").symlink_to(REPOSITORY / "core")
    folder = tmp_path / "docs/notebooks"
    folder.mkdir(parents=True)
    return folder


def execute(
    name: str, folder: Path, expressions: Mapping[str, str], parameters: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Execute all code cells as Jupyter does, in a process of their own that starts in the notebook's folder.

    Args:
        expressions: what to compute after the last cell, by name.
        parameters: values that replace those of the cell with the tag ``parameters``, as papermill does.

    Returns:
        The values of the expressions.
    """
    given = json.dumps([code_cells(name), parameters or {}, expressions])
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, input=given, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def execute_here(clone, monkeypatch, own_plugins) -> Callable[..., dict[str, Any]]:
    """Return a function like ``execute`` that needs no second process; the notebooks as they are get their own."""
    monkeypatch.chdir(clone)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr("torch.backends.mha._is_fastpath_enabled", True)  # a notebook turns it off

    def run(name: str, expressions: Mapping[str, str], parameters: Mapping[str, Any]) -> dict[str, Any]:
        given = json.dumps([code_cells(name), parameters, expressions])
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(PROGRAM, {})  # noqa: S102 - of our own notebooks
        return json.loads(output.getvalue().splitlines()[-1])

    return run


# --- files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_valid_and_has_no_outputs(path):
    book = read(path.name)
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert book["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in book["cells"]]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", each) for each in ids)
    for cell in book["cells"]:
        assert cell["cell_type"] in ("markdown", "code")
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_short_and_begins_by_finding_the_package(path):
    cells = code_cells(path.name)
    assert cells[0][0].startswith(FIRST_LINES)
    assert sum(is_parameters for _, is_parameters in cells) == 1
    words = sum(len("".join(cell["source"]).split()) for cell in read(path.name)["cells"])
    assert words < 1_300  # ten minutes


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    text = "".join("".join(cell["source"]) for cell in read(path.name)["cells"] if cell["cell_type"] == "markdown")
    assert [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not (FOLDER / target).exists()] == []


def test_every_notebook_is_listed_with_the_docs():
    page = (REPOSITORY / "docs/python.md").read_text(encoding="utf-8")
    assert re.findall(r"\(notebooks/([^)]+)\)", page) == [path.name for path in NOTEBOOKS]


# --- in a few seconds each --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_looking_inside_runs_with_few_steps(clone):
    found = execute(
        LOOK,
        clone,
        {
            "steps": "history.index.tolist()",
            "sequences": "evaluation.sequences",
            "heads": "heads.index.tolist()",
            "maps": "{name: table.shape for name, table in maps.items()}",
            "ablated": "ablated",
            "titles": "[ax.get_title() for ax in axes.flat]",
            "runs": "lab.runs('runs')",
        },
        {"changes": FEW_STEPS},
    )
    assert found["steps"] == list(range(11))
    assert found["sequences"] == 1_000
    names = [f"cross.{layer}.{head}" for layer in (1, 2) for head in (1, 2, 3, 4)]
    assert (found["titles"], found["heads"]) == (names, names)
    assert found["maps"]["cross.1.1"][1] == 6
    assert found["ablated"].keys() == {"encoder", "decoder", "cross.1", "cross.2", *names}
    assert found["runs"] == ["digits-reversal-fast-1"]


OF_TASK = {
    "drawn": "[[task.tgt_vocab.decode([i for i in row if i > 2]) for row in side.tolist()] for side in "
    "lab.load(run.name, 'runs').task.sample(20, split='train', generator=torch.Generator()).__dict__.values()]",
    "aligned": "task.gold_alignment(list('abcdefg'))",
    "family": "run.preset.task.family",
    "maps": "{text: (list(table.columns[1:-1]), len(table.columns)) for text, table in maps.items()}",
}


def check_task(found: dict[str, Any]) -> None:
    for source, target in zip(*found["drawn"], strict=True):
        half = (len(source) + 1) // 2
        assert target[::2] + target[1::2] == source[:half] + source[half:]
    assert found["aligned"] == [[0], [4], [1], [5], [2], [6], [3]]
    assert found["family"] == "riffle"
    assert found["maps"]["a b c d e f g"] == [list("abcdefg"), 9]


def test_a_task_of_ones_own_is_registered_trained_and_decoded(execute_here):
    found = execute_here(OWN_TASK, OF_TASK | {"steps": "trained.step"}, {"changes": FEW_STEPS})
    check_task(found)
    assert found["steps"] <= 10


def test_the_task_of_ones_own_has_twenty_lines():
    (cell,) = [source for source, _ in code_cells(OWN_TASK) if "@plugins.task" in source]
    assert len([line for line in cell.splitlines() if line]) <= 20


def test_the_doctor_names_the_bug_of_the_notebook_and_nothing_once_it_is_fixed(execute_here):
    found = execute_here(
        DEBUG,
        {
            "bugs": "examination.bugs",
            "fixed": "checked.bugs",
            "failed": "[finding.check for finding in checked.findings if finding.light == 'red']",
            "not checked": "[finding.check for finding in examination.unchecked]",
            "updates": "len(losses)",
        },
        {"steps": 4},
    )
    assert found["bugs"] == ["no-causal-mask"]
    assert "embedding scaling" in found["not checked"]  # skipped is not passed
    assert (found["fixed"], found["failed"], found["updates"]) == ([], [], 4)


CHECK_FILES = {
    "files": "sorted(path.name for path in FIGURES.iterdir())",
    "Type 3": "[path.name for path in FIGURES.glob('*.pdf') if b'/Type3' in path.read_bytes()]",
    "text": "[path.name for path in FIGURES.glob('*.svg') if '<text' in path.read_text(encoding='utf-8')]",
    "runs": "pd.read_csv(FIGURES / 'curves.csv').groupby('seed').size().to_dict()",
    "maps": "pd.read_csv(FIGURES / 'attention.csv').groupby('name')['value'].sum().to_dict()",
    "heads": "pd.read_csv(FIGURES / 'heads.csv', index_col='name').index.tolist() == list(trained.heads)",
    "width": "figure.get_size_inches().tolist()",
    "same": "save(figure, 'again') or (FIGURES / 'again.pdf').read_bytes() == (FIGURES / 'heads.pdf').read_bytes()",
}


def check_figures(found: dict[str, Any], seeds: int, steps: int) -> None:
    drawn = [f"{name}.{end}" for name in ("attention", "curves", "heads") for end in ("csv", "pdf", "svg")]
    assert found["files"] == sorted(drawn)
    assert found["Type 3"] == []
    assert sorted(found["text"]) == ["attention.svg", "curves.svg", "heads.svg"]
    assert found["runs"] == {str(seed): steps + 1 for seed in range(seeds)}
    assert found["maps"] == {f"cross.{n}.{m}": pytest.approx(7, abs=1e-4) for n in (1, 2) for m in (1, 2, 3, 4)}
    assert found["heads"] is True
    assert found["same"] is True
    assert found["width"][0] == 5.5 / 2


@pytest.mark.slow
def test_the_figures_are_vector_graphics_with_their_numbers(clone):
    check_figures(execute(FIGURES, clone, CHECK_FILES, {"seeds": [0, 1], "changes": FEW_STEPS}), 2, 10)


# --- as they are ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_said_about_the_trained_model_is_true(clone):
    found = execute(
        LOOK,
        clone,
        {
            "exact": "evaluation.exact_match",
            "best": "heads['mass_produced'].max()",
            "uniform": "heads['uniform_produced'].max()",
            "ablated": "ablated",
            "learned": "[int((history[name] >= 0.9).idxmax()) for name in ('token_accuracy', 'exact_match')]",
            "output": "answer.output",
        },
    )
    assert found["exact"] > 0.98
    assert found["best"] > 0.5 > found["uniform"]  # there is an anti-diagonal
    assert min(found["ablated"]["cross.1"], found["ablated"]["cross.2"]) < 0.1
    tokens, whole = found["learned"]
    assert 0 < tokens < whole  # exact match rises late
    assert found["output"] == ["9", "2", "8", "4"]


@pytest.mark.slow
def test_the_task_of_ones_own_is_learned_with_heads_that_attend_to_the_correct_symbol(clone):
    longer = "lab.load(run.name, 'runs').decode('a b c d e f g h i j a')"
    further = {
        "exact": "evaluation.exact_match",
        "best": "heads['mass_produced'].max()",
        "correct": "trained.decode('a b c d e f g h i j').correct",
        "longer": f"({longer}.correct, {longer}.note[:35])",
    }
    found = execute(OWN_TASK, clone, OF_TASK | further)
    check_task(found)
    assert found["exact"] > 0.95
    assert found["best"] > 0.5
    assert found["correct"] is True
    assert found["longer"] == [False, "longer than any training input (3–1"]


@pytest.mark.slow
def test_the_bug_hides_behind_a_low_loss_and_mending_it_gives_correct_answers(clone):
    names = ("losses", "fixed_losses", "before", "after")
    found = execute(DEBUG, clone, {name: name for name in names} | {"bugs": "examination.bugs"})
    assert found["losses"][-1] < 0.05
    assert sum(found["losses"]) < sum(found["fixed_losses"])  # the loss falls more slowly
    assert found["before"] < 0.05
    assert found["after"] > 0.9
    assert found["bugs"] == ["no-causal-mask"]


@pytest.mark.slow
def test_the_figures_show_runs_that_learned_the_task(clone):
    last = "measured.groupby('seed')['exact_match'].last().min()"
    best = "cross['mass_produced'].max() / cross['uniform_produced'].max()"
    found = execute(FIGURES, clone, CHECK_FILES | {"last": last, "best": best})
    check_figures(found, 3, 120)
    assert found["last"] > 0.95
    assert found["best"] > 3
