"""Results of presets as the documentation reports them; each is trained to its end. ``-s`` prints the results."""

import statistics
import time
from functools import lru_cache
from operator import itemgetter

import pytest
import torch

from core.config import load_preset
from core.evaluation.accuracy import evaluate
from core.interpret.ablation import ablation_grid
from core.interpret.head_scores import best_head_of_layer
from core.interpret.head_table import measure_heads
from core.interpret.inspection import inspect
from core.models import count_parameters
from core.reports.report import measure
from core.reports.report.documented_examples import documented_examples
from core.tasks import fixed_pairs
from core.teaching.bugs import new_state
from core.training.loop import train
from core.training.state import TrainingState

MAX_SECONDS = 600  # of processor time: a busy machine takes longer
pytestmark = pytest.mark.slow


@lru_cache(maxsize=3)  # the seeds of one preset
def trained(preset: str, seed: int = 0) -> TrainingState:
    """Train a preset to its end on one thread, as the page does; the model is left in evaluation mode."""
    torch.set_num_threads(1)
    state = new_state(load_preset(preset).with_changes({"training.seed": seed}))
    started = time.thread_time()
    for _ in train(state):
        pass
    seconds = time.thread_time() - started
    print(f"\n{preset}, seed {seed}: {count_parameters(state.model):,} parameters, {seconds:.0f} s", end="")
    assert seconds < MAX_SECONDS
    state.model.eval()
    return state


@pytest.mark.parametrize(
    ("preset", "parameters", "min_accuracy"),
    [("digits-reversal", 169_933, 0.97), ("digits-reversal-gru", 59_853, 0), ("numbers-reversal", 171_284, 0)],
)
def test_presets_with_fresh_data_are_solved_with_three_seeds(preset: str, parameters: int, min_accuracy: float) -> None:
    exact, masses, accuracies = [], [], []
    for seed in range(3):
        state = trained(preset, seed)
        assert count_parameters(state.model) == parameters
        pairs = fixed_pairs(state.task, 10_000, split="test")
        assert len(pairs) == 10_000
        measured = measure(state.model, state.task, pairs)
        exact.append(measured.exact_match)
        assert measured.evaluation.loss < 0.01
        scores = measured.head_scores()
        best = best_head_of_layer(scores, layer=scores[-1].layer)
        masses.append(round(best.attention_mass, 3))
        accuracies.append(round(best.argmax_accuracy, 4))
        if preset == "numbers-reversal":
            assert inspect(state.model, state.task, "5 12 7 3 9 11").output == ["11", "9", "3", "7", "12", "5"]
    print(f"\n{preset}: exact match {exact}; best last-layer head: mass {masses}, argmax accuracy {accuracies}")
    assert statistics.median(exact) >= 0.999
    assert min(accuracies) >= min_accuracy


def test_ablating_the_aligned_head_of_digits_reversal_costs_most() -> None:
    for seed in range(3):
        state = trained("digits-reversal", seed)
        pairs = fixed_pairs(state.task, 1_000, split="test")
        scores = measure_heads(state.model, state.task, pairs)
        cells = [cell for cell in ablation_grid(state.model, state.task, pairs) if cell.head]
        losses = {(cell.block, cell.layer, cell.head): -cell.change for cell in cells}
        aligned = [head for head in scores.itertuples() if head.aer_produced <= 0.01]
        name, loss = max(
            (((h.block, h.layer, h.head), losses[h.block, h.layer, h.head]) for h in aligned), key=itemgetter(1)
        )
        aer = next(head.aer_produced for head in aligned if (head.block, head.layer, head.head) == name)
        typical = statistics.median(losses.values())
        print(
            f"\nseed {seed}: {name} AER {aer:.2%}, ablated {loss:.1%} less exact match; median head {typical:.1%}",
            end="",
        )
        assert loss > max(0.03, 10 * typical)


@pytest.mark.parametrize(("preset", "minimum"), [("words-reversal-gru", 0.995), ("words-reversal-transformer", 0.999)])
def test_reversal_of_sentences_is_learned_from_8000_of_them(preset: str, minimum: float) -> None:
    state = trained(preset)
    for count in (1_000, 10_000):
        measured = measure(state.model, state.task, fixed_pairs(state.task, count, split="test"))
        print(f"\n{preset}: exact match on {count:,} test sentences {measured.exact_match}", end="")
        assert measured.exact_match >= minimum
        assert measured.padding.padded >= minimum


@pytest.mark.parametrize("preset", ["words-reversal-gru", "words-reversal-transformer"])
def test_all_ten_example_sentences_of_the_document_are_reversed(preset: str) -> None:
    state = trained(preset)
    examples = documented_examples(state.model, state.task)
    assert examples is not None
    print(f"\n{preset}: {examples.matches} of {len(examples.table) - 1} example sentences", end="")
    assert (examples.matches, len(examples.table) - 1) == (10, 10)


def test_numbers_reversal_as_told_is_wrong_despite_a_low_loss() -> None:
    state = trained("numbers-reversal-as-told")
    measured = measure(state.model, state.task, fixed_pairs(state.task, 10_000, split="test"))
    output = inspect(state.model, state.task, "5 12 7 3 9 11").output
    print(f"\nloss {measured.evaluation.loss:.4f}, stopped {measured.stopped:.2%}; 5 12 7 3 9 11 → {' '.join(output)}")
    assert measured.evaluation.loss < 0.1
    assert measured.exact_match == 0
    assert output != ["11", "9", "3", "7", "12", "5"]


def test_the_gru_as_told_is_right_in_a_padded_batch_and_wrong_alone() -> None:
    state = trained("words-reversal-gru-as-told", 42)
    pairs = fixed_pairs(state.task, 1_000, split="test")
    measured, padded = measure(state.model, state.task, pairs), evaluate(state.model, pairs)
    print(f"\nexact match in a padded batch {padded.exact_match:.2%}, alone {measured.exact_match:.2%}")
    assert padded.exact_match >= 0.99
    assert measured.exact_match < 0.5
