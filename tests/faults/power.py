"""What could be read after a power cut: a model, since nobody pulls the plug in a test."""

from itertools import combinations
from pathlib import Path

from core.storage.tensor_file import previous_path


class _Disk:
    """Names and contents, as they are, as they are sure to survive, and what hangs in the air between."""

    def __init__(self, name: str, old: bytes) -> None:
        self.names = {name: 0}  # to numbers of files
        self.contents = {0: old}
        self.safe_contents = {0}
        self.safe_names = dict(self.names)
        self.pending: list[dict[str, int | None]] = []  # renames that the folder was not synced after

    def do(self, call: str, name: str, *rest) -> None:
        """Do what a call asks for."""
        if call == "open" and "w" in rest[0]:
            if name not in self.names:
                self.contents[len(self.contents)] = b""
                self._change({name: len(self.contents) - 1})
            self._write(self.names[name], b"")
        elif call == "write":
            self._write(self.names[name], self.contents[self.names[name]] + rest[0])
        elif call == "fsync" and name in self.names:
            self.safe_contents.add(self.names[name])
        elif call == "fsync":  # the folder
            self.safe_names, self.pending = dict(self.names), []
        elif call == "link":
            self._change({rest[0]: self.names[name]})
        elif call in ("replace", "rename") and self.names.get(rest[0]) != self.names[name]:
            self._change({rest[0]: self.names[name], name: None})
        elif call == "unlink" and name in self.names:
            self._change({name: None})

    def _write(self, number: int, content: bytes) -> None:
        self.contents[number] = content
        self.safe_contents.discard(number)

    def _change(self, change: dict[str, int | None]) -> None:
        self.names = {name: number for name, number in (self.names | change).items() if number is not None}
        self.pending.append(change)

    def readable(self, candidates: list[str]) -> set[bytes | None]:
        """What may be under the first of these names that is there, if the power went now."""
        found = set()
        for count in range(len(self.pending) + 1):
            for done in combinations(self.pending, count):
                names = dict(self.safe_names)
                for change in done:
                    names |= change
                number = next((names[each] for each in candidates if names.get(each) is not None), None)
                found |= {self.contents.get(number)}
                found |= set() if number is None or number in self.safe_contents else {b"", b"rubbish"}
        return found


def after_power_cuts(log: list[tuple], path: Path, old: bytes) -> tuple[set[bytes | None], set[bytes | None]]:
    """Work out what could be read after a cut behind any call: under the name, or else under that of the one before.

    What was written and not synced may be there, not be there, or be rubbish; of renames that the folder was not
    synced after, any may have happened.

    Returns:
        What may be read after a cut at any moment, and after one behind the last call.
    """
    disk, found = _Disk(str(path), old), {old}
    candidates = [str(path), str(previous_path(path))]
    for call in log:
        disk.do(*call)
        found |= disk.readable(candidates)
    return found, disk.readable(candidates)
