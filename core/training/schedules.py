"""Schedules: the learning rate and the teacher forcing ratio of each step."""

import math

from core.config.training import TrainingConfig

_ONE_CYCLE_RISE = 0.3  # fraction of the steps; this and the next two as in torch.optim.lr_scheduler.OneCycleLR
_ONE_CYCLE_START = 1 / 25  # fraction of the peak learning rate
_ONE_CYCLE_END = 1 / 25 / 1e4


def learning_rate_at(step: int, config: TrainingConfig) -> float:
    """Return the learning rate of an update.

    Args:
        step: number of the update, from 1 to ``config.steps``.

    Returns:
        A linear warm-up to the peak, ``config.learning_rate``, and from there

        - constant: the peak;
        - linear: a linear decay that would reach zero one step after the last;
        - polynomial: the linear decay to the power ``config.decay_power``; squared, half the steps are below a quarter
          of the peak;
        - cosine: half a cosine that would reach zero one step after the last (Loshchilov & Hutter 2017, eq. 5,
          without restarts);
        - inverse-sqrt: peak × √(warmup_steps / step). A peak of (d_model × warmup_steps)^-0.5 makes it
          d_model^-0.5 × min(step^-0.5, step × warmup_steps^-1.5), which is eq. 3 of Vaswani et al. 2017.

        One-cycle has its own increase instead of a warm-up (Smith 2018): half a cosine up from peak / 25 over the first
        30 % of the steps, half a cosine down to peak / 250,000 over the others.
    """
    peak, warmup = config.learning_rate, config.warmup_steps
    if config.schedule == "one-cycle":
        return peak * _one_cycle(step, config.steps)
    if step <= warmup:
        return peak * step / warmup
    if config.schedule == "inverse-sqrt":
        return peak * math.sqrt(warmup / step)
    remaining, decay_steps = config.steps + 1 - step, config.steps + 1 - warmup
    if config.schedule == "linear":
        return peak * remaining / decay_steps
    if config.schedule == "polynomial":
        return peak * (remaining / decay_steps) ** config.decay_power
    return peak * _interpolate_cosine(0, 1, remaining / decay_steps) if config.schedule == "cosine" else peak


def teacher_forcing_ratio_at(step: int, config: TrainingConfig) -> float:
    """Return the fraction of target tokens in the decoder input of an update, 0-1.

    Args:
        step: number of the update, from 1 to ``config.steps``.

    Returns:
        ``config.teacher_forcing_ratio`` at every step ("constant"), or a linear decay from 1 at the first step to that
        ratio at the last ("linear"): scheduled sampling with linear decay (Bengio et al. 2015, section 2.4).
    """
    if config.teacher_forcing_schedule == "constant":
        return config.teacher_forcing_ratio
    progress = (step - 1) / max(1, config.steps - 1)
    return 1 - progress * (1 - config.teacher_forcing_ratio)


def _one_cycle(step: int, steps: int) -> float:
    """Return the one-cycle learning rate as a fraction of the peak, 0-1."""
    top, last = _ONE_CYCLE_RISE * steps - 1, steps - 1  # steps counted from 0, as in OneCycleLR
    if step - 1 <= top:
        return _interpolate_cosine(_ONE_CYCLE_START, 1, (step - 1) / top)
    return _interpolate_cosine(1, _ONE_CYCLE_END, (step - 1 - top) / (last - top))


def _interpolate_cosine(start: float, end: float, progress: float) -> float:
    """Interpolate from ``start`` (progress 0) to ``end`` (progress 1) along half a cosine."""
    return end + (start - end) / 2 * (1 + math.cos(math.pi * progress))
