"""A report says of a model what is true of it: of a good one, of an untrained one, and of broken ones."""

import re
from html.parser import HTMLParser

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from core.config import load_preset
from core.history import History
from core.models import build_model
from core.recording import train_recorded
from core.report import Report, measure, write_report
from core.report.attention_answers import answers
from core.report.measuring import targets_of
from core.report.numerals import percent
from core.report.rendering import as_html, plain, table
from core.report.wording import Training, findings, verdict
from core.run_folder import RunFolder
from core.runs import Runs
from core.tasks import Batch, build_task, fixed_pairs
from core.training import new_state
from core.vocab import EOS_ID, PAD_ID

FINISHED = Training(step=8, steps=8, train_loss=0.01, guessing_loss=2.565, is_fixed_set=False)


@pytest.fixture(scope="module")
def task(tiny):
    return build_task(tiny.task)


@pytest.fixture(scope="module")
def pairs(task) -> Batch:
    return fixed_pairs(task, 60, split="test")


def reversing(src: torch.Tensor) -> torch.Tensor:
    """The right answers, with EOS."""
    rows = []
    for row in src.tolist():
        symbols = row[1 : row.index(EOS_ID)]
        rows.append([*symbols[::-1], EOS_ID] + [PAD_ID] * (src.shape[1] - len(symbols)))
    return torch.tensor(rows)


def said(model, task, pairs, training=FINISHED) -> tuple[str, str]:
    measured = measure(model, task, pairs)
    return verdict(measured), " ".join(findings(measured, training))


# --- verdicts and findings ---------------------------------------------------------------------------------------


def test_of_a_perfect_model_there_is_nothing_to_say_but_that(scripted, task, pairs):
    measured = measure(scripted(reversing), task, pairs)
    assert measured.exact_alone == measured.evaluation.exact_match == measured.stopped == 1
    assert said(scripted(reversing), task, pairs) == (
        "This model does its task: 60 of 60 held-out inputs (100\N{NO-BREAK SPACE}%) are answered exactly.",
        "",
    )
    assert answers(measured) == []  # a scripted model has no attention
    assert measured.sequences.input.tolist() == [list(reversed(row)) for row in measured.sequences.reference]
    assert (measured.sequences.eos_probability > 0.99).all()


def test_an_untrained_model_is_called_one(tiny, task, pairs):
    model = build_model(tiny.model, task, torch.Generator().manual_seed(0))
    opening, found = said(model, task, pairs, Training(0, 8, None, 2.565, is_fixed_set=False))
    assert opening.startswith("This model does not do its task: 0 of 60")
    assert "Its training is not finished: 0 of 8 steps are made." in found
    assert "It has learned next to nothing: its loss is" in found
    assert "guessing all tokens alike costs 2.56" in found or "costs 2.57" in found


def test_a_model_that_never_stops_is_explained_by_what_its_training_shows(scripted, task, pairs):
    def endless(src):
        right = reversing(src)
        return right.masked_fill((right == EOS_ID) | (right == PAD_ID), 7)

    opening, found = said(scripted(endless), task, pairs)
    assert opening.startswith("This model does not do its task")
    assert "No answer ends." in found
    assert "Its training data does show it: 100\N{NO-BREAK SPACE}% of the sampled targets end with EOS" in found

    as_told = build_task(load_preset("numbers-reversal-as-told").task)
    numbers = fixed_pairs(as_told, 20, split="test")
    model = scripted(lambda src: torch.full_like(src, 7))
    model.decode = _twenty_tokens(model)
    opening, found = said(model, as_told, numbers)
    assert "of 1,000 targets sampled from it, none ends with EOS. It was never shown when to stop" in found
    assert "Everything it was trained on has 10 symbols" in found


def _twenty_tokens(model):
    """The scripted model over a vocabulary of 20 instead of 13."""
    decode = model.decode

    def wider(*arguments, **named):
        step = decode(*arguments, **named)
        return type(step)(torch.nn.functional.pad(step.logits, (0, 7)), step.cache)

    return wider


def test_a_model_that_reads_padding_is_found_out(scripted, task, pairs):
    width = pairs.src.shape[1]

    def spoilt(src):  # right only in batches as wide as those of training
        return reversing(src) if src.shape[1] == width else torch.full_like(src, 7)

    shorter = pairs[(pairs.src != PAD_ID).sum(dim=1) < width]
    opening, found = said(scripted(spoilt), task, shorter)
    assert opening.startswith("This model does not do its task")
    assert "What it writes depends on PAD: in a padded batch 100\N{NO-BREAK SPACE}%" in found
    assert "without padding behind them 0\N{NO-BREAK SPACE}%" in found


def test_a_weakness_for_long_inputs_is_named_with_both_ends(scripted, task, pairs):
    def forgetful(src):
        return reversing(src) if src.shape[1] < 7 else torch.full_like(src, EOS_ID)

    measured = measure(scripted(forgetful), task, pairs)
    found = " ".join(findings(measured, FINISHED))
    low, high = (int(end) for end in (measured.sequences.length.min(), measured.sequences.length.max()))
    assert re.search(rf"inputs with {low} symbols 100.% .* of those with {high} 0.%", found)
    assert 0 < measured.exact_alone < 1
    assert set(measured.sequences.kind) == {"exact", "stopped early"}


