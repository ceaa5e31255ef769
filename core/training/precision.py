"""Which precision matrix products are computed in."""

from functools import cache
from typing import Any

import torch

from core.config.training import TrainingConfig

# Of x86 and of ARM. A CPU without them computes in bfloat16 as well, but far slower than in float32.
_BFLOAT16_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "bf16")


def computes_in_bfloat16(config: TrainingConfig, device: torch.device | str) -> bool:
    """Whether a device computes matrix products in bfloat16: as the preset says, or with "auto" if it is fast there."""
    if config.precision == "auto":
        return has_bfloat16(torch.device(device).type)
    return config.precision == "bfloat16"


@cache
def has_bfloat16(device_type: str) -> bool:
    """Whether "cpu" or "cuda" has instructions for products of bfloat16 matrices; False for any other.

    PyTorch 2.8 and 2.9 do not report what a CPU has; "auto" is then float32.
    """
    if device_type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device_type != "cpu":
        return False
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name, False) for name in _BFLOAT16_INSTRUCTIONS)
