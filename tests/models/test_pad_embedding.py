"""The embedding of PAD is zero before training and after it, and old weights of it are kept as they are."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from core.config import Preset
from core.models import build_model
from core.models.embeddings import Embedding, Output
from core.models.kernels import Dropout
from core.tasks import build_task
from core.teaching.bugs import new_state
from core.text.vocab import BOS_ID, PAD_ID
from core.training.loop import train

FAMILIES = [
    {},
    {"model.norm": "pre", "model.tie_embeddings": "output"},
    {"model.tie_embeddings": "all"},
    {"model.family": "decoder-only"},
    {"model.family": "decoder-only", "model.tie_embeddings": "all"},
    {"model.family": "encoder-only"},
    {"model.family": "encoder-only", "model.tie_embeddings": "all"},
    {"model.family": "gru", "model.d_hidden": 12},
    {"model.family": "gru", "model.d_hidden": 12, "model.mask_padding": False},
]
OPTIMIZERS = [
    {"training.optimizer": "adam-by-hand"},
    {"training.optimizer": "adamw", "training.weight_decay": 0.5},
    {"training.optimizer": "muon", "training.muon_learning_rate": 0.02},
]


def pad_rows(model: torch.nn.Module) -> list[torch.Tensor]:
    return [module.tokens.weight[PAD_ID] for module in model.modules() if isinstance(module, Embedding)]


@pytest.mark.parametrize("changes", FAMILIES + OPTIMIZERS, ids=str)
def test_the_embedding_of_pad_is_zero_before_and_after_training(tiny: Preset, changes):
    state = new_state(tiny.with_changes(changes | {"training.label_smoothing": 0.1}))
    before = {name: weight.clone() for name, weight in state.model.state_dict().items()}
    list(train(state))
    is_encoder_only = changes.get("model.family") == "encoder-only"
    has_one = is_encoder_only or changes.get("model.tie_embeddings") == "all"
    assert len(pad_rows(state.model)) == (1 if has_one else 2)
    assert all((row == 0).all() for row in pad_rows(state.model))
    table = "src_embedding.tokens.weight" if is_encoder_only else "tgt_embedding.tokens.weight"
    assert not torch.equal(state.model.state_dict()[table], before[table])


def test_the_other_embeddings_do_not_depend_on_it(tiny: Preset):
    model = build_model(tiny.model, build_task(tiny.task), torch.Generator().manual_seed(3))
    table = model.src_embedding.tokens.weight
    drawn = torch.empty_like(table).normal_(std=table.shape[1] ** -0.5, generator=torch.Generator().manual_seed(3))
    assert torch.equal(table[1:], drawn[1:])


def test_padding_in_the_loss_does_not_train_it_either(tiny: Preset):
    state = new_state(tiny.with_bug("pad-in-the-loss"))
    list(train(state))
    assert all((row == 0).all() for row in pad_rows(state.model))


@pytest.mark.parametrize("tie", ["none", "output", "all"])
def test_weights_of_older_runs_are_used_and_kept(tiny: Preset, tie):
    state = new_state(tiny.with_changes({"model.tie_embeddings": tie}))
    for row in pad_rows(state.model):
        row.data.fill_(0.5)  # as a run saved it that was trained before PAD's embedding was zero
    saved = {name: weight.clone() for name, weight in state.model.state_dict().items()}
    zero = {name: w.index_fill(0, torch.tensor([PAD_ID]), 0) if "tokens" in name else w for name, w in saved.items()}
    ids, scores = torch.tensor([[BOS_ID, 5]]), {}
    for name, weights in (("saved", saved), ("zero", zero)):
        state.model.load_state_dict(weights)
        scores[name] = state.model(ids, ids)[..., PAD_ID]
    assert torch.equal(scores["saved"], scores["zero"]) == (tie == "none")
    state.model.load_state_dict(saved)
    list(train(state))
    assert all((row == 0.5).all() for row in pad_rows(state.model))


def test_a_tied_output_passes_the_gradient_of_every_other_row():
    embedding, output, states = Embedding(7, 4, Dropout(0.0)), Output(4, 7, is_tied=True), torch.randn(2, 3, 4)
    output(states, embedding).square().sum().backward()
    plain = embedding.tokens.weight.detach().requires_grad_()
    F.linear(states, plain, output.bias).square().sum().backward()
    gradient = embedding.tokens.weight.grad
    assert_close(gradient[1:], plain.grad[1:])
    assert (gradient[PAD_ID] == 0).all()
    assert (plain.grad[PAD_ID] != 0).any()
