"""Everything that works without a browser: tasks, models, training, decoding, analysis, runs."""

import os

__version__ = "0.2.0"

# On a CPU, oneDNN and PyTorch each keep up to 1,024 compiled kernels, one a shape: gigabytes after 1,500 updates with
# batches of many lengths. 48 hold those of an update. Both read this when they first compute, not when imported.
KERNELS_CACHED = "48"
# Threads that wait for one another turn in a loop, by default 300,000 times, on the core that the awaited thread needs
# if other programs use the rest (docs/decisions.md). This is read when torch is imported.
SPINS = "1000"
_VARIABLES = (  # a value, and the names for it: the user's own value under any of them stays
    (KERNELS_CACHED, "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"),
    (KERNELS_CACHED, "LRU_CACHE_CAPACITY"),  # PyTorch's own
    (SPINS, "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"),
)
for _value, *_names in _VARIABLES:
    if not any(_name in os.environ for _name in _names):
        os.environ[_names[0]] = _value
