"""What a lesson's text says is what its own shipped figures show: each claim is quoted, and checked."""

from collections.abc import Callable

import pytest

from core.teaching.doctor import examine_preset
from core.teaching.lessons import lesson_names, load_lesson
from core.text.vocab import PAD
from tests.support.lesson_figures import (
    above_diagonal,
    common_tokens_loss,
    falls_sooner,
    finding,
    fraction_of_longest,
    has_converged,
    maps,
    on_pad,
    scores_only_when_teacher_forced,
)

CLAIMS: list[tuple[str, str, Callable[[dict, dict], None]]] = []


def claim(lesson: str, *quoted: str):
    """Say that a function of the right and the broken side checks what a lesson says in these words."""

    def kept(check: Callable[[dict, dict], None]) -> Callable[[dict, dict], None]:
        CLAIMS.extend((lesson, words, check) for words in quoted)
        return check

    return kept


# ---- leaks ----


@claim(
    "no-causal-mask",
    "The loss falls sooner and ends lower",
    "Teacher-forced accuracy is perfect",
    "not one answer is right",
    "Teacher-forced accuracy of 100 % beside a free-running exact match of 0 %",
)
@claim("targets-not-shifted", "The loss falls faster than that of the right run and accuracy is perfect")
@claim("softmax-over-queries", "It trains very well, sooner than the right run", "exact match is 0 %")
def _(right, broken):
    assert falls_sooner(right, broken)
    assert broken["figures"]["train_loss"] < right["figures"]["train_loss"]
    assert scores_only_when_teacher_forced(broken)


@claim("no-causal-mask", "has weight above its diagonal", "change a future target token, and earlier logits move")
def _(right, broken):
    assert all(above_diagonal(head) == 0 for head in maps(right, "decoder"))
    assert all(above_diagonal(head) > 0.5 for head in maps(broken, "decoder"))
    assert finding(broken, "causal leak")["figure"] > 1


@claim(
    "targets-not-shifted",
    "it repeats the token that it has just written",
    "no answer is right, and the one shown never ends",
    "The answers repeat one token",
)
def _(_, broken):
    assert len(set(broken["figures"]["answer"].split())) == 1
    assert not broken["figures"]["stopped"]


@claim("softmax-over-queries", "no weight is above the diagonal", "the map is empty above the diagonal")
def _(_, broken):
    assert all(above_diagonal(head) == 0 for head in maps(broken, "decoder"))
    assert finding(broken, "causal leak")["light"] == "red"


@claim("softmax-over-queries", "The rows of the maps do not sum to 1; the columns do")
def _(right, broken):
    columns = right["attention"]["encoder"]["columns"]
    for head in maps(broken, "encoder"):
        assert max(abs(sum(line) - 1) for line in head) > 0.2
        sums = [sum(line[at] for line in head) for at, token in enumerate(columns) if token != PAD]
        assert sums == pytest.approx([1] * len(sums), abs=0.04)
    for head in maps(right, "encoder"):
        assert [sum(line) for line in head] == pytest.approx([1] * len(head), abs=0.04)


# ---- PAD ----


@claim("pad-attended-to", "In padded batches all is well", "more than half of the answers are wrong")
@claim("encoder-over-pad", "Nobody, in batches", "more than half of the answers are wrong", "far below that in batches")
def _(_, broken):
    assert broken["figures"]["exact_match"] > 0.99
    assert broken["figures"]["exact_match_unpadded"] < 0.5


@claim("pad-attended-to", "As many are right as there are inputs of the greatest length")
@claim("encoder-over-pad", "As many are right as there are inputs of the greatest length")
def _(_, broken):
    assert broken["figures"]["exact_match_unpadded"] == pytest.approx(fraction_of_longest(broken["bug"]), abs=0.005)


@claim("pad-attended-to", "has weight in the columns of PAD", "see whether any logit moves")
def _(right, broken):
    assert on_pad(right) == 0
    assert on_pad(broken) > 0.5
    assert finding(broken, "PAD influence")["figure"] > 1


@claim("encoder-over-pad", "There is no weight on PAD in the map", "the encoder's last state must not move")
def _(_, broken):
    assert on_pad(broken) == 0
    assert finding(broken, "PAD influence")["bug"] == "encoder-over-pad"


