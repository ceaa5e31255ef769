"""The preset grokking groks: training pairs are memorized first, and held-out pairs are answered ten times later."""

import pytest
import torch

from core.config import load_preset
from core.generation import generate
from core.interpret.health_course import health_series, health_steps
from core.interpret.trained import Trained
from core.runs.run import Run, Runs
from core.text.vocab import BOS_ID, EOS_ID
from tests.support.trainings import train_run


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    runs = Runs(tmp_path_factory.mktemp("runs"))
    train_run(runs.create(load_preset("grokking"), name="a").folder)
    return runs["a"]


def first_step(run: Run, measure: str) -> int:
    """The first evaluation at which a share is above 95 %."""
    history = run.history.table()
    return int(history.index[history[measure] > 0.95][0])


def count_right(trained: Trained) -> tuple[int, int]:
    """Test pairs whose answer is the one number c with a + b - c divisible by 59, and all test pairs."""
    table = trained.task.all_pairs("test")
    src = table[torch.arange(len(table))].src
    ids = trained.task.tgt_vocab.encode([str(number) for number in range(59)])
    number_of = {token: number for number, token in enumerate(ids)}
    right = 0
    tokens = generate(trained.model, src, max_steps=2).tokens
    for (bos, a, _, b, eos), (c, end) in zip(src.tolist(), tokens.tolist(), strict=True):
        assert (bos, eos) == (BOS_ID, EOS_ID)
        right += end == EOS_ID and c in number_of and (number_of[a] + number_of[b] - number_of[c]) % 59 == 0
    return right, len(src)


@pytest.mark.slow
def test_held_out_sums_are_right_ten_times_later_than_training_sums(run):
    memorized, grokked = first_step(run, "train_exact_match"), first_step(run, "exact_match")
    assert grokked > 10 * memorized
    history = run.history.table().dropna(subset=["exact_match"])
    between = history[(history.index > 2 * memorized) & (history.index < grokked / 2)]
    assert between["train_exact_match"].median() == 1
    assert between["exact_match"].median() < 0.05  # chance is 1 in 59
    trained = run.trained()
    right, count = count_right(trained)
    assert right / count > 0.95
    assert right / count == pytest.approx(trained.evaluate(count).exact_match)


@pytest.mark.slow
def test_the_numbers_come_to_lie_on_a_few_circles(run):
    course = health_steps(run.replay.snapshots())
    power = health_series(health for _, health in course)["fourier_power"]
    assert len(power) == 29
    strongest = {step: max(values[at] for values in power.values()) for at, (step, _) in enumerate(course)}
    memorized = first_step(run, "train_exact_match")
    assert max(share for step, share in strongest.items() if step <= 2 * memorized) < 0.1
    few = sorted((values[-1] for values in power.values()), reverse=True)[:6]
    assert sum(few) > 0.7
