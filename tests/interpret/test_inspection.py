"""Inspection of one typed input: correct, wrong, endless and too long answers."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from core.config.tasks import WordsConfig
from core.generation import GREEDY, Beam, Sample
from core.interpret.inspection import NUM_CANDIDATES, Inspection, inspect
from core.interpret.interventions import Interventions
from core.models import build_model
from core.storage.errors import InputError
from core.tasks import Batch, build_task
from core.tasks.alignment import gold_alignment
from core.tasks.sequences import Words
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID, UNK, UNK_ID


@pytest.fixture
def task(tiny):
    """2 to 5 digits, reversed."""
    return build_task(tiny.task)


@pytest.fixture
def model(tiny, task):
    model = build_model(tiny.model, task, torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        model.output.bias[PAD_ID] = -100
    return model


def answering(scripted, tokens: list[int]):
    return scripted(lambda src: torch.tensor([tokens]), max_seq_len=16)


def test_a_right_answer_is_correct(scripted, task):
    seen = inspect(answering(scripted, [12, 5, 11, 7, EOS_ID]), task, "4829")
    assert seen.symbols == ["4", "8", "2", "9"]
    assert seen.output == seen.expected == ["9", "2", "8", "4"]
    assert seen.stopped
    assert seen.correct
    assert [step.produced for step in seen.steps] == ["9", "2", "8", "4", "<EOS>"]
    assert [step.read for step in seen.steps] == ["<BOS>", "9", "2", "8", "4"]
    assert seen.source_labels == ["<BOS>", "4", "8", "2", "9", "<EOS>"]
    assert seen.sources == [[3], [2], [1], [0]]
    assert seen.scores == []  # a scripted model has no attention
    assert seen.note == ""
    assert seen.seconds > 0


@pytest.mark.parametrize(
    "tokens",
    [
        [12, 5, 11, EOS_ID],  # too short
        [12, 5, 11, 7, 7, EOS_ID],  # too long
        [12, 5, 7, 11, EOS_ID],  # swapped
        [EOS_ID],
    ],
)
def test_a_wrong_answer_is_not_correct_though_it_stopped(scripted, task, tokens):
    seen = inspect(answering(scripted, tokens), task, "4829")
    assert seen.stopped
    assert not seen.correct
    assert len(seen.output) == len(tokens) - 1


def test_a_right_answer_that_never_stops_is_not_correct(scripted, task):
    seen = inspect(answering(scripted, [12, 5, 11, 7] + [3] * 12), task, "4829")
    assert not seen.stopped
    assert not seen.correct
    assert len(seen.steps) == 16  # all the positions there are
    assert "<EOS>" not in seen.output
    right = inspect(answering(scripted, [12, 5, 11, 7, EOS_ID]), task, "4829")
    assert not replace(right, stopped=False).correct


def test_a_real_model_returns_maps_candidates_and_scores(model, task, tiny):
    seen = inspect(model, task, "4 8 2 9")
    layers, heads, steps = tiny.model.num_decoder_layers, tiny.model.num_heads, len(seen.steps)
    assert seen.maps.encoder.shape == (tiny.model.num_encoder_layers, 1, heads, 6, 6)
    assert seen.maps.decoder.shape == (layers, 1, heads, steps, steps)
    assert seen.maps.cross.shape == (layers, 1, heads, steps, 6)
    assert_close(seen.maps.cross.sum(-1), torch.ones(layers, 1, heads, steps), atol=1e-5, rtol=0)
    assert [(score.layer, score.head) for score in seen.scores] == [(1, 1), (1, 2)]
    for step in seen.steps:
        tokens, probabilities = zip(*step.candidates, strict=True)
        assert len(set(tokens)) == NUM_CANDIDATES
        assert tokens[0] == step.produced
        assert list(probabilities) == sorted(probabilities, reverse=True)
        assert 0 < sum(probabilities) <= 1 + 1e-6


def test_inspecting_twice_gives_equal_results_and_changes_nothing(model, task):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first, second = inspect(model, task, "4829"), inspect(model, task, "4829")
    assert (first.output, first.steps, first.scores) == (second.output, second.steps, second.scores)
    assert_close(dict(model.state_dict()), before, atol=0, rtol=0)
    assert not model.training


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("1", "shorter than any training input (2–5 tokens)"),
        ("12", ""),
        ("12345", ""),
        ("123456", "longer than any training input (2–5 tokens)"),
    ],
)
def test_inputs_outside_the_trained_range_are_decoded_with_a_note(model, task, text, note):
    seen = inspect(model, task, text)
    assert isinstance(seen, Inspection)
    assert seen.note == note


def test_the_longest_input_the_model_can_read_is_read_and_a_longer_one_refused(model, task):
    assert len(inspect(model, task, "1" * 14).symbols) == 14
    with pytest.raises(InputError, match=r"input has 15 tokens, 17 with BOS and EOS; .* at most 16"):
        inspect(model, task, "1" * 15)


@pytest.mark.parametrize("text", ["", "4x", "４"])
def test_invalid_inputs_are_refused(model, task, text):
    with pytest.raises(InputError):
        inspect(model, task, text)


def test_a_model_that_generates_only_pad_can_be_inspected(model, task):
    with torch.no_grad():
        model.output.bias[PAD_ID] = 100
    seen = inspect(model, task, "4829")
    assert not seen.correct


def test_an_unknown_word_is_shown_as_the_model_reads_it(scripted):
    words = Words(WordsConfig(transform="reverse", min_length=2, max_length=4))
    the = words.src_vocab.encode(["the"])[0]
    seen = inspect(scripted(lambda src: torch.tensor([[the, UNK_ID, the, EOS_ID]])), words, "The zebra the")
    assert seen.symbols == seen.expected == seen.output == ["the", UNK, "the"]
    assert seen.correct
    assert seen.note == "not in the vocabulary, read as <UNK>: zebra"
    seen = inspect(scripted(lambda src: torch.tensor([[the, EOS_ID]])), words, f"zebra zebra yak {'x' * 300} the")
    assert seen.note == (
        f"not in the vocabulary, read as <UNK>: zebra, yak, {'x' * 20}; longer than any training input (2–4 tokens)"
    )


def test_a_vocabulary_without_unk_has_no_unknown_symbols(model, task):
    assert inspect(model, task, "0 1").note == ""


def test_an_unknown_word_has_a_column_of_its_own():
    words = Words(WordsConfig(transform="reverse", min_length=2, max_length=4))
    src = torch.tensor([[BOS_ID, *words.src_vocab.encode(["the", "zebra", "sat"]), EOS_ID]])
    cells = gold_alignment(words, Batch(src, src), src, steps=4)[0].nonzero().tolist()
    assert cells == [[0, 3], [1, 2], [2, 1]]


# --- strategies -------------------------------------------------------------------------------------------------


def test_greedy_steps_have_the_probability_of_their_best_candidate(model, task):
    seen = inspect(model, task, "4829")
    assert seen.strategy == GREEDY
    assert (seen.hypotheses, seen.tree) == ((), ())
    for step in seen.steps:
        assert step.probability == pytest.approx(step.candidates[0][1], abs=1e-6)
        assert not step.forced


def test_a_beam_search_returns_its_hypotheses_and_its_tree(model, task):
    seen = inspect(model, task, "4829", strategy=Beam(beam_size=5, n_best=3))
    assert len(seen.hypotheses) == 3
    best = seen.hypotheses[0]
    assert (best.output, best.stopped) == (seen.output, seen.stopped)
    assert [answer.score for answer in seen.hypotheses] == sorted(
        (answer.score for answer in seen.hypotheses), reverse=True
    )
    chosen = torch.tensor([step.probability for step in seen.steps])
    assert chosen.log().sum().item() == pytest.approx(best.log_prob, abs=1e-4)
    winning = [branch for branch in seen.tree if branch.node.is_best]
    assert [branch.token for branch in winning] == [step.produced for step in seen.steps]
    assert winning[-1].node.total_log_prob == pytest.approx(best.log_prob, abs=1e-4)
    assert seen.maps.cross.shape[-2] == len(seen.steps)


def test_sampling_lists_only_candidates_that_could_be_drawn(model, task):
    seen = inspect(model, task, "4829", strategy=Sample(temperature=3.0, top_k=3, seed=4))
    other = inspect(model, task, "4829", strategy=Sample(temperature=3.0, top_k=3, seed=5))
    assert [step.produced for step in seen.steps] != [step.produced for step in other.steps]
    for step in seen.steps:
        assert len(step.candidates) == 3
        assert (step.produced, pytest.approx(step.probability, abs=1e-6)) in step.candidates


@pytest.mark.parametrize("prefix", ["7 7", "77", "7,7"])
@pytest.mark.parametrize("strategy", [GREEDY, Beam(), Sample()])
def test_an_answer_can_begin_with_a_given_prefix(model, task, prefix, strategy):
    seen = inspect(model, task, "4829", strategy=strategy, prefix=prefix)
    assert [step.produced for step in seen.steps[:2]] == ["7", "7"]
    assert [step.forced for step in seen.steps] == [True, True] + [False] * (len(seen.steps) - 2)
    assert seen.maps.cross.shape[-2] == len(seen.steps) > 2
    assert inspect(model, task, "4829", strategy=strategy, prefix=" ").steps == (
        inspect(model, task, "4829", strategy=strategy).steps
    )


@pytest.mark.parametrize(("prefix", "message"), [("7x", "prefix: 'x' at position 2"), ("1" * 16, "prefix has 16 tok")])
def test_invalid_prefixes_are_refused(model, task, prefix, message):
    with pytest.raises(InputError, match=message):
        inspect(model, task, "4829", prefix=prefix)


def test_a_cross_head_forced_to_anti_diagonal_attends_to_the_correct_source(tiny):
    task = build_task(tiny.task)
    model = build_model(tiny.model, task, torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        model.output.bias[PAD_ID] = -100
    interventions = Interventions.parse(model.heads, patterns=["cross.1.2=anti-diagonal"], ablate=["encoder"])
    seen, plain = (
        inspect(model, task, "4829", prefix="9 2 8 4", **settings)
        for settings in ({"interventions": interventions}, {})
    )
    assert seen.interventions is interventions
    free, forced = seen.scores
    assert (forced.layer, forced.head, forced.attention_mass, forced.argmax_accuracy) == (1, 2, 1.0, 1.0)
    assert free.attention_mass < 0.9
    # The log-probability is that of the model with the interventions.
    chosen = torch.tensor([step.probability for step in seen.steps])
    assert seen.log_prob == pytest.approx(chosen.log().sum().item(), abs=1e-4)
    assert seen.log_prob != pytest.approx(plain.log_prob, abs=1e-3)
    assert plain.interventions is None
