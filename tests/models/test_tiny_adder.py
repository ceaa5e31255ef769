"""The documented example of a tiny adder: its count of parameters, and that its blocks do what their docstrings say."""

import cmath
import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from benchmarks import adder
from core import lab, plugins
from core.__main__ import main
from core.config import Preset, load_preset
from core.config.preset import PLUGIN_FILES
from core.interpret.attribution.direct_logit_attribution import direct_logit_attribution
from core.interpret.attribution.prediction import prediction_at
from core.models import Seq2Seq, build_model, parameters_of
from core.runs.load import load_run
from core.storage.errors import InputError
from core.tasks import Task, build_task

EXAMPLE = Path(__file__).parents[2] / "docs/examples/tiny_adder.py"
QUICK = {
    "training.steps": 4,
    "training.warmup_steps": 2,
    "training.evaluate_every": 2,
    "training.validation_sequences": 8,
}


ADD = """
import json, sys
import submission
model, metadata = submission.build_model()
sums = [submission.add(model, *pair) for pair in json.loads(sys.argv[1])]
print(json.dumps({"params": metadata["params"], "sums": sums}))
"""


@pytest.fixture(autouse=True)
def tiny_adder(own_plugins) -> Preset:
    """The example's preset, hardly trained."""
    plugins.load(EXAMPLE)
    return load_preset("tiny-adder").with_changes(QUICK)


@pytest.fixture
def built(tiny_adder) -> tuple[Seq2Seq, Task]:
    """An untrained model and its task."""
    task = build_task(tiny_adder.task)
    return build_model(tiny_adder.model, task, torch.Generator().manual_seed(0)).eval(), task


def test_it_has_51_parameters(built, tiny_adder):
    model, task = built
    arcs, vectors = 2 * 3, 3 * 3  # of the digits read and written; BOS, + and EOS
    attention = 2 * 3 + 2 + 1 + 3 * 3  # keys and their bias, the angle, the map of the output
    feed_forward = 3 * 2 + 4 * 3
    assert arcs + vectors + attention + feed_forward == 51
    assert adder.unique_parameters(model) == parameters_of(tiny_adder.model, task) == 51
    assert "51 parameters" in tiny_adder.description


def test_digits_are_equally_far_apart_on_arcs_of_the_learned_radius(built):
    model, task = built
    ids = task.tgt_vocab.encode([*"0123456789"])
    table = model.tgt_embedding.tokens
    for arc, points in ((table.digits, table.weight[ids]), (model.output.digits, written_rows(model)[ids])):
        angles = [cmath.phase(complex(*point[:2])) for point in points.tolist()]
        steps = [(after - before) % math.tau for before, after in itertools.pairwise(angles)]
        assert steps == pytest.approx(9 * [arc.step.item()], abs=1e-5)
        assert points.norm(dim=1).tolist() == pytest.approx(10 * [arc.radius.item()], rel=1e-5)
    assert model.src_embedding is None  # operands and sum share the table


def written_rows(model: Seq2Seq) -> torch.Tensor:
    """The rows (V, D) by which the output scores tokens."""
    return model.output(torch.eye(3)).T


def test_attention_equals_complex_numbers_turned_by_their_positions(built):
    """A pair of dimensions is a complex number, so RoPE and the learned angle are factors."""
    model, _ = built
    block, length = model.layers[0].self_attention, 14
    with torch.no_grad():
        block.key_weight.normal_()
        block.angle.fill_(0.7)
    x = torch.randn(2, length, 3)
    ids = torch.arange(length)[None]
    positions = model.relative(ids, ids)
    ours = block(x, block.keys_values(x, positions), torch.ones(length, length, dtype=torch.bool).tril(), positions)
    keys = torch.view_as_complex((x @ block.key_weight.T + block.key_bias).contiguous())
    for row in range(2):
        for query in range(length):
            turned = keys[row, query] * cmath.exp(1j * (0.7 + math.tau * query / 11))
            scores = [
                (turned * (keys[row, key] * cmath.exp(1j * math.tau * key / 11)).conj()).real / math.sqrt(2)
                for key in range(query + 1)
            ]
            mean = torch.stack(scores).softmax(0) @ x[row, : query + 1]
            assert_close(ours[row, query], block.w_o.weight @ mean, atol=1e-4, rtol=1e-4)


