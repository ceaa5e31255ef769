"""``evaluate`` decodes each input once with padding and once without, and computes everything from these outputs."""

from pathlib import Path

import pytest
import torch

from core.__main__ import main
from core.config import Preset
from core.interpret.recorded_outputs import decode_recorded, score_recorded_heads
from core.runs import RunFolder
from core.runs.load import load_run
from core.tasks import fixed_pairs
from core.tasks.data import DATA_SEED
from tests.support.command_output import last_json
from tests.support.decodes import Decodes, counted_decodes
from tests.support.trainings import train_run


@pytest.fixture(scope="module")
def translating(tmp_path_factory: pytest.TempPathFactory, tiny: Preset) -> Path:
    """A folder with a run that has BLEU, error rates and heads: ``french``."""
    pytest.importorskip("num2words")
    preset = tiny.with_changes({"task.family": "number-words", "training.training_sequences": 50})
    folder = RunFolder.create(tmp_path_factory.mktemp("checkpoints"), preset, name="french")
    train_run(folder)
    return folder.path.parent


def evaluated(root: Path, run: str, *options: str) -> Decodes:
    """Evaluate a run on 30 inputs and count the decodes."""
    with counted_decodes() as counts:
        assert main(["--checkpoints", str(root), "evaluate", "--run", run, "--sequences", "30", *options]) == 0
    return counts


def test_each_input_is_decoded_once_with_padding_and_once_without(trained, translating):
    task = load_run(trained / "done").task
    repetitive = len(task.breakdown(30, generator=torch.Generator().manual_seed(DATA_SEED)).pairs)
    for root, run, others in ((trained, "done", repetitive), (translating, "french", 0)):
        counts = evaluated(root, run)
        assert len(counts) >= 30
        assert sum(counts.values()) == 2 * 30 + others


def test_with_another_strategy_the_heads_are_scored_on_greedy_outputs(translating, capsys):
    counts = evaluated(translating, "french", "--strategy", "beam", "--json")
    scored = last_json(capsys.readouterr().out)["cross_attention"]
    assert {kind: {count for (of, _), count in counts.items() if of == kind} for kind in ("beam", "greedy")} == {
        "beam": {2},
        "greedy": {1},
    }
    loaded = load_run(translating / "french")
    recorded = decode_recorded(loaded.model, loaded.task, fixed_pairs(loaded.task, 30, split="test"))
    masses = [round(score.attention_mass, 4) for score in score_recorded_heads(recorded.steps)]
    assert [score["attention_mass"] for score in scored] == masses
