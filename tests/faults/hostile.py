"""Malicious and malformed files that a stranger could upload as a checkpoint; each must be refused."""

import gzip
import io
import json
import os
import pickle
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save

from core.storage.tensor_file import serialize


class _Call:
    """Calls a function when it is unpickled."""

    def __init__(self, function, *arguments) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def payloads(marker: Path) -> dict[str, object]:
    """Objects that create the marker file when they are unpickled, each in a different way."""
    touch = f"touch {marker}"
    written = f"open({str(marker)!r}, 'w').close()"
    return {
        "system": _Call(os.system, touch),
        "popen": _Call(os.popen, touch),
        "subprocess": _Call(subprocess.call, ["touch", str(marker)]),
        "exec": _Call(exec, written),
        "eval": _Call(eval, written),
        "open": _Call(open, str(marker), "w"),
        "mkdir": _Call(os.mkdir, str(marker)),
        "in a state": {"model": {"a": torch.ones(2)}, "more": _Call(os.system, touch)},
        "as a key": {_Call(os.system, touch): 1},
    }


def containers(thing: object) -> dict[str, bytes]:
    """Serialize an object with pickle and with both formats of ``torch.save``."""
    files = {f"protocol {protocol}": pickle.dumps(thing, protocol) for protocol in (0, 2, 4)}
    for name, new in (("zip", True), ("legacy", False)):
        file = io.BytesIO()
        torch.save(thing, file, _use_new_zipfile_serialization=new)
        files[name] = file.getvalue()
    return files


