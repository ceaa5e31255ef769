"""Live models on nn.Transformer: what is read from module and batch, and what is refused, by where it differs."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from core import lab
from core.runs.special_ids import special_tokens
from core.storage.errors import InputError, LabError
from tests.runs.test_torch_transformer import MODELS, TUTORIAL, D, Model, Sines, make

UNGIVEN = dict.fromkeys(("pad", "bos", "eos", "unk", "src_pad", "src_bos", "src_eos"))


def batch(
    pad: int = 1, bos: int = 2, eos: int = 3, *, begins: bool = True, ends: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sources, with or without BOS and EOS, and decoder inputs of their reversals."""
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(10, 20, (2 + at % 6,), generator=generator).tolist() for at in range(12)]

    def padded(rows: list[list[int]]) -> torch.Tensor:
        return torch.tensor([row + [pad] * (max(map(len, rows)) - len(row)) for row in rows])

    src = padded([[bos] * begins + row + [eos] * ends for row in rows])
    return src, padded([[bos, *row[::-1], eos] for row in rows])[:, :-1]


def masked(model: nn.Module, pad: int = 1):
    return lambda src, tgt_in: model(src, tgt_in, src == pad)


def tutorial(**settings) -> Model:
    torch.manual_seed(0)
    return Model(TUTORIAL, positions=Sines, **settings)


@pytest.mark.parametrize("name", MODELS)
def test_what_weights_do_not_say_is_read_from_the_module(tmp_path: Path, name: str):
    """The logits are compared by the import itself, which refuses the mapping that was only guessed."""
    settings = MODELS[name][0]
    pad = settings.get("pad", 1)
    ids = (pad, 2, 3) if pad else (0, 1, 2)
    model = make(name).train()
    run = lab.import_model(masked(model, pad), *batch(*ids), model=model, root=tmp_path)
    made = run.preset.model
    assert (made.num_heads, made.norm, made.activation) == (
        settings.get("heads", 8),
        "pre" if settings.get("norm_first") else "post",
        settings.get("activation", "relu"),
    )
    assert "logits equal the original's on 12 pairs" in run.info.message
    assert f"PAD {ids[0]}, BOS {ids[1]}, EOS {ids[2]}" in run.info.message
    assert model.training
    src, tgt_in = batch(*ids)
    trained, table = run.trained(), [*ids, *(i for i in range(26) if i not in ids)]
    ours = torch.tensor([table.index(i) for i in range(20)])
    expected = masked(model.eval(), pad)(src, tgt_in)[..., table[: len(trained.task.tgt_vocab)]]
    difference = (trained.model(ours[src], ours[tgt_in]) - expected)[tgt_in != pad]
    assert difference.abs().max() < 1e-4


@pytest.mark.parametrize(("begins", "ends"), [(False, True), (True, False)])
def test_sources_may_lack_their_begin_or_end(tmp_path: Path, begins: bool, ends: bool):
    model = tutorial().eval()
    run = lab.import_model(masked(model), *batch(begins=begins, ends=ends), model=model, root=tmp_path)
    assert (run.preset.model.source_bos, run.preset.model.source_eos) == (begins, ends)
    decoded = run.trained().decode("5 7 12 6")
    src = torch.tensor([[2] * begins + [5, 7, 12, 6] + [3] * ends])
    logits = masked(model)(src, torch.tensor([[2]]))[0, 0]
    first = decoded.output[0] if decoded.output else None
    assert first == (None if int(logits.argmax()) == 3 else f"\u2581{int(logits.argmax())}")


def test_epsilon_precision_and_missing_biases_are_read(tmp_path: Path):
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(20, D)
            self.transformer = nn.Transformer(D, 4, 1, 1, 48, 0.1, batch_first=True, bias=False, layer_norm_eps=1e-2)

        def forward(self, src, tgt_in):
            mask = nn.Transformer.generate_square_subsequent_mask(tgt_in.shape[1], dtype=torch.bool)
            pad = src == 1
            x = self.transformer(
                self.embedding(src),
                self.embedding(tgt_in),
                tgt_mask=mask,
                src_key_padding_mask=pad,
                memory_key_padding_mask=pad,
            )
            return (x @ self.embedding.weight.t()).log_softmax(dim=-1)

    torch.manual_seed(0)
    run = lab.import_model(Plain().bfloat16(), *batch(), root=tmp_path, name="plain")
    made = run.preset.model
    assert (made.norm_eps, made.dropout, made.positions, made.scale_embeddings) == (1e-2, 0.1, "none", False)
    assert made.tie_embeddings == "all"
    assert run.name == "plain"


