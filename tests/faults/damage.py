"""Random damage to a file: bits, bytes and blocks are changed, removed and added."""

import random


def flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def set_byte(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] = rng.randrange(256)


def zero(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.choice((16, 512, 4096)))
    data[start:end] = bytes(end - start)


def swap(data: bytearray, rng: random.Random) -> None:
    size = rng.choice((1, 4, 64))
    one, other = rng.randrange(len(data) - size), rng.randrange(len(data) - size)
    data[one : one + size], data[other : other + size] = data[other : other + size], data[one : one + size]


def cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def remove(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.choice((1, 4, 100))]


def insert(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    data[start:start] = rng.randbytes(rng.choice((1, 4, 100)))


def in_header(data: bytearray, rng: random.Random) -> None:
    end = min(len(data), 8 + int.from_bytes(data[:8], "little"))
    data[rng.randrange(8, max(9, end))] = rng.randrange(32, 127)


KINDS = (flip, flip, flip, set_byte, zero, swap, cut, remove, insert, in_header)


def mutated(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 3))):
        if len(changed) > 200:
            rng.choice(KINDS)(changed, rng)
    return bytes(changed)
