"""Activation patching equals one patched forward pass per cell; everything restores, nothing changes nothing."""

from functools import cache

import pytest
import torch
from torch.testing import assert_close

from core.config.tasks import MaskedDigitsConfig
from core.interpret.attribution.activation_patching import activation_patching
from core.interpret.attribution.corrupted_input import corrupt
from core.interpret.attribution.prediction import prediction_at
from core.models.hooks import hooks
from core.runs import DEFAULT_ROOT
from core.runs.load import load_run
from core.storage.errors import InputError
from core.tasks.masked_digits import MASK, MaskedDigits
from tests.support.attribution_models import (
    ENCODER_ONLY,
    FAMILIES,
    RECURRENT,
    WITH_DECODER,
    WITH_STREAM,
    build,
    digits,
    predict,
)
from tests.support.scripted_models import encoder_only

CHANGED = tuple("48795")  # column 3 of the source
CLOSE = {"atol": 1e-4, "rtol": 1e-4}


@cache
def patched(name: str):
    """The patches of a family's model; no test changes them."""
    model = build(name)
    return activation_patching(model, digits(), predict(model, step=3), corrupted=CHANGED)


@pytest.mark.parametrize("name", FAMILIES)
def test_all_of_the_source_restores_everything_and_what_is_equal_nothing(name):
    result = patched(name)
    assert result.changed == (3,)
    grid = result.grids[0]
    assert (grid.positions, grid.rows[0]) == ("source", "embedding")
    if name.startswith("decoder-only"):  # the target reads what the source's lower layers were, so not from layer 1 on
        assert_close(grid.whole[:1], torch.ones(1), **CLOSE)
    else:
        assert_close(grid.whole, torch.ones(len(grid.rows)), **CLOSE)
    assert_close(grid.restored[0], torch.tensor([0.0, 0, 0, 1, 0, 0, 0]), **CLOSE)


@pytest.mark.parametrize("name", WITH_DECODER)
def test_the_last_activation_of_the_decoder_restores_everything(name):
    result = patched(name)
    grid = result.grid("states" if name in RECURRENT else "residual stream", "decoder", "target")
    assert grid.columns == result.prediction.prefix_labels
    assert_close(grid.restored[-1, -1], torch.tensor(1.0), **CLOSE)
    assert_close(grid.whole[-1], torch.tensor(1.0), **CLOSE)
    if name not in RECURRENT:
        assert_close(grid.restored[0], torch.zeros(4), **CLOSE)  # both runs read the same tokens
        assert_close(grid.restored[-1, :-1], torch.zeros(3), **CLOSE)  # nothing reads the others any more


@pytest.mark.parametrize("name", ENCODER_ONLY)
def test_of_the_last_activations_of_an_encoder_alone_only_the_predicting_one_restores(name):
    result = patched(name)
    assert [(grid.name, grid.block) for grid in result.grids] == [
        ("residual stream", "encoder"),
        ("attention output", "encoder"),
        ("heads", "encoder"),
    ]
    assert_close(result.grids[0].restored[-1], torch.tensor([0.0, 0, 0, 0, 1, 0, 0]), **CLOSE)  # step 3, after BOS


@pytest.mark.parametrize("name", FAMILIES)
def test_shares_are_of_the_logit_difference(name):
    model = build(name)
    result = patched(name)
    source = torch.tensor([[1, *digits().src_vocab.encode(CHANGED), 2]])
    clean, corrupted = (model(src, result.prediction.tgt_in)[0, -1] for src in (result.prediction.src, source))
    assert result.clean_difference == pytest.approx(result.prediction.score(clean).item(), abs=1e-5)
    assert result.corrupted_difference == pytest.approx(result.prediction.score(corrupted).item(), abs=1e-5)
    for grid in result.grids:
        shape = len(grid.rows), len(grid.columns)
        assert grid.restored.shape == grid.is_restored.shape == shape
        assert grid.whole.shape == shape[:1]


def one_by_one(model, result, name: str, phases: tuple[str, ...], column: int) -> float:
    """The share that one patch restores, by three forward passes of one sequence."""
    prediction, clean = result.prediction, {}
    source = torch.tensor([[1, *digits().src_vocab.encode(result.corrupted), 2]])

    def forward(src, hook):
        with hooks({name: lambda x: hook("encode", x)} if "encode" in phases else {}):
            memory = model.encode(src)
        with hooks({name: lambda x: hook("decode", x)} if "decode" in phases else {}):
            return prediction.score(model.decode(prediction.tgt_in, memory).logits[0, -1]).item()

    def replace(phase, x):
        x = x.clone()
        x[:, column] = clean[phase][:, column]
        return x

    top = forward(prediction.src, lambda phase, x: clean.__setitem__(phase, x))
    bottom, now = forward(source, lambda phase, x: None), forward(source, replace)
    return (now - bottom) / (top - bottom)