def test_a_fixed_set_that_is_known_by_heart_is_named(scripted, task, pairs):
    by_heart = Training(8, 8, train_loss=0.001, guessing_loss=2.565, is_fixed_set=True)
    measured = measure(scripted(lambda src: torch.full_like(src, 7)), task, pairs)
    assert "It knows its training sentences better than the task" in " ".join(findings(measured, by_heart))
    assert "training sentences" not in " ".join(findings(measured, FINISHED))


def test_an_empty_test_set_is_refused(scripted, task, pairs):
    with pytest.raises(ValueError, match="no sequences to evaluate on"):
        measure(scripted(reversing), task, pairs[:0])


def test_decoding_by_itself_is_what_one_by_one_decoding_gives(tiny_gru, task):
    from core.decoding import decode

    broken = tiny_gru.with_changes({"model.mask_padding": False})
    model = build_model(broken.model, task, torch.Generator().manual_seed(3)).eval()
    pairs = fixed_pairs(task, 30, split="test")
    measured = measure(model, task, pairs)
    for row, output in enumerate(measured.sequences.output):
        src = pairs.src[row][pairs.src[row] != PAD_ID][None]
        tokens = decode(model, src, max_steps=model.max_seq_len).tokens[0].tolist()
        end = tokens.index(EOS_ID) if EOS_ID in tokens else len(tokens)
        assert task.tgt_vocab.decode(tokens[:end]) == output


def test_training_targets_are_those_the_preset_asks_for():
    told = targets_of(build_task(load_preset("numbers-reversal-as-told").task))
    assert (told.with_eos, told.lengths) == (0.0, (10,))
    good = targets_of(build_task(load_preset("words-reversal-gru").task))
    assert (good.with_eos, good.lengths) == (1.0, tuple(range(3, 11)))


# --- attention ---------------------------------------------------------------------------------------------------


def test_the_four_questions_are_answered_from_the_steps(tiny, task, pairs):
    model = build_model(tiny.model, task, torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.output.bias[EOS_ID] = -100  # else it might stop before there is anything to see
    measured = measure(model, task, pairs)
    answered = answers(measured)
    assert [answer.question for answer in answered] == [
        "What patterns does the attention show?",
        "Does it align the answer with the input?",
        "Does the attention help?",
        "What happens at the beginning and at the end?",
    ]
    assert "follows the task" in answered[0].sentences[0]
    assert answered[0].sentences[0].startswith("None")  # it is untrained
    best = max((score for score in measured.head_scores()), key=lambda score: score.share)
    assert percent(best.share) in answered[0].sentences[1]
    aligned = measured.steps[(measured.steps["head"] == best.head) & (measured.steps.true_column >= 0)]
    missed = int((aligned.looked_at != aligned.true_column).sum())
    assert f"{missed:,} steps are misaligned" in answered[1].sentences[1]
    assert [row[0] for row in answered[3].table] == ["step", "first", "between", "last symbol", "EOS"]
    assert "100\N{NO-BREAK SPACE}% of the answers never end" in answered[3].sentences[-1]


# --- numbers and text --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "written"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (1.0, "100 %"),
        (0.5, "50.0 %"),
        (0.137, "13.7 %"),
        (0.9996, "99.96 %"),
        (0.99996, "> 99.99 %"),
        (0.99949, "99.9 %"),
        (0.0001, "< 0.1 %"),
    ],
)
def test_percentages_are_never_rounded_to_all_or_none(share, written):
    assert percent(share) == written.replace(" ", "\N{NO-BREAK SPACE}")


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
    page = as_html(markdown, title="</title><script>", pictures={"a.png": b"\x89PNG"})
    assert "<script" not in page
    assert 'src="data:image/png;base64,iVBORw=="' in page
    assert "alert(1)" in page


# --- the whole ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=["tiny", "tiny_gru"])
def reported(request, root) -> tuple[Report, RunFolder]:
    """The report of a run that made all its 8 steps, and so learned nothing."""
    preset = request.getfixturevalue(request.param).with_changes({"training.training_sequences": 40})
    folder = RunFolder.create(root, preset, name="short")
    lock = folder.lock()
    train_recorded(folder, new_state(preset), History(8), should_stop=lambda: False, on_event=lambda event: None)
    lock.release()
    return write_report(Runs(root), "short", sequences=50), folder


def test_a_report_has_all_its_parts_as_markdown_and_as_one_page(reported):
    report, folder = reported
    assert sorted(report.pictures) == ["accuracy.png", "accuracy_by_length.png", "attention_heatmap.png", "loss.png"]
    assert all(picture.startswith(b"\x89PNG") for picture in report.pictures.values())
    assert report.summary.startswith(("This model does not do its task", "This model mostly fails"))
    for part in (
        "## What stands out",
        "## The run",
        "| seed | 0 |",
        "| parameters | ",
        "| training sequences seen | 64, 1.6 times a set of 40 |",
        "| preset | tiny |",
        "| task | reverse 2–5 digits |",
        "## Exact match by length",
        "## Failures by kind",
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
    assert sorted(path.name for path in folder.report.iterdir()) == sorted(
        [*report.pictures, "report.html", "report.md"]
    )
    assert (folder.report / "report.md").read_text() == report.markdown


def test_reports_of_the_same_weights_are_the_same(reported, root):
    report, _ = reported
    assert write_report(Runs(root), "short", sequences=50).markdown == report.markdown
