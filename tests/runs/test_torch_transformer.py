"""State dicts of models built on nn.Transformer: the proposed mapping, and the logits after the import."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from core.__main__ import main
from core.models.positions import sinusoidal_positions
from core.runs.importing_models import import_model
from core.runs.load import load_run
from core.runs.torch_transformer import mapping_to_yaml, propose, read_mapping, read_torch_model
from core.storage.errors import LabError
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

D, HEADS, HIDDEN, LENGTH = 32, 8, 48, 40


class Sines(nn.Module):
    """Positions as most tutorials have them, a buffer of one of several shapes."""

    def __init__(self, name: str = "pe", *, dim: int | None = 1, scale: bool = False) -> None:
        super().__init__()
        table = sinusoidal_positions(LENGTH, D)
        self.register_buffer(name, table if dim is None else table.unsqueeze(dim))
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # (B, T, D)
        return x + getattr(self, self.name).reshape(LENGTH, D)[: x.shape[1]]


class Model(nn.Module):
    """A translation model around nn.Transformer; its parts are named by ``names``."""

    def __init__(
        self,
        names: dict[str, str],
        *,
        sizes: tuple[int, int] = (20, 26),
        pad: int = 1,
        positions: Callable[[], nn.Module] | None = None,
        learned: tuple[str, ...] = (),
        scale: bool = True,
        tied: bool = False,
        shared: bool = False,
        bias: bool = True,
        separate: bool = False,
        batch_first: bool = True,
        norm_first: bool = False,
        heads: int = HEADS,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.names, self.scale, self.batch_first, self.learned = names, scale, batch_first, learned
        settings = {"dropout": 0.0, "activation": activation, "batch_first": batch_first, "norm_first": norm_first}
        setattr(self, names["src"], nn.Embedding(sizes[0], D, padding_idx=pad))
        if not shared:
            setattr(self, names["tgt"], nn.Embedding(sizes[1], D, padding_idx=pad))
        if positions:
            self.positional_encoding = positions()
        for name in learned:
            setattr(self, name, nn.Embedding(LENGTH, D))
        if separate:
            self.transformer_encoder = nn.TransformerEncoder(
                nn.TransformerEncoderLayer(D, heads, HIDDEN, **settings), 2
            )
            self.transformer_decoder = nn.TransformerDecoder(
                nn.TransformerDecoderLayer(D, heads, HIDDEN, **settings), 3
            )
        else:
            self.transformer = nn.Transformer(D, heads, 2, 3, HIDDEN, **settings)
        setattr(self, names["out"], nn.Linear(D, sizes[0 if shared else 1], bias=bias))
        if tied:
            getattr(self, names["out"]).weight = getattr(self, names["src" if shared else "tgt"]).weight

    def forward(self, src: torch.Tensor, tgt: torch.Tensor, pad: torch.Tensor) -> torch.Tensor:
        sides = []
        for at, (name, ids) in enumerate((("src", src), ("tgt", tgt))):
            table = getattr(self, self.names[name], None) or getattr(self, self.names["src"])
            x = table(ids) * (D**0.5 if self.scale else 1)
            if self.learned:
                x = x + getattr(self, self.learned[min(at, len(self.learned) - 1)])(torch.arange(ids.shape[1]))
            elif hasattr(self, "positional_encoding"):
                x = self.positional_encoding(x)
            sides.append(x if self.batch_first else x.transpose(0, 1))
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
        if hasattr(self, "transformer"):
            x = self.transformer(
                *sides, tgt_mask=mask, src_key_padding_mask=pad, memory_key_padding_mask=pad, tgt_is_causal=True
            )
        else:
            memory = self.transformer_encoder(sides[0], src_key_padding_mask=pad)
            x = self.transformer_decoder(sides[1], memory, tgt_mask=mask, memory_key_padding_mask=pad)
        return getattr(self, self.names["out"])(x if self.batch_first else x.transpose(0, 1))


TUTORIAL = {"src": "src_tok_emb", "tgt": "tgt_tok_emb", "out": "generator"}
SHORT = {"src": "src_embedding", "tgt": "trg_embedding", "out": "fc_out"}
PLAIN = {"src": "encoder_embedding", "tgt": "decoder_embedding", "out": "fc"}
ONE = {"src": "embedding", "tgt": "-", "out": "out"}
# What the proposal cannot know, because weights do not say it, is the second entry.
MODELS: dict[str, tuple[dict, dict]] = {
    "pytorch-tutorial": ({"names": TUTORIAL, "positions": lambda: Sines("pos_embedding"), "batch_first": False}, {}),
    "batch-first": ({"names": SHORT, "positions": lambda: Sines("pe", dim=0)}, {}),
    "flat-table": ({"names": PLAIN, "positions": lambda: Sines("pe", dim=None), "pad": 0}, {}),
    "learned-positions": (
        {"names": SHORT, "learned": ("src_position_embedding", "trg_position_embedding"), "scale": False},
        {},
    ),
    "one-table-of-positions": ({"names": PLAIN, "learned": ("position_embedding",), "scale": False, "pad": 0}, {}),
    "tied-output": ({"names": TUTORIAL, "positions": Sines, "tied": True, "bias": False}, {}),
    "one-embedding": ({"names": ONE, "positions": Sines, "shared": True, "pad": 0}, {}),
    "separate-stacks": ({"names": SHORT, "positions": Sines, "separate": True, "batch_first": False}, {}),
    "norm-first-gelu": (
        {"names": TUTORIAL, "positions": Sines, "norm_first": True, "activation": "gelu"},
        {"norm": "pre", "activation": "gelu"},
    ),
    "four-heads": ({"names": PLAIN, "positions": Sines, "heads": 4}, {"num_heads": 4}),
}


def make(name: str) -> Model:
    torch.manual_seed(0)
    model = Model(**MODELS[name][0]).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.uniform_(parameter, 0.5, 1.5)
    return model


def save(model: Model, folder: Path, changes: dict) -> tuple[Path, Path]:
    """Write the weights and the proposed mapping, with changes, and return both files."""
    weights, file = folder / "model.pt", folder / "mapping.yaml"
    torch.save(model.state_dict(), weights)
    mapping = propose(model.state_dict()).model_copy(update=changes)
    file.write_text(mapping_to_yaml(mapping))
    assert read_mapping(file) == mapping
    return weights, file


@torch.no_grad()
def difference(model: Model, weights: Path, mapping: Path, root: Path) -> float:
    """The largest difference of logits, of padded sources."""
    run, _ = import_model(root, weights, mapping=mapping)
    loaded, chosen = load_run(run.path), read_mapping(mapping)
    special = [chosen.pad_id, chosen.bos_id, chosen.eos_id, *([chosen.unk_id] if chosen.unk_id >= 0 else [])]
    tables = [
        torch.tensor([*special, *(int(symbol[1:]) for symbol in vocab.symbols)])
        for vocab in (loaded.task.src_vocab, loaded.task.tgt_vocab)
    ]
    src = torch.tensor([[BOS_ID, 7, 9, 12, EOS_ID], [BOS_ID, 5, EOS_ID, PAD_ID, PAD_ID]])
    tgt = torch.tensor([[BOS_ID, 8, 4, 11], [BOS_ID, 6, 13, 5]])
    expected = model(tables[0][src], tables[1][tgt], src == PAD_ID)[..., tables[1]]
    return (loaded.model(src, tgt) - expected).abs().max().item()


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_the_same_after_mending_the_mapping(tmp_path, name):
    model = make(name)
    assert difference(model, *save(model, tmp_path, MODELS[name][1]), tmp_path / "runs") < 1e-5


def test_the_proposal_is_right_for_eight_of_ten(tmp_path):
    right = []
    for name in MODELS:
        (tmp_path / name).mkdir()
        model = make(name)
        proposed = propose(model.state_dict())
        if proposed.pad_id == MODELS[name][0].get("pad", 1) and (
            difference(model, *save(model, tmp_path / name, {}), tmp_path / name / "runs") < 1e-5
        ):
            right.append(name)
    assert right == [name for name, (_, changes) in MODELS.items() if not changes]
    assert len(right) == 8


@pytest.mark.parametrize("tied", [False, True])
def test_an_embedding_is_not_taken_for_the_output_layer(tmp_path, tied):
    """Logits by F.linear with the target's embedding leave no output layer in the state dict, whose order is any."""
    torch.manual_seed(0)
    model = Model(TUTORIAL, positions=Sines, bias=False, tied=tied).eval()
    state = model.state_dict()
    matrix = state.pop("generator.weight")
    if not tied:
        state = {"generator.weight": matrix, **state}
    output = "tgt_tok_emb.weight" if tied else "generator.weight"
    proposed = propose(state)
    assert (proposed.output, proposed.source_embedding, proposed.target_embedding) == (
        output,
        "src_tok_emb.weight",
        "tgt_tok_emb.weight",
    )
    torch.save(state, tmp_path / "model.pt")
    (tmp_path / "mapping.yaml").write_text(mapping_to_yaml(proposed))
    assert difference(model, tmp_path / "model.pt", tmp_path / "mapping.yaml", tmp_path / "runs") < 1e-5
    _, notes = import_model(tmp_path / "runs", tmp_path / "model.pt")
    assert f"do not say output={output}, num_heads=8" in notes[0]


