"""Beam search: checked against exhaustive search, greedy decoding and teacher forcing; the search tree."""

import pytest
import torch
from torch.testing import assert_close

from core.generation import Beam, BeamNode, Greedy, generate
from core.tasks import build_task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from tests.support.scripted_models import RANDOM_MODELS, FixedLogitsModel, all_sequences, sequence_log_prob

SOURCE = torch.tensor([[BOS_ID, 5, 6, EOS_ID]])


@pytest.fixture(scope="module")
def src(tiny) -> torch.Tensor:
    return build_task(tiny.task).sample(10, split="test", generator=torch.Generator().manual_seed(0)).src


def small_vocabulary_model(family: str, vocab_size: int, seed: int):
    """A model of a few tokens, which may generate PAD like any other token."""
    model = RANDOM_MODELS[family](vocab_size=vocab_size, seed=seed)
    with torch.no_grad():
        model.output.weight /= 4
        model.output.bias.zero_()
    return model


def score_of(log_prob: float, length: int, length_penalty: float) -> float:
    return log_prob / ((5 + length) / 6) ** length_penalty


@pytest.mark.parametrize("family", RANDOM_MODELS)
@pytest.mark.parametrize(("vocab_size", "max_steps", "seed"), [(3, 4, 1), (4, 2, 2), (5, 2, 3)])
def test_a_wide_beam_ranks_all_sequences_like_exhaustive_search(family, vocab_size, max_steps, seed):
    model = small_vocabulary_model(family, vocab_size, seed)
    log_probs = {tokens: sequence_log_prob(model, SOURCE[0], tokens) for tokens in all_sequences(vocab_size, max_steps)}
    assert len(log_probs) <= 32
    for length_penalty in (0.0, 1.0, 3.0):
        ranked = sorted(
            (
                (score_of(log_prob, len(tokens), length_penalty), log_prob, tokens)
                for tokens, log_prob in log_probs.items()
            ),
            reverse=True,
        )
        strategy = Beam(beam_size=32, length_penalty=length_penalty, n_best=len(ranked))
        hypotheses = generate(model, SOURCE, max_steps=max_steps, strategy=strategy).search.hypotheses(0)
        assert [hypothesis.tokens for hypothesis in hypotheses] == [tokens for _, _, tokens in ranked]
        for hypothesis, (score, log_prob, _) in zip(hypotheses, ranked, strict=True):
            assert hypothesis.score == pytest.approx(score, abs=1e-5)
            assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-5)
        best_only = Beam(beam_size=32, length_penalty=length_penalty)
        best = generate(model, SOURCE, max_steps=max_steps, strategy=best_only)
        assert tuple(best.tokens[0].tolist()) == ranked[0][2]


def test_the_length_penalty_decides_between_short_and_long():
    """EOS first has probability 0.5, token 3 and then EOS 0.4: the longer output is more likely per token."""
    steps = [torch.tensor([1e-6, 1e-6, 0.5, 0.4, 0.1]).log(), torch.tensor([1e-6, 1e-6, 1.0, 1e-6, 1e-6]).log()]
    model = FixedLogitsModel(lambda past: steps[min(past, 1)])
    outputs = {
        penalty: generate(
            model, SOURCE, max_steps=4, strategy=Beam(beam_size=3, length_penalty=penalty)
        ).tokens.tolist()
        for penalty in (0.0, 1.0, 4.0)
    }
    assert outputs == {0.0: [[EOS_ID]], 1.0: [[EOS_ID]], 4.0: [[3, EOS_ID]]}