@torch.no_grad()
@pytest.mark.parametrize("name", WITH_STREAM)
def test_a_cell_equals_its_own_forward_pass(name):
    model = build(name)
    result = patched(name)
    only, alone = name.startswith("decoder-only"), name in ENCODER_ONLY
    encoder, decoder = ("layers.0", "layers.1") if only else ("encoder_layers.0", "decoder_layers.1")
    block = "decoder" if only else "encoder"
    cells = [
        (result.grid("residual stream", block, "source"), 1, 3, f"{encoder}.hook_resid_mid", ("encode",)),
        (result.grid("attention output", block, "source"), 0, 2, f"{encoder}.self_attention.hook_out", ("encode",)),
    ]
    if not alone:
        phases = ("encode", "decode") if only else ("decode",)
        attended = result.grid("attention output", "decoder", "target")
        cells += [
            (attended, 1, 3, f"{decoder}.self_attention.hook_out", ("decode",)),
            (result.grid("heads", "decoder"), 1, 1, f"{decoder}.self_attention.hook_z", phases),
        ]
    if not only:
        cells.append((result.grid("heads", "encoder"), 0, 1, f"{encoder}.self_attention.hook_z", ("encode",)))
    if not only and not alone:
        cells += [
            (result.grid("heads", "cross"), 1, 0, f"{decoder}.cross_attention.hook_z", ("decode",)),
            (result.grid("residual stream", "decoder"), 5, 3, f"{decoder}.hook_resid_cross", ("decode",)),
        ]
    for grid, row, column, point, phases in cells:
        assert grid.restored[row, column].item() == pytest.approx(
            one_by_one(model, result, point, phases, column), abs=1e-3
        ), point


def test_the_chosen_change_makes_the_model_predict_something_else():
    loaded = load_run(DEFAULT_ROOT / "digits-reversal-shipped")
    model, task = loaded.model, loaded.task
    clean = prediction_at(model, task, list("482956"), step=2)
    result = activation_patching(model, task, clean)
    assert result.changed == (4,)  # 9, which step 3 of the reversed answer produces
    assert result.clean_difference > 0 > result.corrupted_difference
    stream = result.grid("residual stream", "encoder")
    assert stream.is_restored[:, 4].all()
    assert not stream.is_restored[0, [1, 2, 3, 5, 6]].any()
    against = prediction_at(model, task, list("482956"), step=2, foil="2")
    assert corrupt(model, task, against) == tuple("482256")
    assert corrupt(model, task, against, position=0, replacement="7") == tuple("782956")


@pytest.mark.parametrize("seed", range(3))
def test_the_chosen_change_leaves_masks_where_they_are(seed):
    task = MaskedDigits(MaskedDigitsConfig(min_half=2, max_half=5, masked_share=0.2))
    model = encoder_only(seed=seed, vocab_size=len(task.src_vocab))
    symbols = ["4", "8", MASK, "2", "8", "4"]
    for step, symbol in enumerate(symbols):
        clean = prediction_at(model, task, symbols, step=step, answer=["4", "8", "2", "2", "8", "4"])
        changed = corrupt(model, task, clean)
        assert [token == MASK for token in changed] == [token == MASK for token in symbols]
        named = corrupt(model, task, clean, position=2, replacement="7")  # as the caller says
        assert named == ("4", "8", "7", "2", "8", "4")
        assert symbol == MASK or corrupt(model, task, clean, position=step, replacement=MASK)[step] == MASK


def test_what_cannot_be_patched_is_refused():
    loaded = load_run(DEFAULT_ROOT / "digits-reversal-shipped")
    model, task = loaded.model, loaded.task
    clean = prediction_at(model, task, list("4829"), step=0)
    for options, message in (
        ({"corrupted": list("482")}, "the changed input has 3 tokens; it must have 4"),
        ({"corrupted": list("4829")}, "the changed input is the input itself"),
        ({"corrupted": list("7829")}, "the changed input leaves the prediction at step 1 at '9'"),
        ({"corrupted": list("482x")}, "x"),
    ):
        with pytest.raises(InputError, match=message):
            activation_patching(model, task, clean, **options)
    ends = prediction_at(model, task, list("4829"), step=4)
    with pytest.raises(InputError, match="no other token at any position makes the model predict another token"):
        activation_patching(model, task, ends)
    for options, message in (
        ({"position": 4}, "position 5 is not a token"),
        ({"replacement": "1"}, "needs the position"),
    ):
        with pytest.raises(InputError, match=message):
            corrupt(model, task, clean, **options)
