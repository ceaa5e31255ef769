"""The documented example of own blocks: RMSNorm, SwiGLU and grouped-query attention do what their papers say.

They are decoded, exported and examined as built-in blocks are.
"""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from core import lab, plugins
from core.__main__ import main
from core.config import ConfigError, Preset, load_preset
from core.config.sections import BLOCKS
from core.generation import generate
from core.graphs import forward_graph
from core.graphs.graph import weights_of
from core.interpret.attribution.direct_logit_attribution import direct_logit_attribution
from core.interpret.attribution.logit_lens import logit_lens
from core.interpret.attribution.prediction import prediction_at
from core.interpret.cell import cell_arithmetic
from core.models import Seq2Seq, build_model, forward_with_attention
from core.models.attention import MultiHeadAttention
from core.models.hooks import hooks
from core.runs import RunFolder
from core.runs.importing import import_run
from core.runs.onnx_export import generate_with_onnx
from core.storage.errors import InputError
from core.storage.optional_imports import is_installed
from core.tasks import Task, build_task, fixed_pairs
from core.teaching.doctor import examine_preset
from core.text.vocab import PAD_ID, until_eos

ONNX = ("onnx", "onnxscript", "onnxruntime")
EXAMPLE = Path(__file__).parents[2] / "docs/examples/modern_blocks.py"
QUICK = {
    "model.d_model": 32,
    "model.d_ff": 40,
    "training.steps": 8,
    "training.batch_size": 8,
    "training.warmup_steps": 2,
    "training.evaluate_every": 4,
    "training.validation_sequences": 16,
}


@pytest.fixture(autouse=True)
def modern(own_plugins) -> Preset:
    """The example's preset, small."""
    plugins.load(EXAMPLE)
    return load_preset("modern-reversal").with_changes(QUICK)


def build(preset: Preset) -> tuple[Seq2Seq, Task]:
    task = build_task(preset.task)
    return build_model(preset.model, task, torch.Generator().manual_seed(0)).eval(), task


def block(kind: str, name: str, preset: Preset):
    return BLOCKS[kind][name](preset.model, torch.Generator().manual_seed(0))


def test_rms_norm_equals_that_of_pytorch(modern):
    ours, theirs = block("norm", "rms", modern), torch.nn.RMSNorm(32, eps=1e-6)
    with torch.no_grad():
        ours.weight.copy_(torch.rand(32))
        theirs.weight.copy_(ours.weight)
    x = 5 * torch.randn(3, 4, 32) + 1
    assert_close(ours(x), theirs(x), atol=1e-6, rtol=1e-5)
    assert not torch.allclose(ours(x), F.layer_norm(x, (32,), ours.weight), atol=0.1)