@pytest.mark.parametrize("family", RANDOM_MODELS)
def test_a_beam_of_one_is_greedy_decoding(src, family):
    model = RANDOM_MODELS[family]()
    settings = {"max_steps": 8, "num_candidates": 3}
    for repetition_penalty, length_penalty in ((1.0, 0.0), (1.0, 10.0), (1.5, 1.0)):
        narrow = Beam(beam_size=1, length_penalty=length_penalty, repetition_penalty=repetition_penalty)
        beam = generate(model, src, strategy=narrow, **settings)
        greedy = generate(model, src, strategy=Greedy(repetition_penalty=repetition_penalty), **settings)
        assert torch.equal(beam.tokens, greedy.tokens)
        assert torch.equal(beam.log_probs, greedy.log_probs)
        assert_close(beam.search.log_probs[:, 0], greedy.log_probs.sum(1), atol=1e-5, rtol=0)


def test_a_beam_of_one_breaks_ties_like_greedy_decoding():
    model = FixedLogitsModel(lambda past: torch.zeros(40))
    greedy, beam = (generate(model, SOURCE, max_steps=3, strategy=each) for each in (Greedy(), Beam(beam_size=1)))
    assert torch.equal(greedy.tokens, beam.tokens)


@pytest.mark.parametrize("family", RANDOM_MODELS)
def test_a_wider_beam_finds_more_likely_sequences(src, family):
    model = RANDOM_MODELS[family]()
    mean_log_prob = {
        size: generate(model, src, max_steps=8, strategy=Beam(beam_size=size, length_penalty=0.0))
        .search.log_probs.mean()
        .item()
        for size in (1, 4, 32)
    }
    assert mean_log_prob[4] > mean_log_prob[1]
    assert mean_log_prob[32] >= mean_log_prob[4]


@pytest.mark.parametrize("family", RANDOM_MODELS)
def test_hypotheses_are_ranked_distinct_and_scored_as_by_teacher_forcing(src, family):
    model = RANDOM_MODELS[family]()
    search = generate(model, src, max_steps=8, strategy=Beam(beam_size=6, n_best=6)).search
    for row, ids in enumerate(src):
        hypotheses = search.hypotheses(row)
        assert len({hypothesis.tokens for hypothesis in hypotheses}) == len(hypotheses) == 6
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        for hypothesis in hypotheses:
            assert hypothesis.finished or len(hypothesis.tokens) == 8
            assert EOS_ID not in hypothesis.tokens[:-1]
            expected = sequence_log_prob(model, ids[ids != PAD_ID], hypothesis.tokens)
            assert hypothesis.log_prob == pytest.approx(expected, abs=1e-4)
            assert hypothesis.score == pytest.approx(score_of(expected, len(hypothesis.tokens), 1.0), abs=1e-4)


def test_the_best_hypotheses_do_not_depend_on_n_best(src):
    model = RANDOM_MODELS["transformer"]()
    many = generate(model, src, max_steps=8, strategy=Beam(beam_size=5, n_best=5)).search
    for count in (1, 2, 3):
        few = generate(model, src, max_steps=8, strategy=Beam(beam_size=5, n_best=count)).search
        for row in range(len(src)):
            assert [h.tokens for h in few.hypotheses(row)] == [h.tokens for h in many.hypotheses(row)[:count]]


def test_fewer_hypotheses_are_returned_if_fewer_exist():
    model = FixedLogitsModel(lambda past: torch.tensor([0.0, 1.0, 2.0]))
    hypotheses = generate(model, SOURCE, max_steps=1, strategy=Beam(beam_size=8, n_best=8)).search.hypotheses(0)
    assert [hypothesis.tokens for hypothesis in hypotheses] == [(2,), (1,), (0,)]


def test_the_search_stops_when_no_better_hypothesis_is_possible():
    confident = FixedLogitsModel(lambda past: torch.tensor([-20.0, -20.0, 5.0, 0.0, -1.0]))
    result = generate(confident, SOURCE, max_steps=50, strategy=Beam(beam_size=3, length_penalty=0.0))
    assert result.tokens.tolist() == [[EOS_ID]]
    assert len(result.search.steps) == 1
    three = generate(confident, SOURCE, max_steps=50, strategy=Beam(beam_size=3, n_best=3))
    assert len(three.search.steps) < 5
    assert [h.tokens for h in three.search.hypotheses(0)] == [(2,), (3, 2), (4, 2)]


