"""LSTM and RNN cells equal PyTorch's with copied weights, and a stack RNN its equations."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from core.models import build_model, count_parameters, parameters_of
from core.models.cells import Cell, LSTMCell, RNNCell, StackRNNCell
from core.models.gru import GRUSeq2Seq
from core.tasks import build_task
from tests.support.scripted_models import make_model

B, S, E, D, LAYERS, LENGTHS = 3, 7, 5, 6, 2, [7, 4, 2]
WITHIN = {"atol": 1e-5, "rtol": 0}
THEIRS = {"lstm": nn.LSTM, "rnn": nn.RNN}
THEIR_CELLS = {LSTMCell: nn.LSTMCell, RNNCell: nn.RNNCell}
OURS = [*THEIRS, "stack-rnn"]
CELLS = pytest.mark.parametrize("cell", THEIRS)
MEMORY_CELLS = pytest.mark.parametrize("kind", THEIR_CELLS)


def gradients(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.grad for name, parameter in module.named_parameters()}


@MEMORY_CELLS
def test_a_cell_equals_pytorchs_in_its_state_and_every_gradient(kind: type[Cell]):
    ours, theirs = kind(E, D), THEIR_CELLS[kind](E, D)
    theirs.load_state_dict(ours.state_dict())
    x, state = torch.randn(B, E, requires_grad=True), torch.randn(B, ours.d_state, requires_grad=True)
    expected = theirs(x, state.chunk(2, dim=-1) if kind is LSTMCell else state)
    expected = torch.cat(expected, dim=-1) if kind is LSTMCell else expected
    weights = torch.randn_like(expected)
    of_inputs = []
    for result in (ours(x, state), expected):
        of_inputs.append(torch.autograd.grad((result * weights).sum(), (x, state), retain_graph=True))
        (result * weights).sum().backward()
        assert_close(result, expected, **WITHIN)
    assert_close(*of_inputs, **WITHIN)
    assert_close(gradients(ours), gradients(theirs), **WITHIN)


@pytest.mark.parametrize(("is_training", "sharpness"), [(True, 1), (False, 4)])
@torch.no_grad()
def test_a_stack_pushes_pops_and_keeps_in_proportion_to_their_probabilities(is_training: bool, sharpness: int):
    cell, size = StackRNNCell(E, D).train(is_training), StackRNNCell.WIDTH
    x, hidden, stack = torch.randn(E), torch.randn(D), list(torch.randn(3, size))
    state = cell(x[None], torch.cat([hidden, *stack])[None])[0]
    hidden = (cell.weight_ih @ torch.cat([x, stack[0]]) + cell.bias_ih + cell.weight_hh @ hidden + cell.bias_hh).tanh()
    push, pop, keep = (sharpness * cell.actions(hidden)).softmax(dim=0)
    nothing, value = torch.zeros(size), cell.pushed(hidden).sigmoid()
    nexts = zip([value, *stack], [*stack[1:], nothing, nothing], [*stack, nothing], strict=True)
    expected = [push * pushed + pop * popped + keep * kept for pushed, popped, kept in nexts]
    assert_close(state, torch.cat([hidden, *expected]), **WITHIN)


@torch.no_grad()
def test_a_stack_gives_back_every_vector_in_reverse_order():
    """Ten are pushed while inputs are positive, and all are popped while they are negative."""
    cell, size = StackRNNCell(1, 1), StackRNNCell.WIDTH
    cell.weight_ih.copy_(torch.tensor([[1.0] + [0.0] * size]))
    for parameter in (cell.weight_hh, cell.bias_ih, cell.bias_hh, cell.actions.bias, cell.pushed.weight):
        parameter.zero_()
    cell.actions.weight.copy_(torch.tensor([[1e4], [-1e4], [0.0]]))
    state, pushed, popped = torch.zeros(1, cell.d_state), torch.randn(10, size), []
    for value in pushed:
        cell.pushed.bias.copy_(value)
        state = cell(torch.ones(1, 1), state)
    for _ in pushed:
        popped.append(state[0, 1 : 1 + size])
        state = cell(-torch.ones(1, 1), state)
    assert_close(torch.stack(popped), pushed.sigmoid().flip(0))
    assert (state[0, 1:] == 0).all()


@CELLS
def test_the_encoder_equals_pytorchs_stacked_layers_on_packed_sequences(cell):
    model = make_model(GRUSeq2Seq, cell=cell, d_embedding=E, d_hidden=D, num_layers=LAYERS).eval()
    theirs = THEIRS[cell](E, D, LAYERS, batch_first=True)
    with torch.no_grad():
        for number, layer in enumerate(model.encoder.layers):
            for name, weight in layer.cell.named_parameters():
                theirs.get_parameter(f"{name}_l{number}").copy_(weight)
    x = torch.randn(B, S, E)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True)
    outputs, final = theirs(packed)
    outputs, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)
    final = torch.cat(final, dim=-1) if cell == "lstm" else final
    states, ours = model.encoder(x, torch.tensor(LENGTHS))
    real = torch.arange(S) < torch.tensor(LENGTHS)[:, None]
    assert_close(states[real], outputs[real], **WITHIN)
    assert_close(ours, final, **WITHIN)
    weights = torch.randn_like(final)
    for output, last in ((states, ours), (outputs, final)):
        (output[real].square().sum() + (last * weights).sum()).backward()
    for number, layer in enumerate(model.encoder.layers):
        for name, gradient in gradients(layer.cell).items():
            assert_close(gradient, theirs.get_parameter(f"{name}_l{number}").grad, **WITHIN)


@pytest.mark.parametrize("cell", OURS)
def test_the_number_of_parameters_follows_the_formula(tiny_gru, cell):
    config, task = tiny_gru.with_changes({"model.cell": cell}).model, build_task(tiny_gru.task)
    embedding, hidden, gates, vocab = config.d_embedding, config.d_hidden, 4 if cell == "lstm" else 1, 13
    expected = 2 * vocab * embedding + 2 * hidden**2 + hidden + (hidden + 1) * vocab
    for first in (embedding, embedding + hidden):
        expected += sum(gates * hidden * (width + hidden + 2) for width in [first, hidden])
    if cell == "stack-rnn":  # reads a vector of width 8, and computes one and three probabilities
        expected += 4 * (hidden * 8 + (hidden + 1) * (8 + 3))
    assert parameters_of(config, task) == expected
    assert count_parameters(build_model(config, task, torch.Generator())) == expected


@CELLS
def test_recurrent_weights_start_orthogonal_gate_by_gate(tiny_gru, cell):
    preset = tiny_gru.with_changes({"model.cell": cell})
    model = build_model(preset.model, build_task(preset.task), torch.Generator().manual_seed(0))
    cells = [module for module in model.modules() if isinstance(module, Cell)]
    assert len(cells) == 4
    for each in cells:
        assert (each.bias_ih == 0).all()
        assert (each.bias_hh == 0).all()
        for gate in each.weight_hh.chunk(each.num_gates):
            assert_close(gate @ gate.T, torch.eye(len(gate)), atol=1e-5, rtol=0)


def test_a_preset_without_a_cell_has_the_gru(tiny_gru):
    from core.config import parse_preset

    document = tiny_gru.model_dump()
    del document["model"]["cell"]
    assert parse_preset(document).model.cell == "gru"
