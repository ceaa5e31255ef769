"""Recurrent cells from tensor operations: the LSTM (Hochreiter & Schmidhuber 1997) and the plain RNN (Elman 1990).

Weights have the names, shapes and gate order of PyTorch's cells.
"""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from core.models.shape_checks import check_states, check_vectors


class Cell(nn.Module):
    """Base class of the cells: a cell computes the next state of a recurrent layer from an input and its state.

    Args:
        d_input: width of the inputs.
        d_hidden: width of the hidden state.
    """

    num_gates: ClassVar[int]  # vectors of width d_hidden computed from input and hidden state
    num_states: ClassVar[int]  # vectors of width d_hidden in the state; the hidden state is the first
    weight_ih: nn.Parameter
    weight_hh: nn.Parameter
    bias_ih: nn.Parameter
    bias_hh: nn.Parameter

    def __init__(self, d_input: int, d_hidden: int) -> None:
        super().__init__()
        self.d_hidden = d_hidden
        rows, bound = self.num_gates * d_hidden, 1 / math.sqrt(d_hidden)
        shapes = {"weight_ih": (rows, d_input), "weight_hh": (rows, d_hidden), "bias_ih": (rows,), "bias_hh": (rows,)}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape).uniform_(-bound, bound)))

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return the next state (B, num_states · D) after an input (B, E)."""
        raise NotImplementedError

    def gates(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Return W_ih x + b_ih + W_hh h + b_hh, (B, num_gates · D), for inputs (B, E) and hidden states (B, D)."""
        check_vectors("x", x, self.weight_ih.shape[1])
        check_vectors("hidden", hidden, self.d_hidden, batch=len(x))
        return F.linear(x, self.weight_ih, self.bias_ih) + F.linear(hidden, self.weight_hh, self.bias_hh)


class LSTMCell(Cell):
    """Long short-term memory with a forget gate (Gers et al. 2000), as ``nn.LSTMCell``.

    c' = σ(f) · c + σ(i) · tanh(g) and h' = σ(o) · tanh(c'). The state is (h, c), side by side.
    """

    num_gates, num_states = 4, 2

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return the next state (B, 2 D) after an input (B, E)."""
        check_vectors("state", state, 2 * self.d_hidden, batch=len(x))
        hidden, cell = state.chunk(2, dim=-1)
        i, f, g, o = self.gates(x, hidden).chunk(4, dim=-1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        return torch.cat([o.sigmoid() * cell.tanh(), cell], dim=-1)


class RNNCell(Cell):
    """The plain recurrent cell, h' = tanh(W_ih x + W_hh h + b), as ``nn.RNNCell``."""

    num_gates, num_states = 1, 1

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return the next state (B, D) after an input (B, E)."""
        return self.gates(x, state).tanh()


class RecurrentLayer(nn.Module):
    """A cell that reads sequences from left to right, starting from a state of zeros."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Read inputs (B, S, E); return the states after each, (B, S, num_states · D), and the last of them."""
        check_states("x", x, self.cell.weight_ih.shape[1])
        state, states = x.new_zeros(x.shape[0], self.cell.num_states * self.cell.d_hidden), []
        for token in x.unbind(dim=1):
            state = self.cell(token, state)
            states.append(state)
        return torch.stack(states, dim=1), state
