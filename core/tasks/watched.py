"""The task of a training that ``lab.watch`` records: there is none here."""

from pathlib import Path
from typing import NoReturn

from core.config.tasks import NOT_HERE, WatchedConfig
from core.storage.errors import UnavailableError
from core.tasks.task import Task


class Watched(Task):
    """What a user's own program learns, which has the data; it cannot be built."""

    def __new__(cls, config: WatchedConfig, pairs: Path | None) -> NoReturn:
        """Refuse to build the task.

        Raises:
            UnavailableError: always.
        """
        raise UnavailableError(f"{config.module} {NOT_HERE}")