def test_an_equally_likely_unfinished_hypothesis_is_not_returned():
    tied = FixedLogitsModel(lambda past: torch.tensor([-50.0, 0, 0]))  # BOS, whose id is lower, or EOS
    result = generate(tied, SOURCE, max_steps=5, strategy=Beam(beam_size=2, length_penalty=0.0))
    assert result.tokens.tolist() == [[EOS_ID]]


# --- search tree --------------------------------------------------------------------------------------------------


def path_of(tree: tuple[BeamNode, ...], node: BeamNode) -> tuple[int, ...]:
    return (() if node.parent is None else path_of(tree, tree[node.parent])) + (node.token,)


@pytest.mark.parametrize("family", RANDOM_MODELS)
@pytest.mark.parametrize("prefix", [[], [7, 9]])
def test_the_tree_holds_every_step_and_finished_nodes_have_no_children(src, family, prefix):
    model = RANDOM_MODELS[family]()
    result = generate(model, src, max_steps=8, strategy=Beam(beam_size=5, n_best=5), prefix=prefix)
    num_finished = 0
    for row, ids in enumerate(src):
        tree = result.search.tree(row)
        paths = [path_of(tree, node) for node in tree]
        assert len(set(paths)) == len(tree)
        for node, path in zip(tree, paths, strict=True):
            parent = tree[node.parent] if node.parent is not None else None
            assert node.step == len(path) == (parent.step + 1 if parent else 1)
            assert parent is None or not parent.finished
            assert node.finished == (node.token == EOS_ID)
            expected = (parent.total_log_prob if parent else 0) + node.log_prob
            assert node.total_log_prob == pytest.approx(expected, abs=1e-4)
            assert path[: len(prefix)] == tuple(prefix[: len(path)])
        longest = max(tree, key=lambda node: node.step)
        expected = sequence_log_prob(model, ids[ids != PAD_ID], path_of(tree, longest))
        assert longest.total_log_prob == pytest.approx(expected, abs=1e-4)
        assert_beam_is_full(tree, len(prefix))
        best = [node for node in tree if node.is_best]
        assert tuple(node.token for node in best) == result.search.hypotheses(row)[0].tokens
        assert [node.parent for node in best[1:]] == [tree.index(node) for node in best[:-1]]
        assert {h.tokens for h in result.search.hypotheses(row)} <= set(paths)
        num_finished += sum(node.finished for node in tree)
    assert num_finished > len(src)


def assert_beam_is_full(tree: tuple[BeamNode, ...], prefix_length: int) -> None:
    """Five hypotheses run at each of 8 steps, until five have finished."""
    for step in range(1, max(node.step for node in tree) + 1):
        running = sum(node.step == step and not node.finished for node in tree)
        before, after = (sum(node.finished for node in tree if node.step <= upto) for upto in (step - 1, step))
        in_last_step = 5 - (after - before)  # all five most likely hypotheses end there
        assert running == (1 if step <= prefix_length else 5 if step < 8 else in_last_step)
        assert before < 5
        assert after - before <= 5


def test_results_cover_only_the_steps_of_the_best_hypothesis(src):
    """The search may continue after the best hypothesis has ended; tokens, candidates and maps do not."""
    model = RANDOM_MODELS["transformer"]()
    longer = 0
    for ids in src:
        result = generate(
            model,
            ids[ids != PAD_ID][None],
            max_steps=12,
            strategy=Beam(beam_size=6, n_best=6),
            num_candidates=2,
            need_weights=True,
        )
        steps = len(result.search.hypotheses(0)[0].tokens)
        assert result.tokens.shape == result.log_probs.shape == (1, steps)
        assert result.candidates.shape == (1, steps, 2)
        assert result.maps.cross.shape[-2] == result.maps.decoder.shape[-1] == steps
        assert result.search.best_slots.shape == (1, len(result.search.steps))
        longer += len(result.search.steps) > steps
    assert longer
