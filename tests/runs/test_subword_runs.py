"""A run with subwords keeps its tokenizers, and every file that it is exported to carries them."""

import base64
import io
import json
from pathlib import Path

import pytest
import sentencepiece
import torch

from core.__main__ import main
from core.config import load_preset
from core.config.tasks import SUBWORDS
from core.generation import generate
from core.runs import RunFolder
from core.runs.importing import import_run, import_weights
from core.runs.load import load_run
from core.storage.errors import LabError
from core.storage.tensor_file import deserialize, read_header, serialize
from core.storage.text_checksum import without_checksum
from tests.support.trainings import train_run

TINY = {
    "task.vocabulary_size": 500,
    "task.max_length": 60,
    "model.d_model": 16,
    "model.d_ff": 16,
    "model.num_heads": 2,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.max_seq_len": 64,
    "training.steps": 2,
    "training.warmup_steps": 0,
    "training.evaluate_every": 2,
    "training.tokens_per_batch": 200,
    "training.validation_sequences": 2,
    "training.precision": "float32",
}
SENTENCE = "Click OK, then save  the “Document” 2024 😀."


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = RunFolder.create(tmp_path_factory.mktemp("runs"), load_preset("translate-en-de").with_changes(TINY))
    train_run(folder)
    return folder


def translation(folder: RunFolder) -> tuple[str, str]:
    """The sentence as the run's task reads it, and the run's translation of it."""
    loaded = load_run(folder.path)
    symbols = loaded.task.tokenize(SENTENCE)
    src = torch.tensor([[1, *loaded.task.src_vocab.encode(symbols), 2]])
    tokens = generate(loaded.model, src, max_steps=12).tokens[0].tolist()
    return loaded.task.source_text(symbols), loaded.task.answer_text(loaded.task.tgt_vocab.decode(tokens))


def test_a_run_keeps_its_tokenizers(trained: RunFolder):
    loaded = load_run(trained.path)
    assert without_checksum((trained.path / SUBWORDS).read_bytes()).decode() == loaded.task.subwords.model_dump_json()
    assert len(loaded.task.src_vocab) == 503
    assert translation(trained)[0] == SENTENCE


@pytest.mark.parametrize("out", ["run.zip", "run.safetensors", "folder"])
def test_every_file_carries_the_tokenizers(trained: RunFolder, tmp_path: Path, out: str):
    arguments = ["export", "--run", trained.name, "--out", str(tmp_path / out), *(["--whole"] * (out == "folder"))]
    assert main(["--checkpoints", str(trained.path.parent), *arguments]) == 0
    copy = import_run(tmp_path / "runs", tmp_path / out)
    assert (copy.path / SUBWORDS).read_bytes() == (trained.path / SUBWORDS).read_bytes()
    assert translation(copy) == translation(trained)


def test_best_weights_alone_translate_the_same(trained: RunFolder, tmp_path: Path):
    assert translation(import_run(tmp_path, trained.best)) == translation(trained)


def test_half_weights_are_half_the_size_and_are_imported(trained: RunFolder, tmp_path: Path, capsys):
    root = ["--checkpoints", str(trained.path.parent), "export", "--run", trained.name, "--out"]
    for name, more in (("whole", []), ("half", ["--half"])):
        assert main([*root, str(tmp_path / f"{name}.safetensors"), *more]) == 0
    whole, half = (deserialize_file(tmp_path / f"{name}.safetensors")[0] for name in ("whole", "half"))
    assert {tensor.dtype for tensor in half.values()} == {torch.float16}
    imported = load_run(import_run(tmp_path / "runs", tmp_path / "half.safetensors").path)
    for name, tensor in imported.model.state_dict().items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, whole[name].half().float())
    assert main([*root, str(tmp_path / "x.zip"), "--half"]) == 2
    assert "--half writes a weight file" in capsys.readouterr().err


def deserialize_file(path: Path) -> tuple[dict, dict]:
    file = io.BytesIO(path.read_bytes())
    header = read_header(file, "x")
    return deserialize(header, file.read(), "x"), header.facts


def with_last_piece(facts: dict, piece: str, score: float = 0.0) -> str:
    document = json.loads(facts["subwords"])
    document["source"]["pieces"][-1], document["source"]["scores"][-1] = piece, score
    return json.dumps(document)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda facts: facts.pop("subwords"), "its tokenizers are missing"),
        (lambda facts: facts.update(subwords="{}"), "its subword vocabulary is not valid"),
        (lambda facts: facts.update(subwords=facts["subwords"].replace('"bpe"', '"unigram"')), "subword_algorithm"),
        (lambda facts: facts.update(subwords=with_last_piece(facts, "<unk>")), "<unk> is not a piece"),
        (lambda facts: facts.update(subwords=with_last_piece(facts, "qqq", 1e300)), "'qqq' has the score 1e"),
    ],
)
def test_files_with_missing_or_other_tokenizers_are_refused(trained: RunFolder, tmp_path: Path, change, message: str):
    tensors, facts = deserialize_file(trained.best)
    change(facts)
    with pytest.raises(LabError, match=message):
        import_weights(tmp_path, bytes(serialize(tensors, facts)))
    assert not any(tmp_path.iterdir())


def test_onnx_carries_sentencepieces_own_files_and_the_provenance_of_the_weights(
    trained: RunFolder, tmp_path: Path, untraced: None
):
    import onnx  # few environments have it

    export = ["export", "--run", trained.name, "--out", str(tmp_path / "a.onnx")]
    assert main(["--checkpoints", str(trained.path.parent), *export]) == 0
    metadata = {each.key: each.value for each in onnx.load(tmp_path / "a.onnx").metadata_props}
    assert json.loads(metadata["provenance"]) == deserialize_file(trained.best)[1]["provenance"]
    facts = json.loads(metadata["attention-lab"])
    source, target = (
        sentencepiece.SentencePieceProcessor(model_proto=base64.b64decode(each)) for each in facts["sentencepiece"]
    )
    task = load_run(trained.path).task
    pieces = source.encode(SENTENCE, out_type=str)
    assert pieces == task.tokenize(SENTENCE)
    assert [facts["source_tokens"].index(piece) for piece in pieces] == task.src_vocab.encode(pieces)
    assert target.decode_pieces(pieces) == SENTENCE
