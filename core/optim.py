"""The optimisers, learning-rate schedules and gradient clipping."""

from collections.abc import Iterable

import torch

from core.sections import TrainingConfig


def learning_rate_at(step: int, config: TrainingConfig) -> float:
    """Return the learning rate of an update.

    Args:
        step: the update's number, from 1 to ``config.steps``.

    Returns:
        A straight rise to ``config.learning_rate`` over the warm-up; from there constant, or a straight fall that
        would reach zero one step after the last.
    """
    if step <= config.warmup_steps:
        return config.learning_rate * step / config.warmup_steps
    if config.schedule == "constant":
        return config.learning_rate
    left = config.steps + 1 - step
    return config.learning_rate * left / (config.steps + 1 - config.warmup_steps)


class Adam(torch.optim.Optimizer):
    """Adam (Kingma & Ba 2015, algorithm 1), written out.

    Args:
        parameters: what is trained.
        lr: the step size α; a schedule may set it anew in ``param_groups`` before each step.
        betas: how slowly the means of the gradient (β1) and of its square (β2) forget.
        eps: keeps the division finite.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient, in place."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group["lr"], group["betas"], group["eps"])

    def _update(self, parameter: torch.nn.Parameter, lr: float, betas: tuple[float, float], eps: float) -> None:
        state, gradient, (beta1, beta2) = self.state[parameter], parameter.grad, betas
        if not state:
            state["step"] = torch.tensor(0)
            state["first_moment"] = torch.zeros_like(parameter)
            state["second_moment"] = torch.zeros_like(parameter)
        state["step"] += 1
        state["first_moment"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        state["second_moment"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        # Both means began at zero; dividing by how much they have taken in by now makes up for it.
        step = int(state["step"])
        mean = state["first_moment"] / (1 - beta1**step)
        mean_square = state["second_moment"] / (1 - beta2**step)
        parameter.addcdiv_(mean, mean_square.sqrt().add_(eps), value=-lr)


def build_optimizer(config: TrainingConfig, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimiser that a preset's ``training`` section names."""
    if config.optimizer == "adam-by-hand":
        return Adam(parameters, lr=config.learning_rate)
    return torch.optim.Adam(parameters, lr=config.learning_rate, fused=True)


def clip_gradients(parameters: Iterable[torch.nn.Parameter], max_norm: float) -> float:
    """Scale all gradients down together so that their joint norm is at most ``max_norm``.

    Returns:
        The norm before clipping; not finite if a gradient is not.
    """
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm, foreach=True).item()