@claim("pad-in-the-loss", "The training loss is lower than it should be", "well below the validation loss")
def _(right, broken):
    assert broken["figures"]["train_loss"] < 0.85 * broken["figures"]["validation_loss"]
    assert right["figures"]["train_loss"] > broken["figures"]["train_loss"]


@claim("pad-in-the-loss", "The model still learns, a little later here", "a part of every gradient is spent on PAD")
def _(right, broken):
    assert broken["figures"]["exact_match"] > 0.99
    assert broken["figures"]["step_of_90_percent"] > right["figures"]["step_of_90_percent"]
    assert finding(broken, "PAD in the loss")["figure"] > 0.01


# ---- what keeps a model from learning ----


@claim(
    "no-positions", "exchange two of its tokens and nothing changes", "if no logit moves, it does not know their places"
)
def _(right, broken):
    assert finding(broken, "order of the source")["figure"] < 1e-3
    assert finding(right, "order of the source")["figure"] > 1


@claim("no-positions", "it predicts two tokens of three", "hardly an answer is right")
def _(_, broken):
    assert broken["figures"]["token_accuracy"] == pytest.approx(2 / 3, abs=0.03)
    assert broken["figures"]["exact_match"] < 0.1


@claim("no-positions", "The loss all but stops falling, far above zero", "the right digits in a wrong order")
def _(right, broken):
    assert has_converged(broken["curve"]["loss"])
    assert broken["figures"]["train_loss"] > 100 * right["figures"]["train_loss"]
    assert sorted(broken["figures"]["answer"]) == sorted(broken["figures"]["expected"])
    assert broken["figures"]["answer"] != broken["figures"]["expected"]


@claim("no-score-scaling", "d_k is 64, so scores are 8 times as large")
def _(_, broken):
    model = load_lesson("no-score-scaling").broken.model
    assert (model.d_model, model.num_heads) == (64, 1)
    assert finding(broken, "scale of the scores")["figure"] == pytest.approx(1, abs=1e-3)


@claim("no-score-scaling", "each row of the maps has one key with nearly all of its weight")
def _(right, broken):
    for block in ("encoder", "decoder", "cross"):
        tops = [max(line) for head in maps(broken, block) for line in head]
        assert sum(top > 0.9 for top in tops) > 0.9 * len(tops)
    assert finding(broken, "entropy of attention")["figure"] < 0.1 < finding(right, "entropy of attention")["figure"]


@claim(
    "no-score-scaling",
    "The softmax is sharp from the first step",
    "Before any training the entropy of attention is low",
)
def _(*_):
    lesson = load_lesson("no-score-scaling")
    untrained = [{"doctor": examine_preset(preset).as_data()} for preset in (lesson.right, lesson.broken)]
    assert [finding(side, "entropy of attention")["light"] for side in untrained] == ["green", "amber"]


@claim("no-score-scaling", "it ends far behind the right run")
def _(right, broken):
    assert broken["figures"]["exact_match"] < 0.1
    assert broken["figures"]["train_loss"] > 100 * right["figures"]["train_loss"]


@claim(
    "no-residual", "fewer than four tokens of ten even when it is fed the right answer", "it gets not one answer right"
)
def _(_, broken):
    assert broken["figures"]["token_accuracy"] < 0.4
    assert broken["figures"]["exact_match"] == 0


@claim("no-residual", "over a hundred times the smallest's, where in the right run it is about five times")
def _(right, broken):
    assert finding(broken, "gradients")["figure"] > 100
    assert finding(right, "gradients")["figure"] == pytest.approx(5, abs=0.5)


@claim("no-residual", "The loss comes to rest far above zero", "the answer repeats one token without an end")
def _(_, broken):
    assert has_converged(broken["curve"]["loss"])
    assert len(set(broken["figures"]["answer"].split())) == 1
    assert not broken["figures"]["stopped"]


@claim("no-residual", "set the output of every sublayer to zero; what goes in must still come out")
def _(right, broken):
    assert [finding(side, "residual connections")["light"] for side in (right, broken)] == ["green", "red"]


