"""Learning-rate schedules and gradient clipping."""

from collections.abc import Iterable

import torch

from core.config import TrainingConfig


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


def clip_gradients(parameters: Iterable[torch.nn.Parameter], max_norm: float) -> float:
    """Scale all gradients down together so that their joint norm is at most ``max_norm``.

    Returns:
        The norm before clipping; not finite if a gradient is not.
    """
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm, foreach=True).item()
