"""Every way in bounds the caches of compiled kernels and the time for which waiting threads occupy a core."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core import KERNELS_CACHED, SPINS

ROOT = Path(__file__).parents[2]
CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY")
WAITING = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
SHOW, SHOW_WAITING = (
    f"import os; print(*(os.environ.get(name, '-') for name in {names}))" for names in (CACHES, WAITING)
)
GROWTH = """
import re, torch, core
torch.set_num_threads(1)
resident = lambda: int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1e3
layer, megabytes = torch.nn.Linear(192, 192), []
for rows in range(1, 101):
    with torch.autocast("cpu", torch.bfloat16):
        layer(torch.ones(rows, 192, requires_grad=True)).float().sum().backward()
    if rows in (40, 100):
        megabytes.append(resident())
print(megabytes[1] - megabytes[0])
"""


def run(program: str, **environment: str) -> list[str]:
    """Run a program in a new process, without what this one has set, and return the words that it prints."""
    inherited = {name: value for name, value in os.environ.items() if name not in CACHES + WAITING}
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, env=inherited | environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return result.stdout.split()


@pytest.mark.parametrize("way_in", ["import core", "import app"])
def test_every_way_in_bounds_the_caches(way_in):
    assert run(f"{way_in}; {SHOW}") == [KERNELS_CACHED, KERNELS_CACHED, "-"]


def test_a_bound_that_the_user_has_set_stays():
    assert run(f"import core; {SHOW}", ONEDNN_PRIMITIVE_CACHE_CAPACITY="7") == ["7", KERNELS_CACHED, "-"]
    assert run(f"import core; {SHOW}", LRU_CACHE_CAPACITY="7") == [KERNELS_CACHED, "7", "-"]
    assert run(f"import core; {SHOW}", DNNL_PRIMITIVE_CACHE_CAPACITY="7") == ["-", KERNELS_CACHED, "7"]


def test_waiting_threads_soon_give_up_their_core_unless_the_user_has_decided():
    assert run(f"import core.__main__; {SHOW_WAITING}; import sys; print('torch' in sys.modules)") == [
        SPINS,
        "-",
        "False",
    ]
    assert run(f"import core; {SHOW_WAITING}", GOMP_SPINCOUNT="7") == ["7", "-"]
    assert run(f"import core; {SHOW_WAITING}", OMP_WAIT_POLICY="active") == ["-", "active"]


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="the CPU does not compute in bfloat16")
def test_memory_does_not_grow_with_the_number_of_shapes_even_if_torch_is_imported_first():
    unbounded = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "1024", "LRU_CACHE_CAPACITY": "1024"}
    most = 40  # MB
    if float(run(GROWTH, **unbounded)[0]) <= most:
        pytest.skip("the kernels that this CPU gets are small")
    assert float(run(GROWTH)[0]) < most
