"""The parts of the charts' scripts that need no page, in Node.js."""

import subprocess
from pathlib import Path

import playwright
import pytest

NODE = Path(playwright.__file__).parent / "driver" / "node"


@pytest.mark.skipif(not NODE.exists(), reason="Playwright came without Node.js")
def test_ticks_points_and_groups_of_charts():
    tests = sorted(str(path) for path in Path(__file__).parent.glob("*.test.mjs"))
    assert tests
    result = subprocess.run([NODE, "--test", *tests], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
