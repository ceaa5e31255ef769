"""The memory that PyTorch allocates."""

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def highest_allocated_bytes(function: Callable[[], object]) -> int:
    """Call a function on the CPU and return the most bytes that are allocated in it at a time."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function()
    events = profiler.profiler.kineto_results.events() if profiler.profiler else []
    current = highest = 0
    for event in sorted((each for each in events if each.name() == "[memory]"), key=lambda each: each.start_ns()):
        current += event.nbytes()
        highest = max(highest, current)
    return highest
