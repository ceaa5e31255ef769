"""``bench adder``: the protocol's pairs, what counts as right, the count of parameters, and the file it writes.

The count here is an own one: it knows AdderBoard's text and the answers, not ``benchmarks.adder``'s functions.
"""

import importlib.util
import json
import random
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open

from benchmarks import adder
from core.__main__ import main
from core.config import load_preset
from core.interpret.trained import Trained
from core.models import build_model, count_parameters
from core.runs import RunFolder
from core.runs.load import load_run
from core.storage.errors import InputError
from core.tasks import build_task
from core.text.vocab import EOS_ID
from tests.support.command_output import last_json
from tests.support.scripted_models import ScriptedModel

PRESET = load_preset("addition-10-digits")


def counted(add) -> tuple[int, int]:
    """The sums that ``add`` has right by AdderBoard's rules, and how many there are."""
    nines = 10**10 - 1
    cases = [(0, 0), (0, 1), (nines, 0), (nines, 1), (nines, nines), (5 * 10**9, 5 * 10**9)]
    cases += [(1111111111, 8888888889), (1234567890, 9876543210), (nines, nines), (1, nines)]
    rng = random.Random(2025)  # noqa: S311 - the protocol's
    for _ in range(10_000):
        first = rng.randint(0, nines)
        cases.append((first, rng.randint(0, nines)))
    return sum(add(first, second) == first + second for first, second in cases), len(cases)


def careless(src: torch.Tensor) -> torch.Tensor:
    """Sums as the preset writes them, from the last digit to the first, ending in 9 if the first operand ends in 7."""
    zero = build_task(PRESET.task).src_vocab.encode(["0"])[0]
    first, second = src[:, 1:11] - zero, src[:, 12:22] - zero
    carry, digits = torch.zeros_like(src[:, 0]), []
    for column in range(10):
        total = first[:, column] + second[:, column] + carry
        carry = total // 10
        digits.append(total % 10)
    digits[0] = digits[0].where(first[:, 0] != 7, 9)
    return torch.nn.functional.pad(torch.stack([*digits, carry], dim=1) + zero, (0, 1), value=EOS_ID)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An untrained run's folder."""
    root = tmp_path_factory.mktemp("runs")
    arguments = ["--set", "training.steps=1", "--set", "training.warmup_steps=0", "--run", "sums"]
    assert main(["--checkpoints", str(root), "train", "--preset", PRESET.name, *arguments]) == 0
    return RunFolder(root, "sums")


def test_the_count_is_that_of_an_independent_one_on_the_same_answers(run, monkeypatch, capsys):
    careless_run = replace(load_run(run.path), model=ScriptedModel(careless, vocab_size=20))
    monkeypatch.setattr(adder, "load_run", lambda path: careless_run)
    assert main(["--checkpoints", str(run.path.parent), "bench", "adder", "--run", "sums", "--json"]) == 0
    *shown, last = capsys.readouterr().out.splitlines()
    result = json.loads(last)
    pairs = adder.protocol_pairs()
    answers = dict(zip(pairs, adder.add_all(adder.adder_of(careless_run), pairs), strict=True))
    right, total = counted(lambda first, second: answers[first, second])
    assert (result["right"], result["sums"]) == (right, total) == (right, 10_010)
    assert 8_900 < right < 9_200  # a tenth of the first operands end in 7, a tenth of whose sums end in 9 all the same
    assert result["edge_cases_right"] == 10
    assert not result["qualified"]
    assert "not qualified: fewer than 99 % are right" in shown


def test_the_submission_adds_as_the_run_does(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(adder, "RANDOM_PAIRS", 100)
    file = tmp_path / "submission.py"
    command = ["--checkpoints", str(run.path.parent), "bench", "adder", "--run", "sums", "--submission", str(file)]
    assert main([*command, "--json"]) == 0
    result = last_json(capsys.readouterr().out)
    assert result["right"] < 100  # it has hardly been trained
    spec = importlib.util.spec_from_file_location("submission", file)
    submission = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(submission)
    model, metadata = submission.build_model()
    assert metadata["params"] == result["unique_parameters"]
    pairs = adder.protocol_pairs()[:20]
    expected = adder.add_all(adder.adder_of(load_run(run.path)), pairs)
    assert [submission.add(model, *pair) for pair in pairs] == expected
    assert len(set(expected)) > 1
    assert main(command) == 2
    assert "must be a new file with a name that ends in .py" in capsys.readouterr().err


def test_parameters_are_those_of_the_weight_file_and_shared_ones_count_once(run):
    """A weight file stores what was learned, and nothing else; a shared matrix once."""
    with safe_open(run.best, framework="pt") as file:
        stored = sum(file.get_tensor(name).numel() for name in file.keys())  # noqa: SIM118 - it is no mapping
    model = load_run(run.path).model
    assert adder.unique_parameters(model) == stored == count_parameters(model)
    model.layers[0].self_attention.w_k = model.layers[0].self_attention.w_q
    d_model = PRESET.model.d_model
    assert adder.unique_parameters(model) == stored - d_model * (d_model + 1)


def test_learned_positions_count_and_fixed_ones_do_not():
    task = build_task(PRESET.task)
    counts = {}
    for positions in ("rope", "sinusoidal", "learned"):
        config = PRESET.with_changes({"model.positions": positions, "model.position_period": 0}).model
        counts[positions] = adder.unique_parameters(build_model(config, task, torch.Generator().manual_seed(0)))
    assert counts["rope"] == counts["sinusoidal"]
    # A table for the source and one for the target, each with a row for every place in both together.
    assert counts["learned"] - counts["rope"] == 2 * 2 * PRESET.model.max_seq_len * PRESET.model.d_model


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task.max_digits": 9}, "must be trained on task.family='addition', task.max_digits=10"),
        ({"task.family": "digits"}, "must be trained on task.family='addition'"),
        ({"model.family": "gru"}, "must have self-attention, which model.family='gru' has not"),
    ],
    ids=str,
)
def test_runs_that_cannot_qualify_are_refused(changes, message):
    preset = PRESET.with_changes(changes)
    task = build_task(preset.task)
    model = build_model(preset.model, task, torch.Generator().manual_seed(0))
    with pytest.raises(InputError, match=message):
        adder.adder_of(Trained("sums", "best", 1, preset, task, model))