def test_the_feed_forward_network_repeats_with_its_period(built):
    network = built[0].layers[0].feed_forward
    with torch.no_grad():
        network.widen.weight.copy_(torch.tensor([[0.0, math.tau / 10, 0.0], [0.0, 3 * math.tau / 10, 0.0]]))
    totals = torch.zeros(1, 20, 3)
    totals[0, :, 1] = torch.arange(20)
    written = network(totals)[0]
    assert_close(written[:10], written[10:], atol=1e-5, rtol=0)
    phases = totals @ network.widen.weight.T
    parts = [phases[..., 0].sin(), phases[..., 1].sin(), phases[..., 0].cos(), phases[..., 1].cos()]
    assert_close(written, torch.stack(parts, dim=-1)[0] @ network.narrow.weight.T)


def test_its_submission_has_the_file_that_builds_its_blocks_beside_it(tiny_adder, tmp_path, monkeypatch):
    lab.train(tiny_adder, name="mine", root=tmp_path)
    monkeypatch.setattr(adder, "RANDOM_PAIRS", 10)
    file = tmp_path / "submission.py"
    command = ["--checkpoints", str(tmp_path), "bench", "adder", "--run", "mine", "--submission", str(file)]
    assert main(command) == 0
    assert str(EXAMPLE.parent) not in file.read_text()
    assert file.with_name(EXAMPLE.name).read_bytes() == EXAMPLE.read_bytes()
    pairs = adder.protocol_pairs()
    expected = adder.add_all(adder.adder_of(load_run(tmp_path / "mine")), pairs)
    added = subprocess.run(  # a process of its own has not loaded the plugin
        [sys.executable, "-B", "-c", ADD, json.dumps(pairs)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(EXAMPLE.parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert added.returncode == 0, added.stderr
    assert json.loads(added.stdout) == {"params": 51, "sums": expected}
    file.with_name(EXAMPLE.name).write_text("of someone else")
    assert main([*command[:-1], str(tmp_path / "second.py")]) == 2
    assert not (tmp_path / "second.py").exists()
    assert file.with_name(EXAMPLE.name).read_text() == "of someone else"


def test_a_submission_whose_preset_is_in_another_folder_is_refused(tiny_adder, tmp_path, capsys):
    lab.train(tiny_adder, name="mine", root=tmp_path)
    loaded = PLUGIN_FILES[EXAMPLE.name]
    PLUGIN_FILES[EXAMPLE.name] = loaded.model_copy(update={"preset_files": ("/elsewhere/tiny-adder.yaml",)})
    file = tmp_path / "submission.py"
    assert main(["--checkpoints", str(tmp_path), "bench", "adder", "--run", "mine", "--submission", str(file)]) == 2
    assert "its plugin tiny_adder.py needs other files: /elsewhere/tiny-adder.yaml" in capsys.readouterr().err
    assert not file.exists()


def test_direct_logit_attribution_says_that_it_cannot_split_its_output(built):
    model, task = built
    with pytest.raises(InputError, match="can split the built-in output layer only, not a ArcOutput"):
        direct_logit_attribution(model, prediction_at(model, task, task.tokenize("27+58"), step=0))


@pytest.mark.parametrize(("kind", "base"), [("embedding", "Embedding"), ("output", "Output")])
def test_embeddings_and_outputs_of_plugins_derive_from_the_built_in_ones(tiny_adder, kind, base):
    plugins.block(kind, "wrong")(lambda config, generator, vocab_size: torch.nn.Identity())
    preset = tiny_adder.with_changes({f"model.{kind}_block": "wrong"})
    with pytest.raises(
        plugins.PluginError, match=rf"built an object of class Identity; it must be a core\.models\.embeddings\.{base}"
    ):
        build_model(preset.model, build_task(preset.task), torch.Generator())
