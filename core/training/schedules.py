"""What changes from step to step: the learning rate, and how much of the truth the decoder reads."""

import math

from core.config.sections import TrainingConfig

_ONE_CYCLE_RISE = 0.3  # of the steps; this and the next two as in torch.optim.lr_scheduler.OneCycleLR
_ONE_CYCLE_START = 1 / 25  # of the highest learning rate
_ONE_CYCLE_END = 1 / 25 / 1e4


def learning_rate_at(step: int, config: TrainingConfig) -> float:
    """Return the learning rate of an update.

    Args:
        step: the update's number, from 1 to ``config.steps``.

    Returns:
        A straight rise to the peak, ``config.learning_rate``, over the warm-up, and from there

        - constant: the peak;
        - linear: a straight fall that would reach zero one step after the last;
        - quadratic: the same fall squared, so that half the steps are made below a quarter of the peak;
        - cosine: half a cosine down to the same place (Loshchilov & Hutter 2017, eq. 5, without restarts);
        - inverse-sqrt: peak × √(warmup_steps / step). A peak of (d_model × warmup_steps)^-0.5 makes it
          d_model^-0.5 × min(step^-0.5, step × warmup_steps^-1.5), which is eq. 3 of Vaswani et al. 2017.

        One-cycle has no warm-up but a rise of its own (Smith 2018): half a cosine up from peak / 25 over the first
        30 % of the steps, half a cosine down to peak / 250,000 over the others.
    """
    peak, warmup = config.learning_rate, config.warmup_steps
    if config.schedule == "one-cycle":
        return peak * _one_cycle(step, config.steps)
    if step <= warmup:
        return peak * step / warmup
    if config.schedule == "inverse-sqrt":
        return peak * math.sqrt(warmup / step)
    left, fall = config.steps + 1 - step, config.steps + 1 - warmup
    if config.schedule == "linear":
        return peak * left / fall
    if config.schedule == "quadratic":
        return peak * (left / fall) ** 2
    return peak * _eased(0, 1, left / fall) if config.schedule == "cosine" else peak


def teacher_forcing_ratio_at(step: int, config: TrainingConfig) -> float:
    """Return the share of true tokens in the decoder's input at an update, 0-1.

    Args:
        step: the update's number, from 1 to ``config.steps``.

    Returns:
        ``config.teacher_forcing_ratio`` all along, or a straight fall from 1 at the first step to it at the last: scheduled
        sampling with linear decay (Bengio et al. 2015, section 2.4).
    """
    if config.teacher_forcing_schedule == "constant":
        return config.teacher_forcing_ratio
    gone = (step - 1) / max(1, config.steps - 1)
    return 1 - gone * (1 - config.teacher_forcing_ratio)


def _one_cycle(step: int, steps: int) -> float:
    """Return the share of the peak at a step, 0-1."""
    top, last = _ONE_CYCLE_RISE * steps - 1, steps - 1  # steps counted from 0, as OneCycleLR does
    if step - 1 <= top:
        return _eased(_ONE_CYCLE_START, 1, (step - 1) / top)
    return _eased(1, _ONE_CYCLE_END, (step - 1 - top) / (last - top))


def _eased(start: float, end: float, share: float) -> float:
    """Go from ``start`` to ``end`` along half a cosine, ``share`` (0-1) of the way."""
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))