@claim(
    "learning-rate-too-high",
    "The loss leaps up, comes back to the level of somebody who only knows which tokens are common, and stays there",
    "A first loss near ln(vocabulary), then far higher ones; no progress afterwards",
)
def _(right, broken):
    losses, first = broken["curve"]["loss"], broken["figures"]["first_loss"]
    assert first == right["figures"]["first_loss"] == pytest.approx(2.565, abs=0.6)  # ln(13)
    assert max(losses) > 2 * first
    assert losses[-1] == pytest.approx(common_tokens_loss("learning-rate-too-high"), abs=0.15)
    assert has_converged(losses)


@claim("learning-rate-too-high", "what the model writes does not depend on the order of its source any more")
def _(_, broken):
    assert finding(broken, "order of the source")["light"] == "red"


@claim(
    "learning-rate-too-high", "by more than their own size; a few per cent are healthy", "Weights are about 0.2 large"
)
def _(right, broken):
    share = finding(broken, "size of an update")["figure"]
    assert share > 1
    assert 0.3 / share == pytest.approx(0.2, abs=0.03)
    assert 0.01 < finding(right, "size of an update")["figure"] < 0.05


# ---- what the figures hardly show ----


@claim(
    "no-eos-in-targets",
    "The loss falls to next to nothing",
    "Teacher-forced accuracy is perfect, exact match is 0 %",
    "The digits come in the right order",
    "it writes on until it runs out of places",
    "every answer begins right and goes on too long",
)
def _(_, broken):
    assert broken["figures"]["train_loss"] < 0.02
    assert scores_only_when_teacher_forced(broken)
    assert broken["figures"]["answer"].startswith(broken["figures"]["expected"])
    assert len(broken["figures"]["answer"].split()) == load_lesson("no-eos-in-targets").broken.model.max_seq_len
    assert not broken["figures"]["stopped"]


@claim("heads-alike", "the heads stay the same, but for rounding", "are the same in every cell")
def _(right, broken):
    for block in ("encoder", "decoder", "cross"):
        one, other = maps(broken, block)
        assert one == other
        one, other = maps(right, block)
        assert one != other
    assert finding(broken, "heads of a layer")["figure"] < 1e-6


@claim("heads-alike", "The task is easy enough for one; but it solves it later than the right run does")
def _(right, broken):
    assert broken["figures"]["exact_match"] > 0.99
    assert broken["figures"]["step_of_90_percent"] > right["figures"]["step_of_90_percent"]


@claim("self-plotted-as-cross", "All figures are the same to the last digit")
def _(right, broken):
    assert right["figures"] == broken["figures"]
    assert right["curve"] == broken["curve"]


@claim(
    "self-plotted-as-cross",
    "The right map has its weight on an anti-diagonal",
    "has nothing above its diagonal",
    "with weight on its end at the first step",
)
def _(right, broken):
    assert all(above_diagonal(head) == 0 for head in maps(broken, "cross"))
    strongest = [[line.index(max(line)) for line in head] for head in maps(right, "cross")]
    assert [3, 2, 1] in [places[:3] for places in strongest]  # three symbols behind BOS


@claim("no-embedding-scaling", "Positions are now about six times as large as what they are added to")
def _(_, broken):
    model = load_lesson("no-embedding-scaling").broken.model
    assert finding(broken, "scale of the embeddings")["figure"] == pytest.approx(1, abs=0.01)
    assert model.d_model**0.5 == pytest.approx(6, abs=0.5)


@claim("no-embedding-scaling", "solves it sooner than the right one", "Nothing in the curves")
def _(right, broken):
    assert broken["figures"]["exact_match"] > 0.99
    assert broken["figures"]["step_of_90_percent"] < right["figures"]["step_of_90_percent"]


@pytest.mark.parametrize(("name", "quoted", "check"), CLAIMS, ids=[f"{name}: {words}" for name, words, _ in CLAIMS])
def test_a_claim_stands_in_the_text_and_holds(name, quoted, check):
    lesson = load_lesson(name)
    assert any(quoted in section for section in lesson.text.values())
    check(lesson.results["right"], lesson.results["broken"])


@pytest.mark.parametrize("name", lesson_names())
def test_what_happens_and_what_gives_it_away_are_both_checked(name):
    text = load_lesson(name).text
    for section in ("What happens", "What gives it away"):
        assert any(lesson == name and words in text[section] for lesson, words, _ in CLAIMS), section
