"""A model of a file system that loses power: which contents can be read afterwards."""

from itertools import combinations
from pathlib import Path

from core.storage.tensor_file import previous_path


class _Disk:
    """Names and contents: current, synced, and renames whose folder was not synced yet."""

    def __init__(self, name: str, old: bytes) -> None:
        self.names = {name: 0}  # to numbers of files
        self.contents = {0: old}
        self.safe_contents = {0}
        self.safe_names = dict(self.names)
        self.pending: list[dict[str, int | None]] = []  # renames since the last sync of the folder

    def do(self, call: str, name: str, *rest) -> None:
        """Apply a call to the model."""
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
        """Contents that the first existing candidate can have after a power cut at this moment."""
        contents = set()
        for count in range(len(self.pending) + 1):
            for done in combinations(self.pending, count):
                names = dict(self.safe_names)
                for change in done:
                    names |= change
                number = next((names[each] for each in candidates if names.get(each) is not None), None)
                contents |= {self.contents.get(number)}
                contents |= set() if number is None or number in self.safe_contents else {b"", b"rubbish"}
        return contents


def after_power_cuts(log: list[tuple], path: Path, old: bytes) -> tuple[set[bytes | None], set[bytes | None]]:
    """Compute what can be read after a power cut following any call: from the file, or else from the previous file.

    Content that was written but not synced can be present, missing or rubbish. Of the renames since the last sync of
    the folder, any subset can have happened.

    Returns:
        Contents that can be read after a cut at any moment, and after a cut following the last call.
    """
    disk, contents = _Disk(str(path), old), {old}
    candidates = [str(path), str(previous_path(path))]
    for call in log:
        disk.do(*call)
        contents |= disk.readable(candidates)
    return contents, disk.readable(candidates)
