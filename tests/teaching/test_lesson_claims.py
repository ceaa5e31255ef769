"""Each claim of a lesson's text is quoted here and checked against the lesson's shipped results."""

from collections.abc import Callable

import pytest

from core.teaching.bugs import new_state
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

Check = Callable[[dict, dict], None]
CLAIMS: dict[str, list[tuple[tuple[str, ...], Check]]] = {name: [] for name in lesson_names()}


def claim(lesson: str, *quotes: str) -> Callable[[Check], Check]:
    """Register a check, a function of the right and the broken side, for quotes from a lesson's text."""

    def register(check: Check) -> Check:
        CLAIMS[lesson].append((quotes, check))
        return check

    return register


# ---- leaks ----


@claim(
    "no-causal-mask",
    "The loss falls sooner and ends lower",
    "Teacher-forced accuracy is perfect",
    "not a single answer is correct",
    "Teacher-forced accuracy is 100 % and free-running exact match is 0 %",
)
@claim("targets-not-shifted", "The loss falls faster than in the correct run and accuracy is perfect")
@claim("softmax-over-queries", "It trains very well, and sooner than the correct run", "exact match is 0 %")
def _(right, broken):
    assert falls_sooner(right, broken)
    assert broken["figures"]["train_loss"] < right["figures"]["train_loss"]
    assert scores_only_when_teacher_forced(broken)


@claim(
    "no-causal-mask", "has weight above its diagonal", "change a future target token; earlier logits must not change"
)
def _(right, broken):
    assert all(above_diagonal(head) == 0 for head in maps(right, "decoder"))
    assert all(above_diagonal(head) > 0.5 for head in maps(broken, "decoder"))
    assert finding(broken, "causal leak")["figure"] > 1


