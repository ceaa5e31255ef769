"""Recurrent cells from tensor operations: LSTM (Hochreiter & Schmidhuber 1997), plain RNN (Elman 1990), stack RNN.

Weights of the first two have the names, shapes and gate order of PyTorch's cells.
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
    d_state: int  # width of the state at the start, all zeros; its first d_hidden numbers are the hidden state
    weight_ih: nn.Parameter
    weight_hh: nn.Parameter
    bias_ih: nn.Parameter
    bias_hh: nn.Parameter

    def __init__(self, d_input: int, d_hidden: int) -> None:
        super().__init__()
        self.d_input, self.d_hidden, self.d_state = d_input, d_hidden, d_hidden
        rows, bound = self.num_gates * d_hidden, 1 / math.sqrt(d_hidden)
        shapes = {"weight_ih": (rows, d_input), "weight_hh": (rows, d_hidden), "bias_ih": (rows,), "bias_hh": (rows,)}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape).uniform_(-bound, bound)))

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return the next state after an input (B, E) and a state (B, d_state)."""
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

    num_gates = 4

    def __init__(self, d_input: int, d_hidden: int) -> None:
        super().__init__(d_input, d_hidden)
        self.d_state = 2 * d_hidden

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return the next state (B, 2 D) after an input (B, E)."""
        check_vectors("state", state, 2 * self.d_hidden, batch=len(x))
        hidden, cell = state.chunk(2, dim=-1)
        i, f, g, o = self.gates(x, hidden).chunk(4, dim=-1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        return torch.cat([o.sigmoid() * cell.tanh(), cell], dim=-1)


class RNNCell(Cell):
    """The plain recurrent cell, h' = tanh(W_ih x + W_hh h + b), as ``nn.RNNCell``."""

    num_gates = 1

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return the next state (B, D) after an input (B, E)."""
        return self.gates(x, state).tanh()


class StackRNNCell(Cell):
    """The plain recurrent cell with a stack of vectors that it reads and changes at every step (Joulin & Mikolov 2015).

    h' = tanh(W_ih [x; top] + W_hh h + b), where top is the vector on top of the stack. From h' the cell computes a
    vector and the probabilities to push it, to pop the top and to keep the stack as it is; the next stack is the mean
    of the three. Each mean blurs the stack a little, which adds up in long inputs, so in evaluation mode the
    probabilities are sharpened, as their rounding does. The state is (h, stack), the stack from its top. Every step
    makes room for a vector, so none is lost.
    """

    num_gates = 1
    WIDTH = 8  # of a vector, as in Delétang et al. 2023
    SHARPNESS = 4  # in evaluation: the logits of the three are multiplied by it

    def __init__(self, d_input: int, d_hidden: int) -> None:
        super().__init__(d_input + self.WIDTH, d_hidden)
        self.d_input, self.d_state = d_input, d_hidden + self.WIDTH
        self.actions, self.pushed = nn.Linear(d_hidden, 3), nn.Linear(d_hidden, self.WIDTH)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return the next state (B, D + 8 (K + 1)) after an input (B, E) and a state with K vectors, (B, D + 8 K)."""
        hidden, stack = state[:, : self.d_hidden], state[:, self.d_hidden :]
        hidden = self.gates(torch.cat([x, stack[:, : self.WIDTH]], dim=-1), hidden).tanh()
        sharpness = 1 if self.training else self.SHARPNESS
        push, pop, keep = (sharpness * self.actions(hidden)).softmax(dim=-1).split(1, dim=-1)
        pushed = torch.cat([self.pushed(hidden).sigmoid(), stack], dim=-1)
        popped, kept = F.pad(stack[:, self.WIDTH :], (0, 2 * self.WIDTH)), F.pad(stack, (0, self.WIDTH))
        return torch.cat([hidden, push * pushed + pop * popped + keep * kept], dim=-1)


class RecurrentLayer(nn.Module):
    """A cell that reads sequences from left to right, starting from a state of zeros."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Read inputs (B, S, E); return the states after each, (B, S, N), and the last of them.

        N is the width of the last state; states that are narrower are padded with zeros.
        """
        check_states("x", x, self.cell.d_input)
        state, states = x.new_zeros(x.shape[0], self.cell.d_state), []
        for token in x.unbind(dim=1):
            state = self.cell(token, state)
            states.append(state)
        width = state.shape[-1]
        return torch.stack([F.pad(each, (0, width - each.shape[-1])) for each in states], dim=1), state