@pytest.mark.parametrize("is_functional", [False, True])
def test_one_embedding_of_both_sides_is_found_whatever_its_name(tmp_path: Path, is_functional: bool):
    """Also if one side is looked up without the module: that side alone is guessed by names and shapes."""

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tok, self.p, self.out = nn.Embedding(20, D), nn.Embedding(64, D), nn.Linear(D, 20)
            self.transformer = nn.Transformer(D, 4, 1, 1, 48, batch_first=True)

        def forward(self, src, tgt_in):
            sources = nn.functional.embedding(src, self.tok.weight) if is_functional else self.tok(src)
            sides = [x + self.p(torch.arange(x.shape[1])) for x in (sources, self.tok(tgt_in))]
            mask = nn.Transformer.generate_square_subsequent_mask(tgt_in.shape[1], dtype=torch.bool)
            pad = {"src_key_padding_mask": src == 1, "memory_key_padding_mask": src == 1}
            return self.out(self.transformer(*sides, tgt_mask=mask, **pad))

    torch.manual_seed(0)
    run = lab.import_model(Shared(), *batch(), root=tmp_path)
    assert run.preset.model.positions == "learned"
    assert "logits equal the original's on 12 pairs" in run.info.message


def test_a_layer_in_two_places_of_a_stack_is_compared_in_both(tmp_path: Path):
    model = tutorial().eval()
    stacks = model.transformer.encoder, model.transformer.decoder
    for stack in stacks:
        stack.layers[1] = stack.layers[0]
    run = lab.import_model(masked(model), *batch(), model=model, root=tmp_path)
    made = run.preset.model
    assert [made.num_encoder_layers, made.num_decoder_layers] == [len(stack.layers) for stack in stacks]
    assert "logits equal the original's on 12 pairs" in run.info.message


def test_time_first_ids_and_names_of_tokens_are_taken(tmp_path: Path):
    model = tutorial(batch_first=False).eval()
    src, tgt_in = (ids.t() for ids in batch())

    def forward(src, tgt_in):
        return model(src.t(), tgt_in.t(), (src == 1).t()).transpose(0, 1)

    names = {name: at for at, name in enumerate(["<unk>", "<pad>", "<s>", "</s>", *"abcdefghijklmno", " "])}
    run = lab.import_model(forward, src, tgt_in, model=model, root=tmp_path, source_tokens=names, unk=0)
    assert run.trained().decode("ab c").source_labels[:5] == ["<BOS>", "a", "b", "\u2581", "c"]
    one = lab.import_model(forward, src[:, :1], tgt_in[:, :1], model=model, root=tmp_path, pad=1, bos=2, eos=3)
    assert "equal the original's on 1 pair, by" in one.info.message


def own_attention() -> nn.Module:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.output = nn.Embedding(20, 8), nn.Linear(8, 20)

        def forward(self, src, tgt_in):
            return self.output(self.embedding(tgt_in) + self.embedding(src).mean(dim=1, keepdim=True))

    return Own()


class Scaled(Model):
    """A model whose decoder's first layer does more than its attributes say."""

    def forward(self, src, tgt, pad):
        handle = self.transformer.decoder.layers[1].register_forward_hook(lambda *args: args[2] * 1.5)
        try:
            return super().forward(src, tgt, pad)
        finally:
            handle.remove()


def refused() -> dict[str, tuple]:
    plain = tutorial().eval()
    torch.manual_seed(0)
    scaled = Scaled(TUTORIAL, positions=Sines).eval()
    never = torch.zeros(12, 9, dtype=torch.bool)
    shifted = tutorial().eval()
    shifted.positional_encoding.register_forward_hook(lambda module, args, output: output + args[0].mean())
    tanh = tutorial().eval()
    tanh.transformer.encoder.layers[0].activation = nn.Tanh()
    mixed = tutorial().eval()
    mixed.transformer.decoder.layers[2].self_attn.num_heads = 4
    return {
        "attends to PAD": (
            lambda src, tgt_in: plain(src, tgt_in, never[:, : src.shape[1]]),
            plain,
            "begins in encoder layer 1, only in rows with PAD",
        ),
        "more than its layers": (
            masked(scaled),
            scaled,
            "differ by up to .* begins in the input of decoder layer 3. If training",
        ),
        "more than its layers, of a model that never writes a token": (
            lambda src, tgt_in: masked(scaled)(src, tgt_in).index_fill(-1, torch.tensor([1]), -torch.inf),
            scaled,
            "begins in the input of decoder layer 3",
        ),
        "other embeddings": (masked(shifted), shifted, "begins in the embeddings of the source"),
        "another activation": (masked(tanh), tanh, "layers.0: its activation is Tanh, not one of relu, gelu, silu"),
        "heads that differ": (masked(mixed), mixed, "num_heads is 4, and 8 in the first layer"),
        "attention of its own": (own_attention(), None, "0 stacks of nn.TransformerEncoderLayer.* lab.diagnose"),
        "no module": (masked(plain), None, "pass the nn.Module with the parameters as model="),
    }


