"""Optimizers and gradient clipping. Muon has a module of its own, core.training.muon."""

import math
from collections.abc import Iterable
from typing import Any

import torch

from core.config.training import TrainingConfig
from core.models.embeddings import Embedding
from core.training import without_compiler
from core.training.muon import Muon
from core.training.precision import computes_in_bfloat16


class Adam(without_compiler.Optimizer):
    """Adam (Kingma & Ba 2015, algorithm 1) written out for reading; presets select it with ``adam-by-hand``.

    Args:
        parameters: the parameters to train, or groups of them.
        lr: step size α; a schedule may change it in ``param_groups`` before each step.
        betas: decay rates of the first (β1) and the second (β2) moment.
        eps: added to the denominator to avoid division by zero.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter] | list[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no closure: nothing here evaluates the loss again
        """Update every parameter that has a gradient, in place."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update(self, parameter: torch.nn.Parameter, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        state, (beta1, beta2) = self.state[parameter], group["betas"]
        if not state:
            state["step"] = torch.tensor(0)
            state["first_moment"] = torch.zeros_like(parameter)
            state["second_moment"] = torch.zeros_like(parameter)
        state["step"] += 1
        state["first_moment"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        state["second_moment"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        # Both moments start at zero; the division corrects that bias.
        step = int(state["step"])
        first_moment = state["first_moment"] / (1 - beta1**step)
        second_moment = state["second_moment"] / (1 - beta2**step)
        parameter.addcdiv_(first_moment, second_moment.sqrt().add_(group["eps"]), value=-group["lr"])


def build_optimizer(config: TrainingConfig, model: torch.nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of a preset's ``training`` section for all parameters of a model."""
    rates: dict[str, Any] = {"lr": config.learning_rate}
    if config.adam_beta2:
        rates["betas"] = (0.9, config.adam_beta2)
    if config.optimizer == "muon":
        dtype = torch.bfloat16 if computes_in_bfloat16(config, next(model.parameters()).device) else None
        matrices, others = layer_matrices(model)
        groups = embedding_groups([{"params": others}], model, config)
        return Muon(matrices, groups, matrix_lr=config.muon_learning_rate, dtype=dtype, **rates)
    if config.optimizer == "adamw":
        groups = embedding_groups(decay_groups(model.parameters(), config.weight_decay), model, config)
        return without_compiler.AdamW(groups, fused=True, **rates)
    groups = embedding_groups([{"params": list(model.parameters())}], model, config)
    if config.optimizer == "adam-by-hand":
        return Adam(groups, **rates)
    return without_compiler.Adam(groups, fused=True, **rates)


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float | torch.Tensor) -> None:
    """Set the learning rate of every parameter group, times the group's ``lr_scale`` if it has one.

    A tensor is for updates that are traced into a graph; see ``core.graphs.training_step``.
    """
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group.get("lr_scale", 1.0)


def layer_matrices(model: torch.nn.Module) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """Divide a model's parameters into weight matrices of layers and all others.

    Embedding tables and the output layer, with one row per token, are among the others.
    """
    token_parameters = _embedding_parameters(model) | {*getattr(model, "output", torch.nn.Identity()).parameters()}
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for parameter in model.parameters():
        (matrices if parameter.ndim == 2 and parameter not in token_parameters else others).append(parameter)
    return matrices, others


def embedding_groups(
    groups: list[dict[str, Any]], model: torch.nn.Module, config: TrainingConfig
) -> list[dict[str, Any]]:
    """Divide each parameter group into embeddings and others if a preset has a learning rate for embeddings."""
    if not config.embedding_learning_rate:
        return groups
    embeddings = _embedding_parameters(model)
    lr = config.embedding_learning_rate
    rate = {"lr": lr, "lr_scale": lr / config.learning_rate}
    divided = []
    for group in groups:
        others = [parameter for parameter in group["params"] if parameter not in embeddings]
        inside = [parameter for parameter in group["params"] if parameter in embeddings]
        divided += [group | {"params": others}, group | rate | {"params": inside}]
    return [group for group in divided if group["params"]]


def _embedding_parameters(model: torch.nn.Module) -> set[torch.nn.Parameter]:
    """Return the parameters of token embeddings, and of learned positions, which are parts of these modules."""
    modules = (module for module in model.modules() if isinstance(module, Embedding | torch.nn.Embedding))
    return {parameter for module in modules for parameter in module.parameters()}


def decay_groups(parameters: Iterable[torch.nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Divide parameters into groups with and without weight decay (Loshchilov & Hutter 2019, algorithm 2).

    One-dimensional parameters, which are biases and the gains of norms, are not decayed: they overfit little, and
    zero is no natural value for a gain.
    """
    parameters = list(parameters)
    return [
        {"params": [parameter for parameter in parameters if parameter.ndim > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in parameters if parameter.ndim <= 1], "weight_decay": 0.0},
    ]


def clip_each_gradient(parameters: Iterable[torch.nn.Parameter], max_norm: float) -> float:
    """Scale down every gradient separately, in place, so that its own L2 norm is at most ``max_norm``.

    Returns:
        The joint norm before clipping; see ``clip_gradients``.
    """
    parameters = list(parameters)
    norm = clip_gradients(parameters, math.inf)
    if math.isfinite(norm):
        for parameter in parameters:
            clip_gradients([parameter], max_norm)
    return norm


def clip_gradients(parameters: Iterable[torch.nn.Parameter], max_norm: float) -> float:
    """Scale all gradients down, in place, so that their joint L2 norm is at most ``max_norm``.

    Returns:
        The norm before clipping. If it is not finite, the gradients are unchanged, so that one can find which is the
        cause.
    """
    parameters = list(parameters)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    total_norm = torch.nn.utils.get_total_norm(gradients)
    norm = total_norm.item()
    if math.isfinite(norm):
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, total_norm)
    return norm
