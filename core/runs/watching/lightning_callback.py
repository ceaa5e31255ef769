"""Watch a training by Lightning."""

import sys
from typing import Any

from core.storage.errors import UnavailableError

try:
    if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
        from pytorch_lightning import Callback
    else:
        from lightning.pytorch import Callback
except ImportError as error:
    raise UnavailableError("watch.lightning() needs the package lightning: pip install lightning") from error


class WatchCallback(Callback):
    """Calls ``step`` after every update, with the mean loss of its batches, and ``close`` at the end."""

    def __init__(self, watch: Any) -> None:
        """Take a ``Watch``, whose module imports this one."""
        self.watch = watch
        self._losses: list[Any] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Record an update; several batches may make one."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None:
            self._losses.append(loss.detach())
        if trainer.global_step <= self.watch.last_step:
            return
        rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups]
        mean = sum(self._losses) / len(self._losses) if self._losses else None
        self.watch.step(mean, step=trainer.global_step, learning_rate=float(rates[0]) if rates else None)
        self._losses = []

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Close the run."""
        self.watch.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Close the run as failed, or stopped by Ctrl+C."""
        self.watch.__exit__(type(exception), exception, exception.__traceback__)