def test_the_command_proposes_a_mapping_and_uses_it(tmp_path, capsys):
    torch.save({"model_state_dict": make("batch-first").state_dict(), "epoch": 3}, tmp_path / "model.pt")
    (tmp_path / "src.txt").write_text(
        "".join(f"{name}\n" for name in ["<unk>", "<pad>", "<s>", "</s>", *"abcdefghijklmnop"])
    )
    root, model = ["--checkpoints", str(tmp_path / "runs")], str(tmp_path / "model.pt")
    assert main([*root, "import-model", model, "--propose", str(tmp_path / "m.yaml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"mapping": str(tmp_path / "m.yaml")}
    assert not (tmp_path / "runs").exists()
    text = (tmp_path / "m.yaml").read_text().replace('source_tokens: ""', 'source_tokens: "src.txt"')
    (tmp_path / "m.yaml").write_text(text)
    assert main([*root, "import-model", model, "--mapping", str(tmp_path / "m.yaml"), "--run", "mine"]) == 0
    assert main([*root, "decode", "--run", "mine", "a c b"]) == 0
    assert main([*root, "import-model", model, "--propose", str(tmp_path / "m.yaml")]) == 2
    assert "exists already" in capsys.readouterr().err


def test_tensors_without_a_use_are_named(tmp_path):
    model = make("batch-first")
    model.bridge = nn.Linear(D, D, bias=False)
    model.register_buffer("tgt_mask", nn.Transformer.generate_square_subsequent_mask(4))
    model.register_buffer("scales", torch.ones(4, dtype=torch.float8_e4m3fn))
    weights, mapping = tmp_path / "model.pt", tmp_path / "mapping.yaml"
    torch.save(model.state_dict(), weights)
    mapping.write_text(mapping_to_yaml(propose(make("batch-first").state_dict())))
    _, notes = import_model(tmp_path / "runs", weights, mapping=mapping)
    assert notes == ("the mapping does not use bridge.weight, scales",)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["batch-first", "flat-table", "learned-positions"])
def test_half_precision_is_read_with_its_table_of_positions(tmp_path, name, dtype):
    model = make(name)
    half = {key: value.to(dtype) for key, value in model.state_dict().items()}
    assert propose(half) == propose(model.state_dict())
    torch.save(half, tmp_path / "model.pt")
    (tmp_path / "mapping.yaml").write_text(mapping_to_yaml(propose(half)))
    model.load_state_dict(
        {key: value.float() for key, value in half.items() if not key.startswith("positional")}, strict=False
    )
    assert difference(model, tmp_path / "model.pt", tmp_path / "mapping.yaml", tmp_path / "runs") < 1e-5


def test_the_output_bias_betrays_the_special_tokens(tmp_path):
    """A trained model has learned never to write PAD, BOS and UNK; without a padding_idx, nothing else says so."""
    state = make("batch-first").state_dict()
    state["trg_embedding.weight"][1] = 1.0
    assert (propose(state).pad_id, propose(state).eos_id) == (0, 2)
    state["fc_out.bias"][:3] -= 13
    assert {name: getattr(propose(state), f"{name}_id") for name in ("pad", "bos", "eos", "unk")} == {
        "pad": 1,
        "bos": 2,
        "eos": 3,
        "unk": 0,
    }
    torch.save(state, tmp_path / "model.pt")
    _, notes = import_model(tmp_path / "runs", tmp_path / "model.pt")
    assert "pad_id=1, bos_id=2, eos_id=3, unk_id=0: check them" in notes[0]
    assert len(notes) == 1
    mapping = tmp_path / "mapping.yaml"
    wrong = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": -1}
    mapping.write_text(mapping_to_yaml(propose(state).model_copy(update=wrong)))
    _, notes = import_model(tmp_path / "other", tmp_path / "model.pt", mapping=mapping)
    assert any(note.startswith("eos_id=2 is a token that the model never writes") for note in notes)


@pytest.mark.parametrize(
    ("tokens", "typed", "symbols"),
    [
        ([*"abcdefghijklmnop "], "a cb", ["a", "\u2581", "c", "b"]),
        ([*"abcdefghijklmnop", "new york"], "a new\u2423york", ["\u2581a", "\u2581new\u2423york"]),
    ],
    ids=["characters", "words"],
)
def test_a_vocabulary_may_have_a_space(tmp_path, tokens, typed, symbols):
    weights, mapping = save(make("batch-first"), tmp_path, {"source_tokens": "src.txt"})
    names = ["<unk>", "<pad>", "<s>", *tokens]
    (tmp_path / "src.txt").write_text("\n".join(names) + "\n")
    run, _ = import_model(tmp_path / "runs", weights, mapping=mapping)
    loaded = load_run(run.path)
    assert loaded.task.tokenize(typed) == symbols
    assert loaded.task.subwords.source.detokenize(symbols) == typed
    assert loaded.decode(typed).source_labels
    with pytest.raises(LabError, match="has nothing of this input"):
        loaded.decode("Z")


def test_what_the_proposal_cannot_decide_is_left_to_a_draft(tmp_path, capsys):
    """A second encoder, or a model without nn.Transformer, for which no mapping would do."""
    model = make("batch-first")
    model.teacher = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, HEADS, HIDDEN, batch_first=True), 1)
    torch.save(model.state_dict(), tmp_path / "two.pt")
    torch.save(nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4)).state_dict(), tmp_path / "own.pt")
    command = ["--checkpoints", str(tmp_path / "runs"), "import-model"]
    assert main([*command, str(tmp_path / "two.pt")]) == 2
    assert "2 encoders and 1 decoders of nn.Transformer" in (printed := capsys.readouterr().err)
    assert "--propose FILE writes a draft" in printed
    assert main([*command, str(tmp_path / "two.pt"), "--propose", str(tmp_path / "two.yaml")]) == 0
    draft = (tmp_path / "two.yaml").read_text()
    assert '# Stacks of layers: "transformer.encoder.", "teacher.", "transformer.decoder."' in draft
    whole = propose(make("batch-first").state_dict())
    chosen = mapping_to_yaml(whole)
    (tmp_path / "mended.yaml").write_text(chosen)
    assert main([*command, str(tmp_path / "two.pt"), "--mapping", str(tmp_path / "mended.yaml")]) == 0
    capsys.readouterr()
    assert main([*command, str(tmp_path / "own.pt"), "--propose", str(tmp_path / "own.yaml")]) == 2
    assert "lab.attention(model, src, tgt_in) shows the heads of any model" in capsys.readouterr().err
    assert not (tmp_path / "own.yaml").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output": "nothing.weight"}, "output='nothing.weight': the weights have no tensor"),
        ({"output": "src_tok_emb.weight"}, "scores 20 tokens; target_embedding='tgt_tok_emb.weight' has 26"),
        ({"eos_token": 2}, "eos_token is not a known key; known keys are encoder, decoder, "),
        ({"eos_id": 2}, "bos_id=2 must be below 20"),
        ({"num_heads": 5}, "^model.d_model=.* must be divisible by"),
        ({"max_seq_len": 3}, "max_seq_len=3 should be greater"),
    ],
    ids=str,
)
def test_a_mapping_that_does_not_fit_is_refused(tmp_path, changes, message):
    weights, mapping = save(make("pytorch-tutorial"), tmp_path, {})
    text = mapping.read_text()
    for name, value in changes.items():
        lines = [line for line in text.splitlines() if not line.startswith(f"{name}:")]
        text = "\n".join([*lines, f"{name}: {value}"]) + "\n"
    mapping.write_text(text)
    with pytest.raises(LabError, match=message):
        import_model(tmp_path / "runs", weights, mapping=mapping)
    assert not (tmp_path / "runs").exists()


