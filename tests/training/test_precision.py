"""``precision: auto`` is bfloat16 where the device has instructions for it, and float32 elsewhere."""

import pytest
import torch

from core.training.loop import StepEvent, train
from core.training.optimizers import build_optimizer
from core.training.precision import computes_in_bfloat16, has_bfloat16
from core.training.state import new_state

MUON = {"training.optimizer": "muon", "training.muon_learning_rate": 0.02}


@pytest.fixture(autouse=True)
def _forget():
    has_bfloat16.cache_clear()
    yield
    has_bfloat16.cache_clear()


def cpu_with(monkeypatch, *instructions: str) -> None:
    capabilities = {"architecture": "x86_64", "avx2": True} | dict.fromkeys(instructions, True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)


@pytest.mark.parametrize(
    ("instructions", "expected"),
    [
        ((), False),
        (("avx512_f", "avx512_vnni"), False),  # computes in bfloat16 by way of float32
        (("avx512_f", "avx512_bf16"), True),
        (("amx_tile", "amx_bf16"), True),
        (("neon", "bf16"), True),
    ],
)
def test_auto_follows_the_instructions_of_the_cpu(monkeypatch, tiny, instructions, expected):
    cpu_with(monkeypatch, *instructions)
    assert computes_in_bfloat16(tiny.with_changes({"training.precision": "auto"}).training, "cpu") is expected
    assert computes_in_bfloat16(tiny.with_changes({"training.precision": "bfloat16"}).training, "cpu")
    assert not computes_in_bfloat16(tiny.with_changes({"training.precision": "float32"}).training, "cpu")


def test_auto_on_a_gpu_asks_the_gpu(monkeypatch, tiny):
    training = tiny.with_changes({"training.precision": "auto"}).training
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: not including_emulation)
    assert computes_in_bfloat16(training, torch.device("cuda", 0))
    assert not computes_in_bfloat16(training, "mps")


@pytest.mark.parametrize(("instructions", "same_as"), [(("amx_bf16",), "bfloat16"), ((), "float32")])
def test_a_training_with_auto_has_the_losses_of_the_precision_it_stands_for(monkeypatch, tiny, instructions, same_as):
    cpu_with(monkeypatch, *instructions)
    losses = {}
    for precision in ("auto", "float32", "bfloat16"):
        changes = {"training.precision": precision, "training.steps": 8} | MUON
        events = train(new_state(tiny.with_changes(changes | {"training.warmup_steps": 2})))
        losses[precision] = [event.loss for event in events if isinstance(event, StepEvent)]
    assert losses["auto"] == losses[same_as]
    assert losses["float32"] != losses["bfloat16"]


def test_muon_takes_the_precision_too(monkeypatch, tiny):
    state = new_state(tiny.with_changes({"training.precision": "auto"} | MUON))
    dtypes = []
    for instructions in ((), ("avx512_bf16",)):
        has_bfloat16.cache_clear()
        cpu_with(monkeypatch, *instructions)
        dtypes.append(build_optimizer(state.preset.training, state.model).dtype)
    assert dtypes == [None, torch.bfloat16]
