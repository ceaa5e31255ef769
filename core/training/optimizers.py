"""The optimisers and gradient clipping."""

import math
from collections.abc import Iterable

import torch

from core.config.sections import TrainingConfig
from core.models.embeddings import Embedding
from core.training.muon import Muon


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


def build_optimizer(config: TrainingConfig, model: torch.nn.Module) -> torch.optim.Optimizer:
    """Return the optimiser that a preset's ``training`` section names, for all parameters of a model."""
    parameters, lr = model.parameters(), config.learning_rate
    if config.optimizer == "adam-by-hand":
        return Adam(parameters, lr=lr)
    if config.optimizer == "adamw":
        return torch.optim.AdamW(decay_groups(parameters, config.weight_decay), lr=lr, fused=True)
    if config.optimizer == "muon":
        products = torch.bfloat16 if config.precision == "bfloat16" else None
        return Muon(*layer_matrices(model), lr=lr, matrix_lr=config.muon_learning_rate, products=products)
    return torch.optim.Adam(parameters, lr=lr, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set how far the next update goes: what ``learning_rate_at`` says, times what a group has of its own."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group.get("times", 1.0)


def layer_matrices(model: torch.nn.Module) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """Return the matrices that map vectors to vectors, and all other parameters.

    The tables of the embeddings and the output, whose rows stand for tokens, are among the others.
    """
    of_tokens = {
        parameter
        for module in model.modules()
        if isinstance(module, Embedding | torch.nn.Embedding) or module is getattr(model, "output", None)
        for parameter in module.parameters()
    }
    matrices = [each for each in model.parameters() if each.ndim == 2 and each not in of_tokens]
    return matrices, [each for each in model.parameters() if each.ndim != 2 or each in of_tokens]


def decay_groups(parameters: Iterable[torch.nn.Parameter], weight_decay: float) -> list[dict]:
    """Divide parameters into those that weight decay (Loshchilov & Hutter 2019, algorithm 2) pulls to zero and others.

    Biases and the gains of norms, which are all the parameters of one dimension, are not pulled: zero is no better a
    place for them than any other, and they cannot overfit much.
    """
    parameters = list(parameters)
    return [
        {"params": [each for each in parameters if each.ndim > 1], "weight_decay": weight_decay},
        {"params": [each for each in parameters if each.ndim <= 1], "weight_decay": 0.0},
    ]


def clip_gradients(parameters: Iterable[torch.nn.Parameter], max_norm: float) -> float:
    """Scale all gradients down together so that their joint norm is at most ``max_norm``.

    Returns:
        The norm before clipping. It is not finite if a gradient is not; then all gradients are left as they are, so
        that one can see which.
    """
    parameters = list(parameters)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    length = norm.item()
    if math.isfinite(length):
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return length
