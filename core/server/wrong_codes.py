"""Wrong codes of classes: of a network that tries many, the teacher decides who comes in."""

from collections import OrderedDict, deque
from collections.abc import Callable

MAX_WRONG_CODES, WRONG_CODE_SECONDS = 60, 600.0  # of one network: forty students mistype
MAX_NETWORKS = 10_000  # whose wrong codes are remembered


class WrongCodes:
    """Wrong codes that each network has tried lately. Visitors can invent cookies, but not addresses.

    Of a network with many, the teacher decides who comes in. A correct code is never refused; otherwise one student
    could keep a whole school out with wrong ones. There are 850 billion codes, and a class lasts for a day.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._tries = clock, OrderedDict[str, deque[float]]()

    def suspects(self, network: str) -> bool:
        """Return whether a network has tried so many codes that someone may be guessing."""
        tries = self._tries.get(network, deque())
        while tries and self._clock() - tries[0] > WRONG_CODE_SECONDS:
            tries.popleft()
        return len(tries) >= MAX_WRONG_CODES

    def count(self, network: str) -> None:
        """Count a wrong code."""
        self._tries.setdefault(network, deque(maxlen=MAX_WRONG_CODES)).append(self._clock())
        self._tries.move_to_end(network)
        while len(self._tries) > MAX_NETWORKS:
            self._tries.popitem(last=False)
