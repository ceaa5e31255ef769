"""Results of one preset per task on held-out data; each is trained to its end. ``-s`` prints the results."""

import math
import time
from itertools import pairwise

import pytest
import torch

from core.config import load_preset
from core.evaluation.accuracy import evaluate
from core.evaluation.ngram import MAX_ORDER, NGram
from core.evaluation.outputs import decode_unpadded, exact_match_unpadded
from core.interpret.induction import RepeatedTokens
from core.models import count_parameters
from core.tasks import Batch, fixed_pairs
from core.teaching.bugs import new_state
from core.training.loop import EvaluationEvent, train
from core.training.state import TrainingState

MAX_SECONDS = 600
pytestmark = pytest.mark.slow


def trained(preset: str, *, max_seconds: float = MAX_SECONDS) -> TrainingState:
    """Train a preset to its end on one torch thread; the model is left in evaluation mode.

    Processor time is measured, so that other programs on the machine do not count.
    """
    torch.set_num_threads(1)
    started = time.process_time()
    state = new_state(load_preset(preset))
    for _ in train(state):
        pass
    seconds = time.process_time() - started
    print(f"\n{preset}: {count_parameters(state.model):,} parameters, {seconds:.0f} s of one core", end="")
    assert seconds < max_seconds
    state.model.eval()
    return state


def exact_match(state: TrainingState, pairs: Batch) -> float:
    """Return the exact match of held-out pairs, free-running and without padding; print that in padded batches too."""
    padded, unpadded = evaluate(state.model, pairs), exact_match_unpadded(state.model, pairs)
    print(f"; exact match {unpadded:.2%} of {len(pairs):,} held-out, {padded.exact_match:.2%} in padded batches")
    return unpadded


@pytest.mark.parametrize(
    ("preset", "minimum"),
    [
        ("copy-digits", 0.999),
        ("sort-digits", 0.99),
        ("deduplicate-digits", 0.99),
        ("addition", 0.99),
        ("pattern-completion", 0.99),
        ("masked-digits", 0.99),
        ("induction", 0.99),
        ("recall", 0.99),
    ],
)
def test_presets_solve_10000_held_out_inputs(preset: str, minimum: float) -> None:
    state = trained(preset)
    pairs = fixed_pairs(state.task, 10_000, split="test")
    assert len(pairs) == 10_000
    assert exact_match(state, pairs) >= minimum


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("preset", ["induction", "recall"])
def test_induction_heads_form_where_the_loss_falls(preset: str, seed: int) -> None:
    torch.set_num_threads(1)
    state = new_state(load_preset(preset).with_changes({"training.seed": seed}))
    repeated = RepeatedTokens.like(fixed_pairs(state.task, 32, split="validation"), state.task, state.model)
    losses, scores = {}, {}
    for event in train(state):
        if isinstance(event, EvaluationEvent):
            losses[event.step], scores[event.step] = event.evaluation.loss, repeated.scores(state.model)
    best = {step: each.induction.max().item() for step, each in scores.items()}
    middle = max(best.values()) / 2 + min(best.values()) / 2
    formed = next(step for step, score in best.items() if score > middle)
    falls = {step: before / loss for (_, before), (step, loss) in pairwise(losses.items())}
    fastest = max(falls, key=falls.get)
    print(f"\n{preset}, seed {seed}: score {best[0]:.2f} to {max(best.values()):.2f}, ", end="")
    print(f"half-way at step {formed}; the loss falls fastest at step {fastest}")
    assert max(best.values()) > 3 * best[0]  # about that of uniform attention
    assert abs(formed - fastest) <= 30
    assert losses[formed - 40] > 5 * losses[formed + 40]
    last = scores[state.preset.training.steps]
    assert last.induction[1].max() == last.induction.max()  # in the second layer,
    assert last.previous_token[0].max() == last.previous_token.max()  # with a head of the first that it needs


@pytest.mark.parametrize("language", ["french", "german"])
def test_number_words_are_translated_after_1000_examples(language: str) -> None:
    state = trained(f"number-words-{language}")
    assert state.preset.training.training_sequences == 1_000
    pairs = fixed_pairs(state.task, 10_000, split="test")
    exact = exact_match(state, pairs)
    quality = decode_unpadded(state.model, pairs).quality(state.task)
    print(f"BLEU {quality.bleu:.2f} ({quality.bleu_signature}), chrF {quality.chrf:.2f} ({quality.chrf_signature})")
    assert quality.bleu >= 90
    assert exact >= 0.9


def test_the_language_model_beats_n_grams_of_any_order() -> None:
    state = trained("psalms", max_seconds=7_200)
    known, held_out = state.task.lines("train"), state.task.lines("test")
    own = evaluate(state.model, fixed_pairs(state.task, len(held_out), split="test"))
    num_tokens = len(state.task.tgt_vocab.symbols) + 1
    orders = range(1, MAX_ORDER + 1)
    counted = [math.exp(NGram(known, order=order, num_tokens=num_tokens).loss(held_out)) for order in orders]
    print(f"; perplexity per character {own.perplexity:.3f}; of 1- to {MAX_ORDER}-grams", end=" ")
    print([round(each, 3) for each in counted])
    assert own.perplexity < min(counted)