@pytest.mark.parametrize("name", refused())
def test_a_model_that_ours_is_not_is_refused_by_where_they_differ(tmp_path: Path, name: str):
    forward, model, message = refused()[name]
    with pytest.raises(LabError, match=message):
        lab.import_model(forward, *batch(), model=model, root=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


# --- special tokens -----------------------------------------------------------------------------------------------


def test_special_tokens_are_read_off_the_batch():
    for ids in ((1, 2, 3), (0, 1, 2), (7, 0, 5)):
        found = special_tokens(*batch(*ids), UNGIVEN)
        assert found.target == found.source == (*ids, -1)
        assert found.doubts == []


def test_sides_may_number_them_differently():
    src, _ = batch(9, 8, 7)
    _, tgt_in = batch(0, 1, 2)
    found = special_tokens(src, tgt_in, UNGIVEN)
    assert (found.source, found.target) == ((9, 8, 7, -1), (0, 1, 2, -1))


def test_what_the_batch_does_not_show_is_asked_for_or_said():
    src, tgt_in = torch.tensor([[1, 5, 6, 2], [1, 7, 8, 2]]), torch.tensor([[1, 6, 5], [1, 8, 7]])
    with pytest.raises(InputError, match="pad: no row of src or tgt_in is padded"):
        special_tokens(src, tgt_in, UNGIVEN)
    found = special_tokens(src, tgt_in, UNGIVEN, padding_idx=0)
    assert found.target == (0, 1, 2, -1)
    assert found.doubts == ["EOS of targets is taken for that of sources, 2: no row of tgt_in shows it; pass eos="]
    assert special_tokens(src, tgt_in, UNGIVEN | {"pad": 0, "eos": 4}).target == (0, 1, 4, -1)
    with pytest.raises(InputError, match="bos: the rows of tgt_in do not begin with the same id"):
        special_tokens(src, tgt_in[:, 1:], UNGIVEN, padding_idx=0)
    with pytest.raises(InputError, match="eos: no row of tgt_in ends before its padding"):
        special_tokens(src[:, :-1], tgt_in, UNGIVEN, padding_idx=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eos": 26}, "eos=26 must be from 0 to 25"),
        ({"eos": -1}, "eos=-1 must be at least 0"),
        ({"src_eos": "3"}, "src_eos='3' must be a whole number"),
        ({"src_pad": 20}, "src_pad=20 must be from 0 to 19"),
        ({"pairs": "/no/such.tsv"}, "pairs='/no/such.tsv': there is no such file"),
        ({"source_tokens": range(20)}, "source_tokens: the name of token 0 is 0; it must be a string"),
        ({"target_tokens": 26}, "target_tokens=26 must be a list of strings, or a dictionary of their ids"),
        ({"source_tokens": {"a": 0, "b": 2}}, "source_tokens: the 2 ids of the tokens must be 0 to 1, each once"),
        ({"source_tokens": (each for each in "aa" * 10)}, "source_tokens: 'a' is the name of several tokens"),
        ({"source_tokens": ["a"] * 20}, "source_tokens: 'a' is the name of several tokens"),
        ({"source_tokens": ["", *map(str, range(18)), "<s>"]}, "source_tokens: '▁' is not a word"),
    ],
)
def test_an_odd_argument_is_refused_by_its_name(tmp_path: Path, options, message):
    model = tutorial().eval()
    with pytest.raises(LabError, match=f"^{message}"):
        lab.import_model(masked(model), *batch(), model=model, root=tmp_path / "runs", **options)
    assert not (tmp_path / "runs").exists()


def test_a_doubt_is_a_warning(tmp_path: Path):
    model = tutorial().eval()
    src, tgt_in = batch()
    longest = (tgt_in != 1).all(dim=1)
    with pytest.warns(UserWarning, match="EOS of targets is taken for that of sources, 3"):
        lab.import_model(masked(model), src[longest], tgt_in[longest], model=model, root=tmp_path)
    with torch.no_grad():
        model.generator.bias[:4] -= 12
    with pytest.warns(UserWarning, match="eos_id=3 is a token that the model never writes"):
        lab.import_model(masked(model), src, tgt_in, model=model, root=tmp_path)
    with torch.no_grad():
        model.generator.bias[3] += 12
    with pytest.warns(UserWarning, match="token 0 is never written.* pass unk=0"):
        lab.import_model(masked(model), src, tgt_in, model=model, root=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = lab.import_model(masked(model), src, tgt_in, model=model, root=tmp_path, unk=0)
    assert run.trained().task.src_vocab.has_unk
