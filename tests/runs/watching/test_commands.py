"""What commands, uploads and visitors see of a watched training."""

import json

import pytest
import torch

from benchmarks import model_styles as styles
from core import lab
from core.__main__ import main
from core.config import preset_to_yaml
from core.runs import RunError, Runs
from core.runs.importing import import_run
from core.server import Runs as ServedRuns
from core.server.access import Visitor, VisitorRuns
from core.storage.errors import UnavailableError
from core.storage.tensor_file import save_weights
from tests.runs.watching.loops import BATCH, OPTIONS, made

REFUSED = "is trained by your own program, which lab.watch records"


@pytest.fixture
def root(tmp_path):
    """A folder of runs with one that is watched, and its findings."""
    with lab.watch(made()[0], BATCH, name="mine", root=tmp_path, **OPTIONS) as watch:
        watch.step(1.0)
        watch.diagnose(bos=styles.BOS, eos=styles.EOS)
    return tmp_path


def test_commands_show_what_there_is_and_refuse_the_rest(root, capsys):
    assert main(["--checkpoints", str(root), "runs", "--json"]) == 0
    table, listed = capsys.readouterr().out.rsplit("\n", 2)[:2]
    assert "TorchTransformer, trained by your own loop and watched" in table
    assert json.loads(listed)["runs"][0]["steps"] is None
    assert main(["--checkpoints", str(root), "doctor", "--run", "mine"]) == 0
    assert "pass causal leak" in capsys.readouterr().out
    assert main(["--checkpoints", str(root), "analyze", "--run", "mine", "--health"]) == 0
    assert "cross" in capsys.readouterr().out
    for command in (["decode", "a"], ["evaluate"], ["report"], ["resume"], ["export", "--out", str(root / "x.zip")]):
        assert main(["--checkpoints", str(root), *command, "--run", "mine"]) == 2
        assert REFUSED in capsys.readouterr().err
    (root / "mine/doctor.json").unlink()
    assert main(["--checkpoints", str(root), "doctor", "--run", "mine"]) == 2
    assert "has no findings yet: call watch.diagnose(bos=…, eos=…)" in capsys.readouterr().err


def test_a_file_that_claims_to_be_one_is_not_imported(root, tmp_path):
    facts = {"step": 1, "preset": preset_to_yaml(Runs(root)["mine"].preset), "validation_loss": 1.0, "exact_match": 0.0}
    save_weights(tmp_path / "file.safetensors", {"weight": torch.zeros(2)}, facts)
    with pytest.raises(UnavailableError, match=REFUSED.replace(".", r"\.")):
        import_run(tmp_path / "runs", tmp_path / "file.safetensors", name="other")
    assert not (tmp_path / "runs").exists()


def test_visitors_of_a_public_server_do_not_see_it(root):
    runs = ServedRuns(root)
    visitor = VisitorRuns(runs, lambda: Visitor("somebody"))
    assert "mine" not in list(visitor)
    with pytest.raises(RunError, match="there is no such run"):
        _ = visitor["mine"]
    assert list(VisitorRuns(runs)) == ["mine"]
    runs.close()
