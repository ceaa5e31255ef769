"""The Muon optimizer: orthogonalized momentum for the matrices of layers; all other parameters use Adam."""

from collections.abc import Iterable
from typing import Any

import torch

from core.training import without_compiler

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of X, XXᵀX and (XXᵀ)²X
_ITERATIONS = 5


class Muon(without_compiler.Optimizer):
    """Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) for matrices, and Adam for the rest.

    A matrix is updated with its Nesterov momentum after setting all singular values of the momentum to about 1, so rare
    gradient directions are learned as fast as frequent ones. The update is that of ``torch.optim.Muon``, with two
    differences: matrices of one shape are updated together, which for small matrices on a CPU is several times faster,
    and by default in the precision of the weights instead of bfloat16.

    Args:
        matrices: weights of layers, each (rows, columns).
        others: all other parameters, or groups of them: embeddings, output, biases, norms.
        lr: Adam's step size; a group may have its own. A schedule may change ``param_groups[i]["lr"]``;
            ``param_groups[i]["lr_scale"]`` is the group's factor for the schedule's value.
        matrix_lr: spectral norm of the update of a square or wide matrix; for a tall matrix, it is √(rows / columns)
            times as large.
        momentum: decay of the running mean of a matrix's gradients.
        betas: Adam's.
        dtype: dtype to orthogonalize in; None is that of the weights.
    """

    def __init__(
        self,
        matrices: Iterable[torch.nn.Parameter],
        others: Iterable[torch.nn.Parameter | dict[str, Any]],
        *,
        lr: float,
        matrix_lr: float,
        momentum: float = 0.9,
        betas: tuple[float, float] = (0.9, 0.99),
        dtype: torch.dtype | None = None,
    ) -> None:
        others = list(others)
        of_adam = [group for group in others if isinstance(group, dict)] or [{"params": others}]
        groups: list[dict[str, Any]] = [
            {"params": list(matrices), "lr": matrix_lr, "lr_scale": matrix_lr / lr},
            *({"lr": lr, "lr_scale": 1.0} | group for group in of_adam),
        ]
        super().__init__(groups, {})
        self.momentum, self.dtype = momentum, dtype
        self._adam = without_compiler.Adam(self.param_groups[1:], lr=lr, betas=betas, fused=True)
        self._adam.state = self.state  # one state to save and restore

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no closure: nothing here evaluates the loss again
        """Update every parameter that has a gradient, in place."""
        group = self.param_groups[0]
        by_shape: dict[torch.Size, list[torch.nn.Parameter]] = {}
        for matrix in group["params"]:
            if matrix.grad is not None:
                by_shape.setdefault(matrix.shape, []).append(matrix)
        for matrices in by_shape.values():
            self._update(matrices, group["lr"])
        self._adam.step()

    def _update(self, matrices: list[torch.nn.Parameter], lr: float | torch.Tensor) -> None:
        """Update matrices of one shape."""
        for matrix in matrices:
            if not self.state[matrix]:
                self.state[matrix]["momentum_buffer"] = torch.zeros_like(matrix)
        gradients = torch.stack([matrix.grad for matrix in matrices if matrix.grad is not None])  # (N, rows, columns)
        buffers = torch.stack([self.state[matrix]["momentum_buffer"] for matrix in matrices])
        buffers.lerp_(gradients, 1 - self.momentum)
        nesterov = gradients.lerp(buffers, self.momentum)
        updates = orthogonalize(nesterov.to(self.dtype or gradients.dtype))
        rows, columns = matrices[0].shape
        step_size = lr * max(1.0, rows / columns) ** 0.5
        for matrix, buffer, update in zip(matrices, buffers, updates, strict=True):
            self.state[matrix]["momentum_buffer"].copy_(buffer)
            if isinstance(step_size, torch.Tensor):  # in a graph, see core.graphs.training_step
                matrix.sub_(step_size * update)
            else:
                matrix.sub_(update, alpha=step_size)


def orthogonalize(matrices: torch.Tensor) -> torch.Tensor:
    """Set all singular values to about 1 (0.7 to 1.2) and keep the singular vectors.

    Newton-Schulz iteration with the coefficients of Jordan et al. 2024, which raise small singular values quickly and
    do not converge exactly.

    Args:
        matrices: (N, rows, columns) float.

    Returns:
        (N, rows, columns), same dtype.
    """
    rows, columns = matrices.shape[1:]
    if rows > columns:
        return orthogonalize(matrices.mT).mT
    first, third, fifth = _COEFFICIENTS
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # no singular value is above 1
    for _ in range(_ITERATIONS):
        gram = x @ x.mT  # (N, rows, rows)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth), x, beta=first)
    return x
