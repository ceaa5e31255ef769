"""Overfitting while it happens: the validation loss rises while the training loss falls, in one sentence of numbers."""

from collections.abc import Mapping, Sequence

SEVERAL = 3  # evaluations in a row with a validation loss above the lowest one
MIN_RISE = 0.02  # share of the lowest loss, and nats: less is noise

Evaluated = Mapping[str, float | None]
"""The columns of an evaluation, see ``core.training.history``."""


def describe_overfitting(best_step: int, best: Evaluated, latest: Sequence[Evaluated]) -> str:
    """Return a sentence if the validation loss has risen for several evaluations while the training loss fell; or "".

    Args:
        best_step: training step of the best weights.
        best: the evaluation of that step; that of step 0 with the training loss of the one after it.
        latest: the last ``SEVERAL`` evaluations, all after that step; fewer give "".
    """
    loss_name = "validation_loss" if best.get("free_running_loss") is None else "free_running_loss"
    name = "validation loss" if loss_name == "validation_loss" else "free-running validation loss"
    lowest, trained = best[loss_name], best.get("train_loss")
    losses = [each[loss_name] for each in latest]
    last_trained = latest[-1].get("train_loss") if latest else None
    if len(losses) < SEVERAL or lowest is None or trained is None or last_trained is None:
        return ""
    has_risen = all(loss is not None and loss - lowest >= max(MIN_RISE, MIN_RISE * lowest) for loss in losses)
    if not has_risen or last_trained >= trained:
        return ""
    digits = 2 if trained - last_trained >= 0.01 else 4
    return (
        f"The {name} rose from {lowest:.2f} to {losses[-1]:.2f} since step {best_step:,} while the training loss fell "
        f"from {trained:.{digits}f} to {last_trained:.{digits}f}: the best weights are those of step {best_step:,}."
    )