def pt_files(marker: Path) -> Iterator[tuple[str, bytes]]:
    """At least 50 files in PyTorch's pickle formats: with code, compression bombs, truncated, malformed."""
    for payload, thing in payloads(marker).items():
        for container, data in containers(thing).items():
            yield f"{payload} in {container}", data
    good = containers({"weight": torch.arange(100.0)})
    for container in ("zip", "legacy"):
        for length in (1, 2, 10, 100, len(good[container]) // 2, len(good[container]) - 1):
            yield f"{container} cut to {length}", good[container][:length]
        yield f"{container}, good", good[container]
    yield "byte array of 2 GB", b"\x80\x02c__builtin__\nbytearray\n" + b"J\xff\xff\xff\x7f\x85R."
    yield "nested tuples", b"\x80\x02)" + b"\x86" * 40 + b"."
    yield "many memos", b"\x80\x02" + b"]q\x00" * 20_000 + b"."
    yield "zip bomb", _zip({"archive/data.pkl": bytes(200_000_000)})
    yield "zip with a path", _zip({"../../etc/passwd": b"x", "archive/data.pkl": b"."})
    yield "TorchScript", _zip({"archive/code/__torch__.py": b"import os", "archive/constants.pkl": b"."})
    yield "tar", _tar({"storages": b"x", "pickle": pickle.dumps({})})
    yield "gzip of a pickle", gzip.compress(pickle.dumps({}))


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def raw(header: object, rest: bytes = b"", *, length: int | None = None) -> bytes:
    """A safetensors file with this header, which need not be valid."""
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + rest


def _tensor(begin: int = 0, end: int = 4, shape: tuple = (1,), dtype: str = "F32") -> dict:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def safetensors_files(tensors: dict[str, torch.Tensor], facts: dict) -> Iterator[tuple[str, bytes]]:
    """At least 36 malformed safetensors files, with a correct checksum where one is possible."""
    metadata = {"__metadata__": {"format": "attention-lab-2", "facts": json.dumps(facts), "sha256": "0" * 64}}
    yield "empty", b""
    yield "a length only", (100).to_bytes(8, "little")
    for length in (10**11, 2**63, 2**64 - 1, 99_999_999, 1_000_001):
        yield f"header of {length} bytes", raw(b"{}", length=length)
    yield "header of 59 MB", raw(b"{" + b",".join(b'"%d":{}' % n for n in range(1_000_000)) + b"}")
    yield "100,000 tensors", save({str(n): torch.empty(0) for n in range(100_000)})
    yield (
        "20,000 tensors in a small header",
        raw(
            b"{" + b",".join(b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % n for n in range(16_000)) + b"}"
        ),
    )
    for name, header in {
        "a list": [],
        "a number": 7,
        "null": None,
        "a tensor that is a text": metadata | {"a": "b"},
        "no offsets": metadata | {"a": {"dtype": "F32", "shape": [1]}},
        "overlapping": metadata | {"a": _tensor(0, 4), "b": _tensor(0, 4)},
        "a hole": metadata | {"a": _tensor(0, 4), "b": _tensor(8, 12)},
        "beyond the end": metadata | {"a": _tensor(0, 10**15)},
        "before the start": metadata | {"a": _tensor(-4, 0)},
        "backwards": metadata | {"a": _tensor(4, 0)},
        "shape larger than data": metadata | {"a": _tensor(0, 4, (10**9,))},
        "shape that overflows": metadata | {"a": _tensor(0, 4, (2**62, 2**62))},
        "shape of zero times a huge number": metadata | {"a": _tensor(0, 0, (0, 2**62))},
        "100,000 dimensions": metadata | {"a": _tensor(0, 4, (1,) * 100_000)},
        "negative shape": metadata | {"a": _tensor(0, 4, (-1,))},
        "shape of texts": metadata | {"a": _tensor(0, 4, ("x",))},
        "unknown type": metadata | {"a": _tensor(dtype="F1000")},
        "a path for a name": metadata | {"../../etc/passwd": _tensor()},
        "metadata that are a list": {"__metadata__": ["format"]},
        "metadata that are numbers": {"__metadata__": {"format": 2, "facts": 3}},
        "another format": {"__metadata__": {"format": "pt"}},
    }.items():
        yield name, raw(header, b"\0" * 4)
    yield "not UTF-8", raw(b'{"\xff\xfe":{}}')
    yield "200,000 levels deep", raw(b"[" * 200_000)
    yield "objects without end", raw(b'{"a":' * 150_000)
    yield "a number of 900,000 digits", raw(b'{"a":' + b"9" * 900_000 + b"}")
    yield "the same key twice", raw(b'{"a":%s,"a":%s}' % ((json.dumps(_tensor()).encode(),) * 2), b"\0" * 4)
    yield "a pickle after a header", raw(metadata, pickle.dumps({}))
    yield "zeros", bytes(1_000_000)
    first = next(iter(tensors))
    for name, changed in {
        "not a number": torch.full_like(tensors[first], float("nan")),
        "infinite": torch.full_like(tensors[first], float("inf")),
        "of whole numbers": tensors[first].to(torch.int64),
        "complex": tensors[first].to(torch.complex64),
        "transposed": tensors[first].reshape(-1),
        "much larger": torch.zeros(4_000_000),
    }.items():
        yield f"a tensor {name}", bytes(serialize(tensors | {first: changed}, facts))
    yield "a tensor less", bytes(serialize({name: each for name, each in tensors.items() if name != first}, facts))
    yield "a tensor more", bytes(serialize(tensors | {"generator": torch.ones(3)}, facts))
    yield "moments of an optimizer", bytes(serialize(tensors | {f"optimizer.{first}.exp_avg": torch.ones(3)}, facts))
    huge = (
        facts["preset"]
        .replace("d_model: 16", "d_model: 1024")
        .replace("num_encoder_layers: 1", "num_encoder_layers: 12")
    )
    for name, change in {
        "no facts": None,
        "a huge model": {"preset": huge},
        "merge keys": {"preset": "a: &a {b: 1}\n" + "c: {<<: [*a,*a]}\n"},
        "many laughs": {"preset": "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n"},
        "a deep preset": {"preset": "[" * 60_000},
        "a preset of tags": {"preset": "!!python/object/apply:os.system [ls]"},
        "a step of a text": {"step": "<script>"},
        "a step that is huge": {"step": 10**30},
        "an endless loss": {"validation_loss": float("inf")},
    }.items():
        yield name, bytes(serialize(tensors, {} if change is None else facts | change))
    good = bytearray(serialize(tensors, facts))
    good[-1] ^= 1
    yield "a flipped bit", bytes(good)


def misnamed_files() -> Iterator[tuple[str, bytes]]:
    """At least 8 files of other types, named .safetensors."""
    yield "a text", b"step,loss\n1,2.5\n" * 1000
    yield "a page", b"<!doctype html><script>alert(1)</script>" * 10
    yield "a picture", b"\x89PNG\r\n\x1a\n" + bytes(1000)
    yield "a program", b"\x7fELF\x02\x01\x01" + bytes(1000)
    yield "YAML", b"name: tiny\ntask: {}\n"
    yield "JSON", b'{"format": "attention-lab-2"}'
    yield "an archive", _zip({"best.safetensors": b"x"})
    yield "NumPy", b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'}"
    yield "HDF5", b"\x89HDF\r\n\x1a\n" + bytes(500)
    yield "a pickle of nothing", pickle.dumps(None)
