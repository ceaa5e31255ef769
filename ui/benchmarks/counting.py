"""The app, and a thread that writes how many figures there are: ``python -m ui.benchmarks.counting FILE FLAGS…``."""

import gc
import runpy
import sys
import threading
import time
from pathlib import Path

SECONDS_BETWEEN = 5.0


def _count(file: Path) -> None:
    from matplotlib.figure import Figure

    while True:
        file.write_text(str(sum(isinstance(each, Figure) for each in gc.get_objects())))
        time.sleep(SECONDS_BETWEEN)


if __name__ == "__main__":
    threading.Thread(target=_count, args=(Path(sys.argv[1]),), daemon=True).start()
    sys.argv = ["app.py", *sys.argv[2:]]
    runpy.run_path("app.py", run_name="__main__")
