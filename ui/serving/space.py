"""Makes the page ready for a Hugging Face Space: without what Gradio adds there, and with what ZeroGPU asks for."""

import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

from core.storage.optional_imports import require_package

ZERO_GPU = "SPACES_ZERO_GPU"  # "true" on a Space with ZeroGPU
_SYSTEM = "SYSTEM"  # "spaces" on every Space, what Gradio recognizes one by


def is_zero_gpu(environment: Mapping[str, str]) -> bool:
    """Return whether this is a Space with ZeroGPU, as the package ``spaces`` decides it."""
    return environment.get(ZERO_GPU, "").lower() in ("1", "t", "true")


def prepare_space(environment: MutableMapping[str, str]) -> None:
    """Set a Space up; call it before Gradio is imported. Elsewhere it does nothing.

    Gradio recognizes a Space by ``SYSTEM``. It would start a second server, which reloads changed code, and put a bar
    over the page whose fonts come from another host, which the page's Content-Security-Policy refuses. So the variable
    is removed.

    A Space with ZeroGPU starts only if a function is decorated with ``spaces.GPU`` when the page is launched.

    Raises:
        LabError: ZeroGPU, but the package ``spaces`` is not installed.
    """
    if environment.get(_SYSTEM) == "spaces":
        del environment[_SYSTEM]
    if is_zero_gpu(environment):
        with _torch_hidden():
            spaces = require_package("spaces", purpose="ZeroGPU")
        spaces.GPU(_leave_gpu_unused)


@contextmanager
def _torch_hidden() -> Iterator[None]:
    """Let a package that is imported in the block find no PyTorch.

    ``spaces`` works without it. With it, it lets PyTorch emulate a GPU in the whole process, in which optimizers fail
    (tried with spaces 0.51.3 and PyTorch 2.13.0).
    """
    modules: dict[str, Any] = sys.modules
    hidden = {name: module for name, module in modules.items() if name == "torch" or name.startswith("torch.")}
    modules.update(dict.fromkeys(hidden))  # None: not to be imported
    try:
        yield
    finally:
        modules.update(hidden)


def _leave_gpu_unused() -> None:
    """Do nothing, and never be called: runs train on the CPU, which is enough for models this small."""
