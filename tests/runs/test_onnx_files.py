"""ONNX export: the same logits and greedy outputs as PyTorch, vocabularies included."""

import json
import logging

import pytest
import torch

from core.__main__ import main
from core.generation import generate
from core.graphs.graph import Graph
from core.runs import DEFAULT_ROOT, RunFolder
from core.runs.onnx_export import export_onnx, generate_with_onnx
from core.server import Runs
from core.storage.errors import InputError
from core.tasks import fixed_pairs
from core.text.vocab import until_eos
from tests.serving import SHIPPED
from tests.support.trainings import train_run

REASON = "pip install -c requirements-extras.txt -e '.[onnx]'"
onnxruntime = pytest.importorskip("onnxruntime", reason=REASON)
pytest.importorskip("onnxscript", reason=REASON)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """The shipped model, in ONNX's runtime."""
    out = tmp_path_factory.mktemp("onnx") / "shipped.onnx"
    assert main(["export", "--run", SHIPPED, "--out", str(out)]) == 0
    return onnxruntime.InferenceSession(str(out))


@pytest.fixture(scope="module")
def shipped():
    return Runs(DEFAULT_ROOT)[SHIPPED].trained()


def test_onnx_and_pytorch_decode_identically(session, shipped):
    pairs = fixed_pairs(shipped.task, 200, split="test")
    ours = [until_eos(row) for row in generate(shipped.model, pairs.src, max_steps=12).tokens.tolist()]
    theirs = generate_with_onnx(session, pairs.src, max_steps=12)
    assert len(pairs) == 200
    assert theirs == ours


@pytest.mark.parametrize(("rows", "source", "answer"), [(1, 2, 2), (1, 5, 9), (4, 9, 3), (2, 20, 20)])
def test_logits_are_the_same_at_every_size(session, shipped, rows, source, answer):
    src = torch.randint(3, 13, (rows, source))
    src[:, -1] = 2
    src[0, source // 2 + 1 :] = 0  # PAD behind the first
    tgt_in = torch.randint(3, 13, (rows, answer))
    with torch.no_grad():
        expected = shipped.model(src, tgt_in)
    (found,) = session.run(["logits"], {"src": src.numpy(), "tgt_in": tgt_in.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-4, rtol=0)


def test_packages_that_no_export_needs_are_not_said_to_be_missing(caplog):
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    logger.addHandler(caplog.handler)
    try:
        Graph(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), ("x",), ("y",)).to_onnx()
    finally:
        logger.removeHandler(caplog.handler)
    assert not [text for text in caplog.messages if "torchvision" in text]
    assert not logger.filters


def test_the_onnx_file_contains_vocabularies_and_preset(session, shipped):
    said = session.get_modelmeta().custom_metadata_map
    facts = json.loads(said["attention-lab"])
    assert tuple(facts["source_tokens"]) == shipped.task.src_vocab.tokens
    assert facts["ids"] == {"pad": 0, "bos": 1, "eos": 2}
    assert facts["max_seq_len"] == shipped.model.max_seq_len
    assert "family: digits" in said["preset"]
    assert "provenance" not in said  # it was not recorded when this run was trained


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"model.norm": "pre", "model.positions": "learned", "model.tie_embeddings": "all"},
        {"model.positions": "alibi", "model.activation": "gelu"},
        {"model.positions": "vo-rope", "model.position_stretch": 2.0},
        {"model.attention_scale": "log-length", "model.attention_temperature": 0.5},
        {"model.positions": "rope", "model.norm_block": "rms-norm"},
        {"model.positions": "none", "model.family": "decoder-only"},
        {"model.positions": "vo-rope", "model.family": "encoder-only"},
        {"model.attention": "window", "model.attention_window": 2},
        {"model.attention": "linear"},
    ],
    ids=str,
)
def test_every_kind_of_transformer_is_exported(tiny, tmp_path, changes):
    preset = tiny.with_changes(changes)
    folder = RunFolder.create(tmp_path, preset, name="kind")
    train_run(folder)
    export_onnx(folder, tmp_path / "m.onnx")
    loaded = Runs(tmp_path)[folder.name].trained()
    pairs = fixed_pairs(loaded.task, 1_000, split="test")
    ours = [until_eos(row) for row in generate(loaded.model, pairs.src, max_steps=8).tokens.tolist()]
    ours = [[index for index in row if index] for row in ours]
    assert generate_with_onnx(onnxruntime.InferenceSession(str(tmp_path / "m.onnx")), pairs.src, max_steps=8) == ours


def test_a_gru_is_refused_and_nothing_is_overwritten(tiny_gru, tmp_path):
    folder = RunFolder.create(tmp_path, tiny_gru, name="gru")
    with pytest.raises(InputError, match=r"model.family='gru' cannot be exported to ONNX; transformer, decoder"):
        export_onnx(folder, tmp_path / "m.onnx")
    (tmp_path / "x.onnx").write_text("mine")
    assert main(["export", "--run", SHIPPED, "--out", str(tmp_path / "x.onnx")]) == 2
    assert (tmp_path / "x.onnx").read_text() == "mine"
