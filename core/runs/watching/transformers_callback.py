"""Watch a training by the ``Trainer`` of transformers."""

from typing import Any

from core.storage.errors import UnavailableError

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise UnavailableError("watch.transformers() needs the package transformers: pip install transformers") from error


class WatchCallback(TrainerCallback):
    """Calls ``step`` after every update, with the loss where the ``Trainer`` logs one, and ``close`` at the end."""

    def __init__(self, watch: Any) -> None:
        """Take a ``Watch``, whose module imports this one."""
        self.watch = watch

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note an update."""
        if state.global_step > self.watch.last_step:
            self.watch.step(step=state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Record the mean loss since the last log."""
        if logs and "loss" in logs:
            rate, norm = (None if logs.get(key) is None else float(logs[key]) for key in ("learning_rate", "grad_norm"))
            self.watch.step(float(logs["loss"]), step=state.global_step, learning_rate=rate, gradient_norm=norm)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the run."""
        self.watch.close()
