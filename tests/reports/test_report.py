"""A whole report: its parts, its files, and that any text in it stays text."""

import re
import shutil
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from core.evaluation.accuracy import evaluate
from core.reports.report import REPORT_FILES, Report, write_report
from core.reports.report.rendering import as_html, plain, table
from core.runs import RunFolder
from core.server import Runs
from core.tasks import fixed_pairs
from core.tasks.ingest import HeldOutFile, PairFiles, prepare_preset
from tests.support.run_helpers import wait_for
from tests.support.trainings import train_run


class Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text += data


nasty = st.text(alphabet=st.sampled_from("ab1 .-+=>#|<&;!`*_[]()\\~\n\"':/\N{NO-BREAK SPACE}"), max_size=25)


@given(text=nasty)
@example("~~~ x")
@example("``` x")
@example("1. x")
@example("    x")
def test_any_text_stays_text_in_a_paragraph_a_list_and_a_table(text):
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    flat = re.sub(r"[ \n]+", " ", text.strip())
    for markdown, tags in (
        (plain(text), {"p"}),
        (f"- {plain(text)}", {"ul", "li"}),
        (table([["a"], [text]]), {"table", "thead", "tr", "th", "tbody", "td"}),
    ):
        seen = Text()
        seen.feed(parser.render(markdown))
        assert set(seen.tags) <= tags
        assert flat.strip() in seen.text


def test_a_page_holds_its_pictures_and_no_strangers_html():
    markdown = f"# {plain('<script>alert(1)</script>')}\n\n![chart](a.png)\n"
    page = as_html(markdown, title="</title><script>", figures={"a.png": b"\x89PNG"})
    assert "<script" not in page
    assert 'src="data:image/png;base64,iVBORw=="' in page
    assert "alert(1)" in page


# --- the whole ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["tiny", "tiny_gru"])
def written(request, tmp_path_factory) -> tuple[Report, RunFolder]:
    """The report of a run that made all its 8 steps, and so learned nothing."""
    preset = request.getfixturevalue(request.param).with_changes({"training.training_sequences": 40})
    root = tmp_path_factory.mktemp("checkpoints")
    folder = RunFolder.create(root, preset, name="short")
    train_run(folder)
    return write_report(Runs(root)["short"], sequences=50), folder


@pytest.fixture
def reported(written, root) -> tuple[Report, RunFolder]:
    """The same, in a folder that the test may change."""
    report, folder = written
    shutil.copytree(folder.path.parent, root)
    return report, RunFolder(root, "short")


def test_a_report_has_all_its_parts_as_markdown_and_as_one_page(reported):
    report, folder = reported
    assert sorted(report.figures) == ["accuracy.png", "accuracy_by_length.png", "attention_heatmap.png", "loss.png"]
    assert all(picture.startswith(b"\x89PNG") for picture in report.figures.values())
    assert report.summary.startswith(("This model does not solve its task", "This model mostly fails"))
    for part in (
        "## What stands out",
        "## The run",
        "| seed | 0 |",
        "| parameters | ",
        "| training sequences seen | 64 (1.6 epochs of 40) |",
        "| preset | tiny |",
        "| task | reverse 2–5 digits |",
        "| how training inputs are drawn | ",
        "## Exact match by length",
        "inputs | exact match | tokens correct |",
        "| 10 | 100 | ",
        "## Outcomes",
        "### Does the attention help?",
    ):
        assert part in report.markdown, part
    assert (
        len(re.findall(r"- \*\*(?:no )?match\*\*\\\n  Input: .+\\\n  Output: .+\\\n  Reference: .+", report.markdown))
        >= 10
    )
    assert report.html.count("data:image/png") == 4
    for outside in ("http", 'src="loss', "<script"):
        assert outside not in report.html
    report.save(folder.report)
    assert sorted(path.name for path in folder.report.iterdir()) == sorted(REPORT_FILES)
    assert (folder.report / "report.md").read_text() == report.markdown


def test_a_report_tells_the_loss_of_its_own_weights_on_the_training_set(reported):
    report, folder = reported
    loaded = Runs(folder.path.parent)["short"].trained()
    loss = evaluate(loaded.model, fixed_pairs(loaded.task, 40, split="train")).loss
    assert f"| loss of the same weights on the training set | {loss:.4f} |" in report.markdown


@pytest.mark.parametrize("written", ["tiny"], indirect=True)
def test_a_run_whose_figures_are_lost_is_reported_on_without_them(reported):
    _, folder = reported
    folder.metrics.unlink()
    report = write_report(Runs(folder.path.parent)["short"], sequences=50)
    assert "The run's training metrics are missing." in report.markdown
    assert "loss.png" not in report.figures


def test_a_run_in_training_is_reported_on_as_it_is_then(runs, tiny):
    name = runs.start(tiny.with_changes({"training.steps": 100_000, "training.evaluate_every": 50}))
    wait_for(lambda: runs[name].progress.info.step > 20)
    with runs.inference_priority.inference():  # training goes on, but slowly
        report = write_report(runs[name], sequences=20)
    assert report.metrics["weights"] == "latest"
    seen = int(re.search(r"training sequences seen \| ([\d,]+) ", report.markdown)[1].replace(",", ""))
    assert seen >= 20 * tiny.training.batch_size
    assert re.search(r"Training is not finished: [\d,]+ of 100,000 steps are done\.\n", report.markdown)


@pytest.mark.parametrize("written", ["tiny"], indirect=True)
def test_reports_of_the_same_weights_are_the_same(reported, root):
    report, _ = reported
    assert write_report(Runs(root)["short"], sequences=50).markdown == report.markdown


def test_a_report_has_the_test_sets_that_have_names(tmp_path):
    content = "".join(f"{number}\t{str(number)[::-1]}\n" for number in range(100, 160))
    (tmp_path / "pairs.tsv").write_text(content)
    files = []
    for name, first in (("long", 5_000), ("short", 10)):
        path = tmp_path / f"{name}.tsv"
        path.write_text("".join(f"{number}\t{str(number)[::-1]}\n" for number in range(first, first + 6)))
        files.append(HeldOutFile(path, set=name))
    pairs = tmp_path / "kept"
    held_out = PairFiles(tmp_path / "pairs.tsv", held_out=tuple(files))
    _, preset = prepare_preset(held_out, pairs, kinds=("character", "character"))
    short = {"training.steps": 2, "training.warmup_steps": 1, "training.evaluate_every": 2}
    folder = RunFolder.create(tmp_path / "runs", preset.with_changes(short), name="a", pairs=pairs)
    train_run(folder)
    report = write_report(Runs(tmp_path / "runs")["a"], sequences=20)
    assert "## Test sets" in report.markdown
    assert "| long | 6 |" in re.sub(r" +", " ", report.markdown)
    assert [group["name"] for group in report.metrics["breakdown"]["groups"]] == ["long", "short"]
