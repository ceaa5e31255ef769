"""Lessons: each has its text and its results, and what its text claims is in its own figures."""

import json

import pytest

from core.__main__ import main
from core.bug_names import BUG_FACTS
from core.errors import InputError
from core.lessons import LESSON_FOLDER, RESULTS_FILE, SECTIONS, lesson_names, load_lesson
from core.lessons.lesson import PRESET_FILE, TEXT_FILE
from core.vocab import PAD

MAX_BYTES = 60_000
MAX_SECONDS = 120


def of(name: str, side: str) -> dict:
    return load_lesson(name).results[side]


def figures(name: str) -> tuple[dict, dict]:
    return of(name, "right")["figures"], of(name, "broken")["figures"]


def maps(name: str, side: str, block: str) -> list:
    """The maps of a block's last layer, one a head."""
    return of(name, side)["attention"][block]["maps"][-1]


def loss_at(name: str, side: str, share: float) -> float:
    losses = of(name, side)["curve"]["loss"]
    return losses[int(share * len(losses))]


def above_diagonal(head: list) -> float:
    return sum(weight for row, line in enumerate(head) for weight in line[row + 1 :])


def test_every_bug_has_its_lesson():
    assert lesson_names() == list(BUG_FACTS)
    assert {each.name for each in LESSON_FOLDER.iterdir()} == set(BUG_FACTS)


@pytest.mark.parametrize("name", lesson_names())
def test_a_lesson_is_complete_and_small(name):
    lesson = load_lesson(name)
    assert tuple(lesson.text) == SECTIONS
    assert all(lesson.text.values())
    assert lesson.broken.bug == name
    assert lesson.right.bug is None
    assert lesson.right.changed_from(lesson.broken) == {"bug": (name, None)}
    assert (LESSON_FOLDER / name / RESULTS_FILE).stat().st_size < MAX_BYTES
    assert lesson.results["seconds"] < MAX_SECONDS
    assert sorted(each.name for each in (LESSON_FOLDER / name).iterdir()) == [TEXT_FILE, PRESET_FILE, RESULTS_FILE]


@pytest.mark.parametrize("name", lesson_names())
def test_the_results_are_of_the_pair_as_it_is_now(name):
    lesson = load_lesson(name)
    for side, preset in (("right", lesson.right), ("broken", lesson.broken)):
        assert lesson.results[side]["bug"] == preset.bug
        assert lesson.results[side]["figures"]["steps"] == preset.training.steps
        assert lesson.results[side]["evaluations"]["step"][1] == preset.training.evaluate_every


@pytest.mark.parametrize("name", lesson_names())
def test_the_doctor_named_the_bug_and_found_nothing_in_the_right_run(name):
    assert of(name, "broken")["doctor"]["bugs"] == [name]
    assert of(name, "right")["doctor"]["bugs"] == []
    assert {each["light"] for each in of(name, "right")["doctor"]["findings"]} == {"green"}


@pytest.mark.parametrize("name", lesson_names())
def test_the_right_run_solves_the_task(name):
    right, _ = figures(name)
    assert right["exact_match"] > 0.99
    assert right["exact_match_alone"] == right["exact_match"]
    assert right["answer"] == right["expected"]


@pytest.mark.parametrize("name", ["no-causal-mask", "targets-not-shifted", "softmax-over-queries"])
def test_a_leak_learns_sooner_predicts_all_and_writes_nothing_right(name):
    _, broken = figures(name)
    assert broken["token_accuracy"] == 1
    assert broken["exact_match"] == 0
    assert loss_at(name, "broken", 0.4) < loss_at(name, "right", 0.4) / 2


def test_without_a_mask_the_decoder_looks_ahead():
    assert all(above_diagonal(head) == 0 for head in maps("no-causal-mask", "right", "decoder"))
    assert all(above_diagonal(head) > 0.5 for head in maps("no-causal-mask", "broken", "decoder"))


def test_unshifted_targets_are_repeated():
    _, broken = figures("targets-not-shifted")
    written = broken["answer"].split()
    assert not broken["stopped"]
    assert len(set(written[-10:])) == 1


@pytest.mark.parametrize("name", ["pad-attended-to", "encoder-over-pad"])
def test_pad_hurts_inputs_by_themselves_only(name):
    _, broken = figures(name)
    assert broken["exact_match"] > 0.99
    assert broken["exact_match_alone"] < 0.5


def test_weight_is_on_pad_where_it_is_attended_to():
    def on_pad(name: str, side: str) -> float:
        block = of(name, side)["attention"]["cross"]
        places = [place for place, token in enumerate(block["columns"]) if token == PAD]
        assert places
        return sum(line[place] for head in block["maps"][-1] for line in head for place in places)

    assert on_pad("pad-attended-to", "right") == on_pad("encoder-over-pad", "broken") == 0
    assert on_pad("pad-attended-to", "broken") > 0.5


