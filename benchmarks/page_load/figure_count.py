"""Run the app and count its matplotlib figures: ``python -m benchmarks.page_load.figure_count FILE [app.py's flags]``.

A thread writes the number of live figures to FILE every ``SECONDS_BETWEEN`` seconds.
"""

import runpy
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

SECONDS_BETWEEN = 2.0


def count_figures(file: Path) -> None:
    """Track every figure created from now on and write to ``file`` how many are still alive."""
    figures: weakref.WeakSet[Figure] = weakref.WeakSet()
    original_init = Figure.__init__

    def tracking_init(figure: Figure, *args: Any, **kwargs: Any) -> None:
        original_init(figure, *args, **kwargs)
        figures.add(figure)

    def write() -> None:
        while True:
            file.write_text(str(len(figures)))
            time.sleep(SECONDS_BETWEEN)

    setattr(Figure, "__init__", tracking_init)  # noqa: B010 - mypy allows no assignment to a method
    threading.Thread(target=write, daemon=True).start()


if __name__ == "__main__":
    count_figures(Path(sys.argv[1]))
    sys.argv = ["app.py", *sys.argv[2:]]
    runpy.run_path("app.py", run_name="__main__")
