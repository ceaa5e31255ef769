"""``lab.attention``: the weights that a module computes, whatever it calls, and nothing of the module changes."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import model_styles as styles
from core import lab
from core.storage.errors import InputError
from tests.support.windowed import Windowed

SRC, TGT = styles.make_batch(4)
TGT_IN = TGT[:, :-2]  # shorter than the sources
EQUAL = TGT[:, :-1], SRC[:, :-1]  # source and decoder input of one length


def rows(pair, src=SRC, tgt_in=TGT_IN):
    """One pair without the PAD at its end, (1, S) and (1, T)."""
    return tuple(ids[pair : pair + 1, : int((ids[pair] != styles.PAD).sum())] for ids in (src, tgt_in))


def oracle(model, src, tgt_in):
    """The weights of a ``FromScratch`` model by head, computed again from what its attention modules are given."""
    found = {}

    def remember(name):
        def hook(module, given, _):
            x, memory, mask = given
            scores = module.split(module.q(x)) @ module.split(module.k(memory)).mT / (styles.D // styles.HEADS) ** 0.5
            for head, weights in enumerate(scores.masked_fill(~mask, -torch.inf).softmax(-1)[0], start=1):
                found[f"{name}.1.{head}"] = weights

        return hook

    names = ("encoder", "decoder", "cross")
    handles = [getattr(model, name).register_forward_hook(remember(name)) for name in names]
    with torch.no_grad():
        model.eval()(src, tgt_in)
    for handle in handles:
        handle.remove()
    return found


def torch_oracle(model, src, tgt_in):
    """The weights of ``nn.Transformer`` as its modules return them if they are asked for each head's."""
    found = {}
    stack = model.transformer
    modules = {
        "encoder": stack.encoder.layers[0].self_attn,
        "decoder": stack.decoder.layers[0].self_attn,
        "cross": stack.decoder.layers[0].multihead_attn,
    }

    def remember(name):
        def hook(module, given, options):
            with torch.no_grad():
                wanted = options | {"need_weights": True, "average_attn_weights": False}
                of_heads = nn.MultiheadAttention.forward(module, *given, **wanted)[1]
            found.update({f"{name}.1.{head}": each for head, each in enumerate(of_heads[0], start=1)})

        return hook

    handles = [m.register_forward_pre_hook(remember(name), with_kwargs=True) for name, m in modules.items()]
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad():
        model.eval()(src, tgt_in)
    torch.backends.mha.set_fastpath_enabled(True)
    for handle in handles:
        handle.remove()
    return found


def assert_equal(tables, expected):
    assert tables.keys() == expected.keys()
    for name, table in tables.items():
        np.testing.assert_allclose(table.to_numpy(), expected[name].detach().numpy(), atol=1e-6, err_msg=name)


@pytest.mark.parametrize("options", [{}, {"batch_first": False, "norm_first": True}], ids=["post", "pre, time first"])
@pytest.mark.parametrize("given", [(SRC, TGT_IN), EQUAL], ids=["lengths differ", "lengths are equal"])
def test_heads_of_nn_transformer_are_those_that_its_modules_return(options, given):
    model = styles.TorchTransformer(**options).eval()  # in evaluation mode PyTorch would take its fast path
    tables = lab.attention(model, *given, pair=1, pad=styles.PAD)
    assert_equal(tables, torch_oracle(model, *rows(1, *given)))
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("kind", ["matmul", "einsum", "fused"])
@pytest.mark.parametrize("given", [(SRC, TGT_IN), EQUAL], ids=["lengths differ", "lengths are equal"])
def test_heads_of_a_model_from_scratch_are_its_softmaxes(kind, given):
    model = styles.FromScratch(kind)
    tables = lab.attention(model, *given, pair=0, pad=styles.PAD)
    assert_equal(tables, oracle(model, *rows(0, *given)))


def test_the_steps_of_a_recurrent_decoder_are_the_rows_of_one_head():
    model = styles.Recurrent()
    kept = []
    model.score.register_forward_hook(lambda module, given, scores: kept.append(scores))
    tables = lab.attention(model, SRC, TGT_IN, pair=2, pad=styles.PAD)
    expected = torch.stack([each[0, :, 0].softmax(dim=0) for each in kept[-7:]])  # a pass before tells lengths apart
    assert_equal(tables, {"cross.1.1": expected})
    assert list(tables["cross.1.1"].index) == [str(each) for each in rows(2)[1][0].tolist()]


