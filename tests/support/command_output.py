"""What commands print."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

from core.__main__ import main


def last_json(output: str) -> Any:
    """The JSON object in the last line of the output of a command with ``--json``."""
    return json.loads(output.splitlines()[-1])


def analyze(root: Path, run: str, *arguments: str) -> tuple[int, str, str]:
    """Run ``analyze``: (exit code, standard output, standard error)."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main(["--checkpoints", str(root), "analyze", "--run", run, *arguments])
    return code, output.getvalue(), errors.getvalue()