def test_pad_in_the_loss_makes_it_lower_and_learning_later():
    right, broken = figures("pad-in-the-loss")
    assert broken["train_loss"] < 0.85 * broken["validation_loss"]
    assert right["train_loss"] > broken["train_loss"]
    assert broken["step_of_90_percent"] > right["step_of_90_percent"]
    assert broken["exact_match"] > 0.99


def test_without_positions_the_right_digits_come_in_a_wrong_order():
    right, broken = figures("no-positions")
    assert broken["train_loss"] > 100 * right["train_loss"]
    assert broken["token_accuracy"] > 0.5
    assert broken["exact_match"] < 0.1
    assert sorted(broken["answer"]) == sorted(broken["expected"])
    assert broken["answer"] != broken["expected"]


@pytest.mark.parametrize("name", ["no-score-scaling", "no-residual", "learning-rate-too-high"])
def test_some_bugs_keep_a_model_from_learning(name):
    right, broken = figures(name)
    assert broken["exact_match"] < 0.1
    assert broken["train_loss"] > 100 * right["train_loss"]


def test_too_high_a_learning_rate_throws_the_loss_far_up():
    losses, first = of("learning-rate-too-high", "broken")["curve"]["loss"], 3.0  # about ln(13), as all begin
    assert max(losses) > 2 * first
    assert losses[-1] > 2


def test_softmax_over_queries_sums_columns_and_looks_at_nothing_ahead():
    for head in maps("softmax-over-queries", "broken", "decoder"):
        assert above_diagonal(head) == 0
        assert max(abs(sum(line) - 1) for line in head) > 0.2
    for head in maps("softmax-over-queries", "right", "decoder"):
        assert max(abs(sum(line) - 1) for line in head) < 0.03


def test_without_eos_an_answer_begins_right_and_goes_on():
    _, broken = figures("no-eos-in-targets")
    assert broken["train_loss"] < 0.02
    assert broken["token_accuracy"] > 0.99
    assert broken["exact_match"] == 0
    assert not broken["stopped"]
    assert broken["answer"].startswith(broken["expected"])


def test_heads_that_begin_alike_end_alike_and_learn_later():
    right, broken = figures("heads-alike")
    for block in ("encoder", "decoder", "cross"):
        one, other = maps("heads-alike", "broken", block)
        assert one == other
        one, other = maps("heads-alike", "right", block)
        assert one != other
    assert broken["step_of_90_percent"] > right["step_of_90_percent"]


def test_a_false_picture_has_the_same_figures_and_no_anti_diagonal():
    name = "self-plotted-as-cross"
    assert figures(name)[0] == figures(name)[1]
    assert of(name, "right")["curve"] == of(name, "broken")["curve"]
    assert all(above_diagonal(head) == 0 for head in maps(name, "broken", "cross"))
    last_symbol = 3  # of the source, behind BOS
    assert max(head[0][last_symbol] for head in maps(name, "right", "cross")) > 0.5


def test_unscaled_embeddings_do_no_harm_here():
    right, broken = figures("no-embedding-scaling")
    assert broken["exact_match"] > 0.99
    assert broken["step_of_90_percent"] < right["step_of_90_percent"]


def test_a_lesson_that_is_not_there_is_refused(capsys):
    with pytest.raises(InputError, match="not one of"):
        load_lesson("../../etc")
    assert main(["lesson", "nothing"]) == 2
    assert "no-causal-mask" in capsys.readouterr().err


def test_the_command_lists_the_lessons(capsys):
    assert main(["lesson"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(BUG_FACTS)


def test_the_command_trains_a_pair_and_writes_what_ships(tmp_path, monkeypatch, capsys, tiny):
    from core.lessons import lesson as lessons

    folder = tmp_path / "lessons"
    place = folder / "no-residual"
    place.mkdir(parents=True)
    (place / TEXT_FILE).write_text("# x\n\n## Predict\n\nWhat?\n")
    (place / PRESET_FILE).write_text(
        "description: d\nbug: no-residual\ntask: {family: digits, min_length: 2, max_length: 5}\n"
        "model: {family: transformer, d_model: 8, num_heads: 2, d_ff: 8, max_seq_len: 12}\n"
        "training: {steps: 4, warmup_steps: 1, batch_size: 4, evaluate_every: 2, validation_sequences: 8}\n"
    )
    monkeypatch.setattr("core.commands.lesson.load_lesson", lambda name: lessons.load_lesson(name, folder=folder))
    assert main(["lesson", "no-residual", "--out", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told == json.loads((place / RESULTS_FILE).read_text())
    assert told["broken"]["evaluations"]["step"] == [0, 2, 4]
    assert told["broken"]["doctor"]["bugs"] == ["no-residual"]
