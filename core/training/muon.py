"""Muon: matrices are updated in all their directions alike, and what is no matrix of a layer as Adam does it."""

from collections.abc import Iterable

import torch

_ITERATION = (3.4445, -4.7750, 2.0315)  # coefficients of X, XXᵀX and (XXᵀ)²X
_ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) for matrices, Adam for all else.

    A matrix follows the mean of its gradients, with Nesterov's look ahead, after the singular values of that were all
    made about 1. So it learns along directions that few gradients have as fast as along those that most have. This is
    what ``torch.optim.Muon`` does, but for all matrices of one shape at once, which for small ones on a CPU takes a
    fraction of the time, and in the precision of the weights unless told otherwise.

    Args:
        matrices: those that map vectors to vectors; all of two dimensions.
        others: whatever else is trained: embeddings, the output, biases, norms.
        lr: Adam's step size. A schedule may set it anew in ``param_groups``, whose ``times`` tells what to multiply it
            by for the group.
        matrix_lr: how far the update of a square or wide matrix goes, as the spectral norm of it; of a tall one as
            much further as the root of height by width.
        momentum: how slowly the mean of a matrix's gradient forgets.
        betas: Adam's.
        products: what the singular values are evened out in; None is as the weights are.
    """

    def __init__(
        self,
        matrices: Iterable[torch.nn.Parameter],
        others: Iterable[torch.nn.Parameter],
        *,
        lr: float,
        matrix_lr: float,
        momentum: float = 0.9,
        betas: tuple[float, float] = (0.9, 0.99),
        products: torch.dtype | None = None,
    ) -> None:
        groups = [
            {"params": list(matrices), "lr": matrix_lr, "times": matrix_lr / lr},
            {"params": list(others), "lr": lr, "times": 1.0},
        ]
        super().__init__(groups, {})
        self.momentum, self.products = momentum, products
        self._adam = torch.optim.Adam(self.param_groups[1:], lr=lr, betas=betas, fused=True)
        self._adam.state = self.state  # whoever saves or restores the one has the other

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient, in place."""
        group = self.param_groups[0]
        by_shape: dict[torch.Size, list[torch.nn.Parameter]] = {}
        for matrix in group["params"]:
            if matrix.grad is not None:
                by_shape.setdefault(matrix.shape, []).append(matrix)
        for matrices in by_shape.values():
            self._update(matrices, group["lr"])
        self._adam.step()

    def _update(self, matrices: list[torch.nn.Parameter], lr: float) -> None:
        """Update matrices of one shape."""
        for matrix in matrices:
            if not self.state[matrix]:
                self.state[matrix]["mean"] = torch.zeros_like(matrix)
        gradients = torch.stack([matrix.grad for matrix in matrices])  # (N, rows, columns)
        means = torch.stack([self.state[matrix]["mean"] for matrix in matrices]).lerp_(gradients, 1 - self.momentum)
        updates = orthogonalize(gradients.lerp(means, self.momentum).to(self.products or gradients.dtype))
        rows, columns = matrices[0].shape
        length = lr * max(1.0, rows / columns) ** 0.5
        for matrix, mean, update in zip(matrices, means, updates, strict=True):
            self.state[matrix]["mean"].copy_(mean)
            matrix.sub_(update, alpha=length)


def orthogonalize(matrices: torch.Tensor) -> torch.Tensor:
    """Make all singular values about 1, from 0.7 to 1.2, and leave the directions as they are.

    Newton and Schulz's iteration with the coefficients of Jordan et al. 2024, which lift small ones quickly and do not
    settle.

    Args:
        matrices: (N, rows, columns) float.

    Returns:
        The same shape.
    """
    rows, columns = matrices.shape[1:]
    if rows > columns:
        return orthogonalize(matrices.mT).mT
    first, third, fifth = _ITERATION
    turned = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # no singular value is above 1
    for _ in range(_ITERATIONS):
        gram = turned @ turned.mT  # (N, rows, rows)
        turned = torch.baddbmm(turned, torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth), turned, beta=first)
    return turned
