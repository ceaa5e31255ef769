"""Beam search finds what there is to find, ranks it right, and shows how."""

import pytest
import torch
from torch.testing import assert_close

from core.generation import Beam, BeamNode, Greedy, generate
from core.tasks import build_task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from tests.support.scripted_models import RANDOM_MODELS, FixedLogitsModel, all_sequences, sequence_log_prob

SOURCE = torch.tensor([[BOS_ID, 5, 6, EOS_ID]])


@pytest.fixture
def src(tiny) -> torch.Tensor:
    return build_task(tiny.task).sample(16, split="test", generator=torch.Generator().manual_seed(0)).src


def small(family: str, vocab_size: int, seed: int):
    """A model of a few tokens, of which PAD is one to write like any other."""
    model = RANDOM_MODELS[family](vocab_size=vocab_size, seed=seed)
    with torch.no_grad():
        model.output.weight /= 4
        model.output.bias.zero_()
    return model


def score_of(log_prob: float, length: int, length_penalty: float) -> float:
    return log_prob / ((5 + length) / 6) ** length_penalty


@pytest.mark.parametrize("family", RANDOM_MODELS)
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 3.0])
@pytest.mark.parametrize(("vocab_size", "max_steps"), [(3, 4), (4, 2), (5, 2)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_beam_wide_enough_finds_the_best_of_all_sequences(family, length_penalty, vocab_size, max_steps, seed):
    model = small(family, vocab_size, seed)
    ranked = []
    for tokens in all_sequences(vocab_size, max_steps):
        log_prob = sequence_log_prob(model, SOURCE[0], tokens)
        ranked.append((score_of(log_prob, len(tokens), length_penalty), log_prob, tokens))
    ranked.sort(reverse=True)
    assert len(ranked) <= 32
    strategy = Beam(beam_size=32, length_penalty=length_penalty, n_best=len(ranked))
    found = generate(model, SOURCE, max_steps=max_steps, strategy=strategy).search.hypotheses(0)
    assert [hypothesis.tokens for hypothesis in found] == [tokens for _, _, tokens in ranked]
    for hypothesis, (score, log_prob, _) in zip(found, ranked, strict=True):
        assert hypothesis.score == pytest.approx(score, abs=1e-5)
        assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-5)
    best = generate(model, SOURCE, max_steps=max_steps, strategy=Beam(beam_size=32, length_penalty=length_penalty))
    assert tuple(best.tokens[0].tolist()) == ranked[0][2]


def test_the_length_penalty_decides_between_short_and_long():
    """EOS at once has probability 0.5; 3 and then EOS 0.4: the longer one is likelier a token."""
    steps = [torch.tensor([1e-6, 1e-6, 0.5, 0.4, 0.1]).log(), torch.tensor([1e-6, 1e-6, 1.0, 1e-6, 1e-6]).log()]
    model = FixedLogitsModel(lambda past: steps[min(past, 1)])
    answers = {
        penalty: generate(
            model, SOURCE, max_steps=4, strategy=Beam(beam_size=3, length_penalty=penalty)
        ).tokens.tolist()
        for penalty in (0.0, 1.0, 4.0)
    }
    assert answers == {0.0: [[EOS_ID]], 1.0: [[EOS_ID]], 4.0: [[3, EOS_ID]]}
    assert score_of(-0.6931, 1, 1.0) > score_of(-0.9163, 2, 1.0)
    assert score_of(-0.6931, 1, 4.0) < score_of(-0.9163, 2, 4.0)


@pytest.mark.parametrize("family", RANDOM_MODELS)
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("penalty", [1.0, 1.5])
def test_a_beam_of_one_is_greedy(src, family, length_penalty, penalty):
    model = RANDOM_MODELS[family]()
    narrow = Beam(beam_size=1, length_penalty=length_penalty, repetition_penalty=penalty)
    settings = {"max_steps": 8, "num_candidates": 3}
    beam = generate(model, src, strategy=narrow, **settings)
    greedy = generate(model, src, strategy=Greedy(repetition_penalty=penalty), **settings)
    assert torch.equal(beam.tokens, greedy.tokens)
    assert torch.equal(beam.log_probs, greedy.log_probs)
    assert_close(beam.search.log_probs[:, 0], greedy.log_probs.sum(1), atol=1e-5, rtol=0)


def test_of_equally_likely_tokens_a_beam_of_one_takes_the_same_as_greedy():
    model = FixedLogitsModel(lambda past: torch.zeros(40))
    greedy, beam = (generate(model, SOURCE, max_steps=3, strategy=each) for each in (Greedy(), Beam(beam_size=1)))
    assert torch.equal(greedy.tokens, beam.tokens)


@pytest.mark.parametrize("family", RANDOM_MODELS)
def test_more_is_found_with_a_wider_beam(src, family):
    model = RANDOM_MODELS[family]()
    found = {
        size: generate(model, src, max_steps=8, strategy=Beam(beam_size=size, length_penalty=0.0)).search.log_probs
        for size in (1, 4, 32)
    }
    assert found[4].mean() > found[1].mean()
    assert found[32].mean() >= found[4].mean()


@pytest.mark.parametrize("family", RANDOM_MODELS)
def test_the_best_are_sorted_distinct_and_what_teacher_forcing_says(src, family):
    model = RANDOM_MODELS[family]()
    search = generate(model, src, max_steps=8, strategy=Beam(beam_size=6, n_best=6)).search
    for row, ids in enumerate(src):
        found = search.hypotheses(row)
        assert len(found) == 6
        assert len({hypothesis.tokens for hypothesis in found}) == 6
        scores = [hypothesis.score for hypothesis in found]
        assert scores == sorted(scores, reverse=True)
        for hypothesis in found:
            assert hypothesis.finished or len(hypothesis.tokens) == 8
            assert EOS_ID not in hypothesis.tokens[:-1]
            true = sequence_log_prob(model, ids[ids != PAD_ID], hypothesis.tokens)
            assert hypothesis.log_prob == pytest.approx(true, abs=1e-4)
            assert hypothesis.score == pytest.approx(score_of(true, len(hypothesis.tokens), 1.0), abs=1e-4)


def test_the_best_do_not_depend_on_how_many_are_asked_for(src):
    model = RANDOM_MODELS["transformer"]()
    many = generate(model, src, max_steps=8, strategy=Beam(beam_size=5, n_best=5)).search
    for count in (1, 2, 3):
        few = generate(model, src, max_steps=8, strategy=Beam(beam_size=5, n_best=count)).search
        for row in range(len(src)):
            assert [h.tokens for h in few.hypotheses(row)] == [h.tokens for h in many.hypotheses(row)[:count]]


def test_fewer_are_returned_where_fewer_exist():
    model = FixedLogitsModel(lambda past: torch.tensor([0.0, 1.0, 2.0]))
    found = generate(model, SOURCE, max_steps=1, strategy=Beam(beam_size=8, n_best=8)).search.hypotheses(0)
    assert [hypothesis.tokens for hypothesis in found] == [(2,), (1,), (0,)]


# --- the tree ---------------------------------------------------------------------------------------------------


def path_of(tree: tuple[BeamNode, ...], node: BeamNode) -> tuple[int, ...]:
    return (() if node.parent is None else path_of(tree, tree[node.parent])) + (node.token,)


@pytest.mark.parametrize("family", RANDOM_MODELS)
@pytest.mark.parametrize("prefix", [[], [7, 9]])
def test_the_tree_holds_every_step_and_nothing_grows_from_an_end(src, family, prefix):
    model = RANDOM_MODELS[family]()
    strategy = Beam(beam_size=5, n_best=5)
    decoded = generate(model, src, max_steps=8, strategy=strategy, prefix=prefix)
    ended = 0
    for row, ids in enumerate(src):
        tree = decoded.search.tree(row)
        paths = [path_of(tree, node) for node in tree]
        assert len(set(paths)) == len(tree)
        for node, path in zip(tree, paths, strict=True):
            before = tree[node.parent] if node.parent is not None else None
            assert node.step == len(path) == (before.step + 1 if before else 1)
            assert before is None or not before.finished
            assert node.finished == (node.token == EOS_ID)
            assert node.total_log_prob == pytest.approx(
                (before.total_log_prob if before else 0) + node.log_prob, abs=1e-4
            )
            assert path[: len(prefix)] == tuple(prefix[: len(path)])
        longest = max(tree, key=lambda node: node.step)
        true = sequence_log_prob(model, ids[ids != PAD_ID], path_of(tree, longest))
        assert longest.total_log_prob == pytest.approx(true, abs=1e-4)
        for step in range(1, longest.step + 1):
            going = sum(node.step == step and not node.finished for node in tree)
            ends = [sum(node.finished for node in tree if node.step <= upto) for upto in (step - 1, step)]
            in_last_step = 5 - (ends[1] - ends[0])  # there the five likeliest are all answers
            assert going == (1 if step <= len(prefix) else 5 if step < 8 else in_last_step)
            assert ends[0] < 5  # the search goes on as long as fewer answers have ended than the beam is wide
            assert ends[1] - ends[0] <= 5
        winning = [node for node in tree if node.is_best]
        assert tuple(node.token for node in winning) == decoded.search.hypotheses(row)[0].tokens
        assert [node.parent for node in winning[1:]] == [tree.index(node) for node in winning[:-1]]
        assert {h.tokens for h in decoded.search.hypotheses(row)} <= set(paths)
        ended += sum(node.finished for node in tree)
    assert ended > len(src)


def test_the_search_stops_as_soon_as_nothing_better_can_come():
    sure = torch.tensor([-20.0, -20.0, 5.0, 0.0, -1.0])
    decoded = generate(
        FixedLogitsModel(lambda past: sure), SOURCE, max_steps=50, strategy=Beam(beam_size=3, length_penalty=0.0)
    )
    assert decoded.tokens.tolist() == [[EOS_ID]]
    assert len(decoded.search.steps) == 1
    three = generate(FixedLogitsModel(lambda past: sure), SOURCE, max_steps=50, strategy=Beam(beam_size=3, n_best=3))
    assert len(three.search.steps) < 5
    assert [h.tokens for h in three.search.hypotheses(0)] == [(2,), (3, 2), (4, 2)]


def test_what_is_as_good_but_has_not_ended_is_no_answer():
    even = FixedLogitsModel(lambda past: torch.tensor([-50.0, 0, 0]))  # BOS, whose id is lower, or EOS
    decoded = generate(even, SOURCE, max_steps=5, strategy=Beam(beam_size=2, length_penalty=0.0))
    assert decoded.tokens.tolist() == [[EOS_ID]]


def test_only_the_winners_steps_are_shown(src):
    """The search may go on behind the end of what wins; tokens, candidates and maps do not."""
    model = RANDOM_MODELS["transformer"]()
    longer = 0
    for ids in src:
        decoded = generate(
            model,
            ids[ids != PAD_ID][None],
            max_steps=12,
            strategy=Beam(beam_size=6, n_best=6),
            num_candidates=2,
            need_weights=True,
        )
        steps = len(decoded.search.hypotheses(0)[0].tokens)
        assert decoded.tokens.shape == decoded.log_probs.shape == (1, steps)
        assert decoded.candidates.shape == (1, steps, 2)
        assert decoded.maps.cross.shape[-2] == decoded.maps.decoder.shape[-1] == steps
        assert decoded.search.best_slots.shape == (1, len(decoded.search.steps))
        longer += len(decoded.search.steps) > steps
    assert longer
