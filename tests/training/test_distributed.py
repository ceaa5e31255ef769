"""Two processes that train one run make the updates of one process, and stop two_processes."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from core.config import Preset, load_preset, preset_to_yaml
from core.runs.training_state import load_state
from core.tasks import training_batches
from core.teaching.bugs import new_state
from core.training.checkpoint import save_state
from core.training.distributed import ProcessGroup, process_group
from core.training.loop import EndEvent, train
from core.training.state import TrainingState
from tests.support.distributed_worker import prepare_state, train_and_record, train_in_two_processes

OPTIONS = {
    "fresh": {"training.batch_size": 9},  # five rows and four
    "fresh-by-length": {"training.group_by_length": True},
    "epochs": {"training.training_sequences": 20, "training.batch_size": 7, "training.label_smoothing": 0.1},
    "epochs-by-length": {"training.training_sequences": 20, "training.group_by_length": True},
    "fresh-by-tokens": {"training.group_by_length": True, "training.tokens_per_batch": 50},
    "epochs-by-tokens": {  # every epoch has a batch of one row, which leaves a rank without any
        "training.training_sequences": 20,
        "training.group_by_length": True,
        "training.tokens_per_batch": 14,
    },
    "muon": {"training.optimizer": "muon", "training.muon_learning_rate": 0.02},
    "accumulated": {
        "training.gradient_accumulation_steps": 3,
        "training.batch_size": 5,
        "training.max_gradient_norm": 0.1,
    },
}
EQUAL_TO_ONE = {
    "transformer": tuple(OPTIONS),
    "gru": ("fresh", "epochs-by-length"),
    "decoder-only": ("fresh-by-length",),
    "encoder-only": ("fresh",),
}
FAMILY_OF = {f"{family}-{option}": family for family, options in EQUAL_TO_ONE.items() for option in options}
NAMES = list(FAMILY_OF)
WITH_DROPOUT = ("transformer-dropout", "gru-dropout")
STEPS = 4


@dataclass(frozen=True)
class TwoProcessRuns:
    """What two processes wrote for every preset."""

    folder: Path
    presets: dict[str, Preset]

    def losses_and_norms(self, name: str, rank: int = 0) -> list[list[float]]:
        """Return loss and gradient norm of each step."""
        return json.loads((self.folder / f"{name}.{rank}.json").read_text())

    def state(self, name: str, rank: int = 0) -> TrainingState:
        """Return the final state, its weights in float32."""
        return load_state(self.folder / f"{name}.{rank}.safetensors", self.presets[name])


@pytest.fixture(scope="module")
def two_processes(tiny, tiny_gru, tmp_path_factory) -> TwoProcessRuns:
    """Let two processes train all presets of this module, one after the other."""
    folder = tmp_path_factory.mktemp("two_processes")
    tiny = tiny.with_changes({"training.steps": STEPS})
    base = {"transformer": tiny, "gru": tiny_gru.with_changes({"training.steps": STEPS, "model.dropout": 0.0})}
    for family in ("decoder-only", "encoder-only"):
        base[family] = tiny.with_changes({"model.family": family, "model.max_seq_len": 32})
    presets = {
        name: base[family].with_changes(OPTIONS[name.removeprefix(f"{family}-")]) for name, family in FAMILY_OF.items()
    }
    presets |= {"float32-transformer": tiny, "stopped": tiny, "resumed": tiny}
    presets |= {name: base[name.split("-")[0]].with_changes({"model.dropout": 0.2}) for name in WITH_DROPOUT}
    for name, preset in presets.items():
        (folder / f"{name}.yaml").write_text(preset_to_yaml(preset))
    start = prepare_state(tiny, "resumed")
    train_and_record(start, steps=2)
    save_state(folder / "resumed.start.safetensors", start)
    train_in_two_processes(folder, timeout=300)
    return TwoProcessRuns(folder, presets)


def weights_of(state) -> dict[str, torch.Tensor]:
    return {name: weight.float() for name, weight in state.model.state_dict().items()}


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_make_the_updates_of_one(two_processes, name):
    alone = prepare_state(two_processes.presets[name], name)
    figures = train_and_record(alone)
    assert len(figures) == STEPS
    assert_close(torch.tensor(two_processes.losses_and_norms(name)), torch.tensor(figures), atol=1e-6, rtol=1e-6)
    for rank in (0, 1):
        assert_close(weights_of(two_processes.state(name, rank)), weights_of(alone), atol=1e-6, rtol=1e-6)


def test_a_rank_has_no_rows_in_one_of_those_comparisons(two_processes):
    config = two_processes.presets["transformer-epochs-by-tokens"].training
    task = new_state(two_processes.presets["transformer-epochs-by-tokens"]).task
    batches = training_batches(
        task,
        sequences=config.training_sequences,
        batch_size=config.batch_size,
        group_by_length=True,
        tokens_per_batch=config.tokens_per_batch,
        seed=config.seed,
    )
    sizes = [len(batches.at(step, torch.Generator())) for step in range(1, STEPS + 1)]
    assert 1 in sizes
    assert max(sizes) > 1


@pytest.mark.slow
def test_two_processes_make_the_updates_of_one_for_long(tmp_path):
    """A hundred steps of a preset differ only by rounding, which training magnifies."""
    preset = load_preset("digits-reversal").with_changes({"training.steps": 100})
    for name in ("double", "float32"):
        (tmp_path / f"{name}.yaml").write_text(preset_to_yaml(preset))
    train_in_two_processes(tmp_path, timeout=600)
    both = TwoProcessRuns(tmp_path, {})
    for name, same in (("double", 100), ("float32", 10)):
        alone = torch.tensor(train_and_record(prepare_state(preset, name)), dtype=torch.float64)
        difference = (torch.tensor(both.losses_and_norms(name), dtype=torch.float64) - alone)[:, 0].abs()
        print(f"{name}: largest difference of the loss, first 10 steps {difference[:10].max():.0e}", end=", ")
        print(f"25 {difference[:25].max():.0e}, 100 {difference.max():.0e}")
        assert difference[:same].max() < 1e-5


def test_in_float32_the_losses_agree_to_five_decimals(two_processes):
    name = "float32-transformer"
    alone = train_and_record(prepare_state(two_processes.presets[name], name))
    losses, expected = ([loss for loss, _ in each] for each in (two_processes.losses_and_norms(name), alone))
    assert losses == pytest.approx(expected, abs=1e-5)


def test_the_ranks_have_different_numbers_of_tokens_in_those_comparisons(two_processes):
    state = new_state(two_processes.presets["transformer-fresh"])
    batches = [state.task.sample(9, split="train", generator=state.generator) for _ in range(STEPS)]
    lengths = [[(batch[ProcessGroup(rank, 2).rows].tgt_out != 0).sum() / 9 for rank in (0, 1)] for batch in batches]
    assert any(first != second for first, second in lengths)


@pytest.mark.parametrize("name", [*NAMES, *WITH_DROPOUT])
def test_both_ranks_end_with_the_same_weights_and_generator(two_processes, name):
    first, second = (two_processes.state(name, rank) for rank in (0, 1))
    assert two_processes.losses_and_norms(name, 0) == two_processes.losses_and_norms(name, 1)
    assert_close(weights_of(first), weights_of(second), atol=0, rtol=0)
    assert torch.equal(first.generator.get_state(), second.generator.get_state())
    preset = two_processes.presets[name]
    assert first.sequences_seen == second.sequences_seen
    if not preset.training.tokens_per_batch:
        assert first.sequences_seen == STEPS * preset.sequences_per_step


def test_a_run_resumes_with_more_or_fewer_processes(two_processes):
    straight = prepare_state(two_processes.presets["resumed"], "resumed")
    figures = train_and_record(straight)
    assert_close(
        torch.tensor(two_processes.losses_and_norms("resumed")), torch.tensor(figures[2:]), atol=1e-5, rtol=1e-5
    )
    assert_close(weights_of(two_processes.state("resumed")), weights_of(straight), atol=1e-5, rtol=1e-5)
    alone = prepare_state(two_processes.presets["stopped"], "stopped", two_processes.folder / "stopped.0.safetensors")
    assert alone.step == 2
    assert_close(torch.tensor(train_and_record(alone)), torch.tensor(figures[2:]), atol=1e-5, rtol=1e-5)


# --- one rank with a simulated other ----------------------------------------------------------------------------


@pytest.fixture
def first_of_two(monkeypatch) -> Callable[[Callable[[torch.Tensor], None]], ProcessGroup]:
    """Rank 0 of two; the argument replaces ``torch.distributed.all_reduce``."""

    def build(all_reduce: Callable[[torch.Tensor], None]) -> ProcessGroup:
        monkeypatch.setattr("torch.distributed.all_reduce", lambda tensor, how: all_reduce(tensor))
        return ProcessGroup(0, 2)

    return build


def test_the_rank_specific_random_stream_differs_by_rank_and_step_and_repeats():
    generator = torch.Generator().manual_seed(3)

    def drawn(rank: int, step: int) -> list[float]:
        with ProcessGroup(rank, 2).rank_specific_rng(generator, seed=0, step=step):
            return torch.rand(4, generator=generator).tolist()

    before = generator.get_state()
    numbers = [drawn(rank, step) for rank in (0, 1) for step in (1, 2)]
    assert len(set(map(tuple, numbers))) == 4
    assert drawn(0, 1) == numbers[0]
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_an_update_interrupted_by_a_lost_process_is_repeated_on_resume(tiny, first_of_two, dropout):
    def fail(_: torch.Tensor) -> None:
        raise RuntimeError("Connection closed by peer")

    preset = tiny.with_changes({"model.dropout": dropout})
    state, straight = new_state(preset), new_state(preset)
    list(islice(train(state), 4))  # evaluated at 0, then three steps
    state.process_group = first_of_two(fail)
    (end,) = train(state)
    assert (end.step, end.reason) == (3, "lost")
    assert end.message.startswith("step 4: another process of this training has ended or did not answer")
    state.process_group = ProcessGroup()
    list(train(state))
    list(train(straight))
    assert_close(weights_of(state), weights_of(straight), atol=0, rtol=0)


def test_a_stop_request_takes_effect_once_all_ranks_know_it(tiny, first_of_two):
    state = new_state(tiny)
    state.process_group = first_of_two(lambda flat: None)  # the other rank adds zeros
    events = train(state)
    list(islice(events, 2))
    state.process_group.request_stop()
    assert not state.process_group.should_stop()  # the other rank is at the next step already and does not know
    next(events)
    assert state.process_group.should_stop()
    alone = ProcessGroup()
    assert not alone.should_stop()
    alone.request_stop()
    assert alone.should_stop()


def test_the_stop_request_of_another_rank_takes_effect(tiny, first_of_two):
    def request_stop(flat: torch.Tensor) -> None:
        flat[1] += 1

    state = new_state(tiny)
    state.process_group = first_of_two(request_stop)
    list(islice(train(state), 2))
    assert state.process_group.should_stop()


def test_a_loss_that_is_not_finite_on_one_rank_ends_all(tiny, first_of_two):
    state = new_state(tiny)
    state.process_group = first_of_two(lambda flat: flat.fill_(float("nan")))
    *_, end = train(state)
    assert isinstance(end, EndEvent)
    assert (end.step, end.reason) == (0, "diverged")


# --- wrong use --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "device", "message"),
    [
        ({"WORLD_SIZE": "16"}, "cpu", "training.batch_size=8 must be at least the number of processes, 16"),
        ({"WORLD_SIZE": "two"}, "cpu", "WORLD_SIZE='two' must be a whole number"),
        ({"WORLD_SIZE": "2", "RANK": "-1"}, "cpu", "RANK='-1' must be a whole number"),
        ({"WORLD_SIZE": "2"}, "mps", "--device=mps trains in one process"),
        ({"WORLD_SIZE": "2", "LOCAL_RANK": "9"}, "cuda", "--nproc-per-node must be at most"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "cpu", "MASTER_ADDR expected, but not set; start the processes with torch"),
    ],
)
def test_an_impossible_environment_is_refused_by_name(tiny, monkeypatch, environment, device, message):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message), process_group(tiny, device):
        pass


def test_a_token_budget_too_small_for_all_processes_is_refused_by_name(tiny, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    preset = tiny.with_changes({"training.group_by_length": True, "training.tokens_per_batch": 20})
    message = "training.tokens_per_batch=20 must be at least 21, one of the longest sequences, 7 tokens, for each of 3"
    with pytest.raises(ValueError, match=message), process_group(preset, "cpu"):
        pass


def test_one_process_of_torchrun_is_an_ordinary_training(tiny, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    with process_group(tiny, "cpu") as group:
        assert (group.rank, group.world_size, group.rows) == (0, 1, slice(0, None, 1))
    assert not torch.distributed.is_initialized()
