"""The app, and a thread that writes how many figures there are: ``python -m benchmarks.page_load.counting FILE …``."""

import runpy
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

SECONDS_BETWEEN = 2.0


def _count(file: Path) -> None:
    """Note every figure that is made from now on, and write again and again how many of them are still there."""
    figures: weakref.WeakSet[Figure] = weakref.WeakSet()
    make = Figure.__init__

    def made(figure: Figure, *args: Any, **named: Any) -> None:
        make(figure, *args, **named)
        figures.add(figure)

    def write() -> None:
        while True:
            file.write_text(str(len(figures)))
            time.sleep(SECONDS_BETWEEN)

    Figure.__init__ = made
    threading.Thread(target=write, daemon=True).start()


if __name__ == "__main__":
    _count(Path(sys.argv[1]))
    sys.argv = ["app.py", *sys.argv[2:]]
    runpy.run_path("app.py", run_name="__main__")