class HeadsFirst(nn.Module):
    """Heads before rows in (H·B, Tq, Tk), as in many models of 2018; returns its weights too."""

    def __init__(self):
        super().__init__()
        self.table, self.q, self.k = nn.Embedding(20, 12), nn.Linear(12, 12), nn.Linear(12, 12)

    def forward(self, src, tgt_in):
        q, k = (torch.cat(f(self.table(ids)).chunk(3, dim=2)) for f, ids in ((self.q, tgt_in), (self.k, src)))
        weights = F.softmax(q @ k.mT, dim=-1)
        return self.table(tgt_in) @ self.table.weight.T, weights.unflatten(0, (3, -1))


def test_heads_that_come_before_rows_are_told_apart():
    model = HeadsFirst()
    expected = model(*rows(1))[1][:, 0]
    assert_equal(
        lab.attention(model, SRC, TGT_IN, pair=1, pad=0), {f"cross.1.{n}": w for n, w in enumerate(expected, start=1)}
    )


class Language(nn.Module):
    """A language model of two layers with one fused attention each, by position, and queries that share keys."""

    def __init__(self, size=20, *, hidden=0):
        super().__init__()
        self.hidden = hidden  # the first keys
        self.table, self.q, self.k = nn.Embedding(size, 16), nn.Linear(16, 16), nn.Linear(16, 8)
        self.scores = []

    def forward(self, ids):
        x = self.table(ids)
        for _ in range(2):
            q, k = self.q(x).unflatten(-1, (4, 4)).transpose(1, 2), self.k(x).unflatten(-1, (2, 4)).transpose(1, 2)
            mask = torch.ones(ids.shape[1], ids.shape[1]).tril().bool()
            mask[:, : self.hidden] = False
            z = F.scaled_dot_product_attention(q, k, k, mask, enable_gqa=True)
            self.scores.append((q @ k.repeat_interleave(2, 1).mT / 2).masked_fill(~mask, -torch.inf))
            x = x + z.transpose(1, 2).flatten(2)
        return (x @ self.table.weight.T).softmax(-1)


@pytest.mark.parametrize("size", [20, SRC.shape[1]], ids=["", "the vocabulary is as large as the sequence"])
def test_a_language_model_has_a_decoder_and_its_probabilities_are_no_head(size):
    model = Language(size)
    ids = SRC.clamp(max=size - 1)
    tables = lab.attention(model, ids, src_vocab=[*"abcdefghijklmnopqrst"])
    model(ids)
    expected = {
        f"decoder.{n}.{head}": model.scores[n - 1][0, head - 1].softmax(-1) for n in (1, 2) for head in (1, 2, 3, 4)
    }
    assert_equal(tables, expected)
    letters = ["abcdefghijklmnopqrst"[each] for each in ids[0].tolist()]
    assert list(tables["decoder.2.1"].index) == list(tables["decoder.2.1"].columns) == letters


def test_a_query_without_keys_has_zeros_as_pytorch_computes():
    model = Language(hidden=2)
    tables = lab.attention(model, SRC)
    model(SRC)
    weights = model.scores[0][0, 0].softmax(-1)
    assert weights[:2].isnan().all()
    np.testing.assert_allclose(tables["decoder.1.1"].to_numpy(), weights.nan_to_num().detach().numpy(), atol=1e-6)


def test_labels_are_tokens_of_a_list_a_mapping_or_a_function():
    model = styles.FromScratch("matmul")
    words = {0: "<pad>", 1: "<s>", 2: "</s>"}
    tables = lab.attention(model, SRC, TGT_IN, pair=1, pad=0, src_vocab=words, tgt_vocab=lambda each: f"t{each}")
    cross = tables["cross.1.1"]
    assert [cross.columns[0], cross.columns[-1], cross.index[0]] == ["<s>", "</s>", "t1"]
    assert cross.columns[1] == str(int(SRC[1, 1]))  # not in the mapping
    assert list(tables["encoder.1.1"].index) == list(cross.columns)
    assert list(tables["decoder.1.1"].columns) == list(cross.index)
    assert lab.plot_attention(cross).get_array().shape == cross.shape


