"""Everything that works without a browser: tasks, models, training, decoding, analysis, runs."""

import os

__version__ = "0.2.0"

# On a CPU, oneDNN and PyTorch each keep up to 1,024 compiled kernels, one a shape: gigabytes after 1,500 updates with
# batches of many lengths. 48 hold those of an update. Both read this when they first compute, not when imported.
KERNELS_CACHED = "48"
_CACHE_VARIABLES = (
    ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"),  # oneDNN's name and its older one
    ("LRU_CACHE_CAPACITY",),  # PyTorch's own
)
for _names in _CACHE_VARIABLES:
    if not any(_name in os.environ for _name in _names):
        os.environ[_names[0]] = KERNELS_CACHED