def test_every_tensor_of_the_layers_has_the_shape_of_its_place():
    state = make("pytorch-tutorial").state_dict()
    mapping = propose(state)
    for name, tensor in state.items():
        if name.startswith("transformer."):
            longer = {**state, name: torch.cat([tensor, tensor[:1]])}
            with pytest.raises(LabError, match=r"has shape .*(all layers must have|3 × d_model)"):
                read_torch_model(mapping, longer)


def quantized(tensor: torch.Tensor) -> torch.Tensor:
    return torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "src_tok_emb.weight",
            lambda tensor: tensor[:1].expand(400_000, -1),
            "source_embedding='src_tok_emb.weight' has 400,000 tokens; the limit is 300,000",
        ),
        ("generator.weight", torch.Tensor.char, "'generator.weight' has dtype int8; a weight must be float32, float16"),
        ("generator.weight", torch.Tensor.bool, "'generator.weight' has dtype bool"),
        ("src_tok_emb.weight", torch.Tensor.cfloat, "'src_tok_emb.weight' has dtype complex64"),
        ("generator.bias", quantized, r"'generator.bias' is quantized \(qint8\); a weight must be a dense tensor"),
        ("generator.weight", torch.Tensor.to_sparse, r"'generator.weight' is sparse \(sparse_coo\)"),
        ("generator.weight", lambda tensor: tensor.to("meta"), "'generator.weight' is on the device meta"),
        (
            "transformer.encoder.layers.0.linear1.weight",
            lambda tensor: tensor[:40],
            r"linear1.weight' has shape \(40, 32\), not \(48, 32\): all layers must have the d_model and "
            "dim_feedforward of the decoder's first, 32 and 48",
        ),
        (
            "transformer.decoder.layers.0.self_attn.in_proj_weight",
            torch.Tensor.flatten,
            r"in_proj_weight' has shape \(3072,\), not \(3 × d_model, d_model\)",
        ),
    ],
)
def test_a_tensor_that_is_no_weight_of_its_place_is_refused(tmp_path, name, change, message):
    state = make("pytorch-tutorial").state_dict()
    torch.save(state | {name: change(state[name])}, tmp_path / "model.pt")
    with pytest.raises(LabError, match=message):
        import_model(tmp_path / "runs", tmp_path / "model.pt")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_biases_that_only_one_stack_lacks_are_zero(tmp_path, stack):
    """Built with bias=False, the layers compute what they do with biases of zero."""
    model = make("separate-stacks")
    for module in getattr(model, f"transformer_{stack}").modules():
        for name, parameter in module.named_parameters(recurse=False):
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
    weights, mapping = save(model, tmp_path, {})
    torch.save(
        {
            name: tensor
            for name, tensor in model.state_dict().items()
            if not (name.startswith(f"transformer_{stack}.") and name.endswith("bias"))
        },
        weights,
    )
    assert difference(model, weights, mapping, tmp_path / "runs") < 1e-5