@claim(
    "targets-not-shifted",
    "the model repeats the token that it has just produced",
    "no answer is correct, and the answer shown never ends",
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


@claim("pad-attended-to", "In padded batches the metrics are perfect", "more than half of the answers are wrong")
@claim(
    "encoder-over-pad",
    "Metrics computed in padded batches show nothing",
    "more than half of the answers are wrong",
    "far below exact match in padded batches",
)
def _(_, broken):
    assert broken["figures"]["exact_match"] > 0.99
    assert broken["figures"]["exact_match_unpadded"] < 0.5


@claim("pad-attended-to", "The fraction that is still correct is the fraction of inputs of maximum length")
@claim("encoder-over-pad", "The fraction that is still correct is the fraction of inputs of maximum length")
def _(_, broken):
    assert broken["figures"]["exact_match_unpadded"] == pytest.approx(fraction_of_longest(broken["bug"]), abs=0.005)


@claim("pad-attended-to", "has weight in the columns of PAD", "append PAD to a source; no logit must change")
def _(right, broken):
    assert on_pad(right) == 0
    assert on_pad(broken) > 0.5
    assert finding(broken, "PAD influence")["figure"] > 1


@claim("encoder-over-pad", "The attention map has no weight on PAD", "the encoder's final state must not change")
def _(_, broken):
    assert on_pad(broken) == 0
    assert finding(broken, "PAD influence")["bug"] == "encoder-over-pad"


@claim("pad-in-the-loss", "The training loss is lower than it should be", "well below the validation loss")
def _(right, broken):
    assert broken["figures"]["train_loss"] < 0.85 * broken["figures"]["validation_loss"]
    assert right["figures"]["train_loss"] > broken["figures"]["train_loss"]


@claim(
    "pad-in-the-loss", "The model still learns, a little later in this run", "a part of every gradient comes from PAD"
)
def _(right, broken):
    assert broken["figures"]["exact_match"] > 0.99
    assert broken["figures"]["step_of_90_percent"] > right["figures"]["step_of_90_percent"]
    assert finding(broken, "PAD in the loss")["figure"] > 0.01


# ---- bugs that keep a model from learning ----


@claim(
    "no-positions",
    "swap two of its tokens and nothing changes",
    "if no logit changes, the model has no information about positions",
)
def _(right, broken):
    assert finding(broken, "source order")["figure"] < 1e-3
    assert finding(right, "source order")["figure"] > 1


@claim("no-positions", "it predicts two of three tokens correctly", "hardly any answer is correct")
def _(_, broken):
    assert broken["figures"]["token_accuracy"] == pytest.approx(2 / 3, abs=0.03)
    assert broken["figures"]["exact_match"] < 0.1


@claim("no-positions", "The loss stops falling far above zero", "the correct digits in the wrong order")
def _(right, broken):
    assert has_converged(broken["curve"]["loss"])
    assert broken["figures"]["train_loss"] > 100 * right["figures"]["train_loss"]
    assert sorted(broken["figures"]["answer"]) == sorted(broken["figures"]["expected"])
    assert broken["figures"]["answer"] != broken["figures"]["expected"]


@claim("no-score-scaling", "d_k is 64, so the scores are 8 times as large")
def _(_, broken):
    model = load_lesson("no-score-scaling").broken.model
    assert (model.d_model, model.num_heads) == (64, 1)
    assert finding(broken, "score scaling")["figure"] == pytest.approx(1, abs=1e-3)


@claim("no-score-scaling", "each row of the maps has one key with nearly all of the weight")
def _(right, broken):
    for block in ("encoder", "decoder", "cross"):
        tops = [max(line) for head in maps(broken, block) for line in head]
        assert sum(top > 0.9 for top in tops) > 0.9 * len(tops)
    assert finding(broken, "attention entropy")["figure"] < 0.1 < finding(right, "attention entropy")["figure"]


@claim(
    "no-score-scaling",
    "The softmax is sharp from the first step",
    "The entropy of the attention is low before training",
)
def _(*_):
    lesson = load_lesson("no-score-scaling")
    untrained = [{"doctor": examine_preset(preset).as_data()} for preset in (lesson.right, lesson.broken)]
    assert [finding(side, "attention entropy")["light"] for side in untrained] == ["green", "amber"]


@claim("no-score-scaling", "it ends far behind the correct run")
def _(right, broken):
    assert broken["figures"]["exact_match"] < 0.1
    assert broken["figures"]["train_loss"] > 100 * right["figures"]["train_loss"]


@claim("no-residual", "fewer than four of ten tokens correctly even under teacher forcing", "it gets no answer right")
def _(_, broken):
    assert broken["figures"]["token_accuracy"] < 0.4
    assert broken["figures"]["exact_match"] == 0


@claim("no-residual", "over a hundred times the smallest one, compared with about five times in the correct run")
def _(right, broken):
    assert finding(broken, "gradients")["figure"] > 100
    assert finding(right, "gradients")["figure"] == pytest.approx(5, abs=0.5)


@claim("no-residual", "The loss converges far above zero", "the answer repeats one token without end")
def _(_, broken):
    assert has_converged(broken["curve"]["loss"])
    assert len(set(broken["figures"]["answer"].split())) == 1
    assert not broken["figures"]["stopped"]


@claim("no-residual", "set the output of every sublayer to zero; the input must still reach the output")
def _(right, broken):
    assert [finding(side, "residual connections")["light"] for side in (right, broken)] == ["green", "red"]


@claim(
    "learning-rate-too-high",
    "falls back to the level of a model that knows only how frequent each token is, and stays there",
    "The first loss is near ln(vocabulary size), the next ones are far higher, and there is no progress afterwards",
)
def _(right, broken):
    losses, first = broken["curve"]["loss"], broken["figures"]["first_loss"]
    assert first == right["figures"]["first_loss"] == pytest.approx(2.565, abs=0.6)  # ln(13)
    assert max(losses) > 2 * first
    assert losses[-1] == pytest.approx(common_tokens_loss("learning-rate-too-high"), abs=0.15)
    assert has_converged(losses)


@claim("learning-rate-too-high", "the output no longer depends on the order of the source")
def _(_, broken):
    assert finding(broken, "source order")["light"] == "red"


@claim("learning-rate-too-high", "by more than their own size; a few per cent are healthy", "about 0.2 in size")
def _(right, broken):
    share = finding(broken, "update size")["figure"]
    assert share > 1
    assert 0.3 / share == pytest.approx(0.2, abs=0.03)
    assert 0.01 < finding(right, "update size")["figure"] < 0.05


# ---- bugs that hardly show in the numbers ----


@claim(
    "no-eos-in-targets",
    "The loss falls to almost zero",
    "Teacher-forced accuracy is perfect, exact match is 0 %",
    "The digits come in the correct order",
    "it generates until it reaches its maximum length",
    "every answer starts correctly and is too long",
)
def _(_, broken):
    assert broken["figures"]["train_loss"] < 0.02
    assert scores_only_when_teacher_forced(broken)
    assert broken["figures"]["answer"].startswith(broken["figures"]["expected"])
    assert len(broken["figures"]["answer"].split()) == load_lesson("no-eos-in-targets").broken.model.max_seq_len
    assert not broken["figures"]["stopped"]


@claim("heads-alike", "the heads stay identical, except for rounding", "are identical in every cell")
def _(right, broken):
    for block in ("encoder", "decoder", "cross"):
        one, other = maps(broken, block)
        assert one == other
        one, other = maps(right, block)
        assert one != other
    assert finding(broken, "head diversity")["figure"] < 1e-6


@claim("heads-alike", "The task is easy enough for one head, but the model solves it later than the correct run does")
def _(right, broken):
    assert broken["figures"]["exact_match"] > 0.99
    assert broken["figures"]["step_of_90_percent"] > right["figures"]["step_of_90_percent"]


@claim("self-plotted-as-cross", "All numbers are the same to the last digit")
def _(right, broken):
    assert right["figures"] == broken["figures"]
    assert right["curve"] == broken["curve"]


@claim(
    "self-plotted-as-cross",
    "The correct map has its weight on an anti-diagonal",
    "has no weight above its diagonal",
    "A map that is empty above the diagonal is not cross-attention",
)
def _(right, broken):
    assert all(above_diagonal(head) == 0 for head in maps(broken, "cross"))
    strongest = [[line.index(max(line)) for line in head] for head in maps(right, "cross")]
    assert [3, 2, 1] in [places[:3] for places in strongest]  # three symbols after BOS


@claim("no-embedding-scaling", "about four times as large as the embeddings they are added to")
def _(_, broken):
    assert finding(broken, "embedding scaling")["figure"] == pytest.approx(1, abs=0.01)
    for side in ("src_embedding", "tgt_embedding"):
        added = getattr(new_state(load_lesson("no-embedding-scaling").broken).model, side)
        embeddings = added.tokens.weight[1:].pow(2).mean().sqrt()  # without PAD, which is zero
        assert (added.positions.pow(2).mean().sqrt() / embeddings).item() == pytest.approx(4, abs=0.5)


@claim("no-embedding-scaling", "solves it sooner than the correct one", "The curves show nothing")
def _(right, broken):
    assert broken["figures"]["exact_match"] > 0.99
    assert broken["figures"]["step_of_90_percent"] < right["figures"]["step_of_90_percent"]


@pytest.mark.parametrize("name", lesson_names())
def test_every_claim_is_in_the_text_and_holds(name):
    lesson = load_lesson(name)
    for quotes, check in CLAIMS[name]:
        for quote in quotes:
            assert any(quote in section for section in lesson.text.values()), quote
        check(lesson.results["right"], lesson.results["broken"])
    for section in ("What happens", "What gives it away"):
        assert any(quote in lesson.text[section] for quotes, _ in CLAIMS[name] for quote in quotes), section