def test_swiglu_is_gated_by_silu(modern):
    network, x = block("feed_forward", "swiglu", modern), torch.randn(2, 3, 32)
    gate, widened = network.gate(x), network.widen(x)
    assert_close(network(x), network.narrow(gate / (1 + torch.exp(-gate)) * widened), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("is_recorded", [False, True], ids=["fused", "recorded"])
def test_with_as_many_key_heads_as_heads_it_is_multi_head_attention(modern, is_recorded):
    ours = block("attention", "grouped-query", modern.with_changes({"model.num_kv_heads": 4}))
    theirs = MultiHeadAttention(32, 4)
    theirs.load_state_dict(ours.state_dict())
    x, mask = torch.randn(2, 5, 32), torch.ones(5, 5, dtype=torch.bool).tril()
    ours.hook_pattern.name = theirs.hook_pattern.name = "pattern"
    with hooks({"pattern": lambda pattern: None} if is_recorded else {}):
        assert_close(ours(x, ours.keys_values(x), mask), theirs(x, theirs.keys_values(x), mask), atol=0, rtol=0)


@pytest.mark.parametrize("num_kv_heads", [1, 2])
def test_groups_equal_multi_head_attention_whose_heads_have_the_same_keys_and_values(modern, num_kv_heads):
    ours = block("attention", "grouped-query", modern.with_changes({"model.num_kv_heads": num_kv_heads}))
    theirs = MultiHeadAttention(32, 4)
    weights = dict(ours.state_dict())
    for name in ("w_k", "w_v"):
        for part in ("weight", "bias"):
            heads = weights[f"{name}.{part}"].unflatten(0, (num_kv_heads, 8))
            weights[f"{name}.{part}"] = heads.repeat_interleave(4 // num_kv_heads, dim=0).flatten(0, 1)
    theirs.load_state_dict(weights)
    x = torch.randn(2, 5, 32)
    assert ours.keys_values(x)[0].shape == (2, num_kv_heads, 5, 8)
    assert_close(ours(x, ours.keys_values(x)), theirs(x, theirs.keys_values(x)), atol=1e-6, rtol=1e-5)


def test_heads_must_be_divisible_into_groups(modern):
    with pytest.raises(ConfigError, match=r"model.num_heads=4 must be divisible by model.num_kv_heads=3"):
        modern.with_changes({"model.num_kv_heads": 3})


@pytest.mark.parametrize("family", ["modern", "transformer", "decoder-only"])
def test_decoding_with_the_cache_equals_one_pass(modern, family):
    model, task = build(modern.with_changes({"model.family": family}))
    kinds = {type(module).__name__ for module in model.modules()}
    assert {"RMSNorm", "SwiGLU", "GroupedQueryAttention"} <= kinds
    assert not {"LayerNorm", "FeedForward", "MultiHeadAttention"} & kinds
    batch = fixed_pairs(task, 4, split="test")
    with torch.no_grad():
        expected = model(batch.src, batch.tgt_in)
        memory, cache, steps = model.encode(batch.src), None, []
        for step in range(batch.tgt_in.shape[1]):
            output = model.decode(batch.tgt_in[:, step : step + 1], memory, cache)
            steps.append(output.logits)
            cache = output.cache
    assert_close(torch.cat(steps, dim=1), expected, atol=2e-6, rtol=1e-5)
    num_kv_heads = 2 if family == "modern" else 1  # without the setting, multi-query attention
    assert cache.layers[0].target[0].shape[1] == num_kv_heads


def test_its_heads_are_recorded_ablated_and_explained(modern, tmp_path):
    run = lab.train(modern, name="mine", root=tmp_path).trained()
    model, task = run.model, run.task
    pairs = fixed_pairs(task, 4, split="test")
    _, maps = forward_with_attention(model, pairs.src, pairs.tgt_in)
    for block_maps in (maps.encoder, maps.decoder, maps.cross):
        assert block_maps.shape[:3] == (2, 4, 4)  # layers, batch, heads
        assert_close(block_maps.sum(dim=-1), torch.ones(block_maps.shape[:-1]), atol=1e-5, rtol=0)
    assert run.heads[:4] == ("encoder.1.1", "encoder.1.2", "encoder.1.3", "encoder.1.4")
    assert run.ablate("cross.1").decode("4 8 2 9").log_prob != run.decode("4 8 2 9").log_prob
    for head in model.heads:  # every number follows from the one before
        assert cell_arithmetic(model, pairs.src[:1], pairs.tgt_out[:1], head, 1, 1).replaced == ()
    assert run.patch("4 8 2 9", "4 8 2 5", foil="5").grids


def test_direct_logit_attribution_says_that_it_cannot_split_its_norms(modern):
    model, task = build(modern)
    prediction = prediction_at(model, task, ["4", "8", "2", "9"], step=0)
    with pytest.raises(InputError, match="can split the built-in norms only, not a RMSNorm"):
        direct_logit_attribution(model, prediction)
    assert math.isfinite(logit_lens(model, task, prediction).rows[-1].probability)


def test_the_doctor_finds_no_bug_in_it(modern):
    examination = examine_preset(modern)
    assert [each.sentence for each in examination.findings if each.light == "red" and each.bug] == []


def test_it_is_exported_and_imported(modern, tmp_path):
    lab.train(modern, name="mine", root=tmp_path)
    answer = lab.load("mine", tmp_path).decode("4 8 2 9")
    for file in ("model.safetensors", "model.zip"):
        name = file.replace(".", "-")
        assert main(["--checkpoints", str(tmp_path), "export", "--run", "mine", "--out", str(tmp_path / file)]) == 0
        import_run(tmp_path, tmp_path / file, name=name)
        assert lab.load(name, tmp_path).decode("4 8 2 9").log_prob == answer.log_prob
        assert RunFolder(tmp_path, name).read_preset().model == modern.model


def test_its_graph_computes_the_same(modern):
    model, task = build(modern)
    pairs = fixed_pairs(task, 5, split="test")
    given = {"head_gains": torch.ones(len(model.heads)), "src": pairs.src, "tgt_in": pairs.tgt_in}
    found = forward_graph(model).run(weights_of(model) | given)
    with torch.no_grad():
        assert_close(found["logits"], model(pairs.src, pairs.tgt_in), atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(not all(map(is_installed, ONNX)), reason="pip install -c requirements-extras.txt -e '.[onnx]'")
def test_it_is_exported_to_onnx_which_decodes_the_same(modern, tmp_path):
    lab.train(modern, name="mine", root=tmp_path)
    assert main(["--checkpoints", str(tmp_path), "export", "--run", "mine", "--out", str(tmp_path / "m.onnx")]) == 0
    from onnxruntime import InferenceSession  # few environments have it

    run = lab.load("mine", tmp_path)
    src = fixed_pairs(run.task, 20, split="test").src
    outputs = [until_eos(row) for row in generate(run.model, src, max_steps=8).tokens.tolist()]
    decoded = generate_with_onnx(InferenceSession(str(tmp_path / "m.onnx")), src, max_steps=8)
    assert decoded == [[each for each in output if each != PAD_ID] for output in outputs]
