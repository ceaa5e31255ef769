"""Fourier power of embeddings: constructed circles, the definition written out, and a run that shows it."""

import math

import pytest
import torch

from core.config import load_preset
from core.interpret.fourier import fourier_power, number_embeddings
from core.interpret.health_course import health_series
from core.runs.run import Runs
from core.storage.errors import InputError
from core.teaching.bugs import new_state
from tests.support.trainings import train_run


def circle(count: int, frequency: int, *, width: int = 8, seed: int = 0) -> torch.Tensor:
    """Vectors (count, width) on a circle of radius 1 in a random plane, ``frequency`` times around."""
    plane, _ = torch.linalg.qr(torch.randn(width, 2, generator=torch.Generator().manual_seed(seed)))
    angles = 2 * math.pi * frequency * torch.arange(count) / count
    return torch.stack([angles.cos(), angles.sin()], dim=1) @ plane.T


@pytest.mark.parametrize(("count", "frequency"), [(97, 1), (97, 48), (53, 17), (12, 5)])
def test_a_circle_has_all_its_power_at_its_frequency(count, frequency):
    power = fourier_power(circle(count, frequency) + 3.0)  # wherever its center is
    assert power.shape == (count // 2,)
    assert power[frequency - 1].item() == pytest.approx(1, abs=1e-6)


def test_circles_share_the_power_by_the_squares_of_their_radii():
    power = fourier_power(3 * circle(31, 4) + circle(31, 9, seed=1))
    assert power[[3, 8]].tolist() == pytest.approx([0.9, 0.1], abs=1e-5)


@pytest.mark.parametrize("count", [7, 8])
def test_shares_are_those_of_sines_and_cosines(count):
    vectors = torch.randn(count, 5, generator=torch.Generator().manual_seed(0)).double()
    n, expected = torch.arange(count), []
    for k in range(1, count // 2 + 1):
        waves = [torch.cos(2 * math.pi * k * n / count), torch.sin(2 * math.pi * k * n / count)]
        units = [wave.double() / wave.double().norm() for wave in waves if wave.norm() > 1e-3]
        expected.append(sum((unit @ vectors).square().sum().item() for unit in units))
    centered = vectors - vectors.mean(dim=0)
    assert sum(expected) == pytest.approx(centered.square().sum().item())  # they are a basis
    assert fourier_power(vectors).tolist() == pytest.approx([each / sum(expected) for each in expected], abs=1e-6)


@pytest.mark.parametrize("family", ["decoder-only", "transformer", "encoder-only", "gru"])
def test_the_numbers_embeddings_are_found_in_every_family(family):
    changes = {"model.family": family, "task.prime": 13}
    state = new_state(load_preset("grokking").with_changes(changes))
    model, vectors = state.model, circle(13, 3, width=state.model.src_embedding.tokens.weight.shape[1])
    with torch.no_grad():
        for number, token in enumerate(state.task.src_vocab.encode(list(map(str, range(13))))):
            model.src_embedding.tokens.weight[token] = vectors[number]
    assert fourier_power(number_embeddings(model, state.task))[2].item() == pytest.approx(1, abs=1e-6)


def test_a_run_records_the_power_at_each_step_and_other_tasks_have_none(tmp_path, tiny):
    small = {"task.prime": 13, "model.d_model": 8, "model.d_ff": 8, "training.steps": 6, "training.evaluate_every": 3}
    runs = Runs(tmp_path)
    run = runs.create(load_preset("grokking").with_changes(small | {"training.warmup_steps": 1}), name="a")
    train_run(run.folder)
    course = [snapshot.health for snapshot in runs["a"].replay.snapshots()]
    series = health_series(course)["fourier_power"]
    assert list(series) == [f"frequency.{k}" for k in range(1, 7)]
    spectrum = runs["a"].trained().fourier_power()
    assert spectrum.index.tolist() == [1, 2, 3, 4, 5, 6]
    assert [values[-1] for values in series.values()] == pytest.approx(spectrum.tolist(), abs=1e-5)
    assert [values[0] for values in series.values()] != pytest.approx(spectrum.tolist(), abs=1e-5)
    other = runs.create(tiny, name="b")
    train_run(other.folder)
    assert health_series([runs["b"].replay.snapshots()[-1].health])["fourier_power"] == {}
    with pytest.raises(InputError, match="run='b' has no embeddings of numbers modulo a prime"):
        runs["b"].trained().fourier_power()
