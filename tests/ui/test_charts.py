"""The parts of the charts' scripts that need no page, in Node.js."""

import json
import subprocess
from pathlib import Path

import playwright
import pytest

from core.config.counting import percent

NODE = Path(playwright.__file__).parent / "driver" / "node"
FORMAT = Path(__file__).parents[2] / "ui" / "web" / "format.js"


pytestmark = pytest.mark.skipif(not NODE.exists(), reason="Playwright came without Node.js")


def test_ticks_points_and_groups_of_charts():
    tests = sorted(str(path) for path in Path(__file__).parent.glob("*.test.mjs"))
    assert tests
    result = subprocess.run([NODE, "--test", *tests], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_share_is_the_same_text_on_the_page_as_in_reports():
    edges = [0, 1, 1e-9, 4e-4, 5e-4, 0.001, 0.005, 0.0099, 0.0625, 0.125, 0.3333, 0.985, 0.99, 0.995, 0.9949, 1.25]
    shares = [*edges, *(1 - share for share in edges if share < 1), *(number / 80 for number in range(81))]
    cases = [(share, digits) for share in shares for digits in (0, 1, 2)]
    script = (
        f'import {{ formatPercent }} from "{FORMAT.as_uri()}";'
        f"console.log(JSON.stringify({json.dumps(cases)}.map((each) => formatPercent(...each))))"
    )
    done = subprocess.run([NODE, "--input-type=module", "-e", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [percent(*case) for case in cases]
