"""What commands print."""

import json
from typing import Any


def last_json(output: str) -> Any:
    """The JSON object in the last line of the output of a command with ``--json``."""
    return json.loads(output.splitlines()[-1])