def test_the_lab_s_own_models_and_compiled_ones_are_seen_too():
    trained = lab.load("digits-reversal-shipped")
    src, tgt_in = torch.tensor([[1, 5, 6, 7, 2]]), torch.tensor([[1, 7, 6, 5]])
    assert set(lab.attention(trained.model, src, tgt_in)) == set(map(str, trained.model.heads))
    model = styles.FromScratch("fused")
    compiled = torch.compile(model, backend="eager")
    compiled(SRC, TGT_IN)
    assert_equal(lab.attention(compiled, SRC, TGT_IN, pad=0), oracle(model, *rows(0)))


def test_modes_hooks_gradients_and_random_generators_stay():
    model = styles.TorchTransformer().train()
    model.transformer.eval()
    styles.loss_of(model, SRC, TGT).backward()
    before = [each.grad.clone() for each in model.parameters()]
    modes = [each.training for each in model.modules()]

    def draws():
        return torch.rand(1), random.random(), np.random.rand()  # noqa: S311

    def forward(*ids):
        draws()
        return model(*ids)

    def seed():
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)

    seed()
    expected = draws()
    seed()
    lab.attention(forward, SRC, TGT_IN, model=model)
    assert draws() == expected
    assert [each.training for each in model.modules()] == modes
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())
    assert all(torch.equal(each.grad, grad) for each, grad in zip(model.parameters(), before, strict=True))


def test_refusals_say_what_was_seen():
    with pytest.raises(InputError, match=r"\(…, 10, 10\) or \(…, 8, 8\) or \(…, 8, 10\) .* seen: no softmax at"):
        lab.attention(styles.Recurrent(attends=False), SRC, TGT_IN, pair=1, pad=0)
    with pytest.raises(InputError, match=r"seen: softmax \(2, 4, 7, 9\), and see batch_first=True"):
        lab.attention(lambda src, tgt_in: torch.rand(2, 4, 7, 9).softmax(-1), SRC, TGT_IN, pad=0)
    with pytest.raises(InputError, match="pair=4 must be from 0 to 3: src has 4 pairs"):
        lab.attention(styles.Recurrent(), SRC, TGT_IN, pair=4)
    for odd in ({"pair": "1"}, {"pad": "1"}):
        with pytest.raises(InputError, match="='1' must be a whole number"):
            lab.attention(styles.Recurrent(), SRC, TGT_IN, **odd)
    with pytest.raises(InputError, match=r"tgt_in is a tensor \(4,\) int64; it must be a tensor \(B, T\) int64"):
        lab.attention(styles.Recurrent(), SRC, TGT_IN[:, 0])


def test_blocks_whose_weights_have_another_shape_are_named():
    with pytest.warns(
        match=r"^no heads of encoder: other calls have other shapes, softmax \(2, 4, 10, 13\) on one pair"
    ):
        tables = lab.attention(Windowed(), SRC, TGT_IN, pair=1, pad=0)
    assert {each.split(".")[0] for each in tables} == {"cross", "decoder"}


@pytest.mark.filterwarnings("error")
def test_a_recurrent_model_lacks_no_block():
    class Probabilities(styles.Recurrent):
        def forward(self, src, tgt_in):
            return super().forward(src, tgt_in).softmax(dim=-1)

    assert lab.attention(Probabilities(), SRC, TGT_IN).keys() == {"cross.1.1"}


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["bart", "t5", "gpt2", "llama"])
def test_heads_of_hugging_face_models_are_those_that_they_return(family, implementation):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {
        "bart": {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2}
        | {"decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16},
        "t5": {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 2, "num_heads": 2},
        "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2},
        "llama": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
        | {"num_key_value_heads": 2},
    }
    config = transformers.AutoConfig.for_model(family, vocab_size=20, **sizes[family])
    is_language_model = family in ("gpt2", "llama")
    kind = transformers.AutoModelForCausalLM if is_language_model else transformers.AutoModelForSeq2SeqLM
    model = kind.from_config(config, attn_implementation=implementation).eval()
    ids = (SRC,) if is_language_model else (SRC, TGT_IN)
    tables = lab.attention(model, *ids, pair=1)
    model.set_attn_implementation("eager")
    given = dict(zip(("input_ids", "decoder_input_ids"), ids, strict=False))
    result = model(**given, output_attentions=True)
    fields = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
    fields = {"decoder": "attentions"} if is_language_model else fields
    expected = {
        f"{block}.{layer}.{head}": weights
        for block, field in fields.items()
        for layer, of_layer in enumerate(result[field], start=1)
        for head, weights in enumerate(of_layer[1], start=1)
    }
    assert_equal(tables, expected)
