"""Make invalid segments, and a segment of a later minor format version, from a valid segment."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from random import Random
from typing import Final

import cbor2

_MAJOR, _MINOR, _LENGTH, _HEADER = 4, 5, 6, 8  # where they stand
_DIGEST: Final = 32


def newer_minor(data: bytes) -> bytes:
    """Return a copy of a segment with minor version 1 and an unknown key in the header."""
    end = _HEADER + int.from_bytes(data[_LENGTH:_HEADER], "big")
    fields = cbor2.loads(data[_HEADER:end])
    header = cbor2.dumps(fields | {"battery": 87})
    prefix = data[:_MINOR] + b"\x01" + len(header).to_bytes(2, "big")
    return _summed(prefix + header + data[end:-_DIGEST])


def _summed(content: bytes) -> bytes:
    return content + sha256(content).digest()


def _flipped(data: bytes, dice: Random) -> bytes:
    at = dice.randrange(_HEADER, len(data))
    return data[:at] + bytes([data[at] ^ (1 << dice.randrange(8))]) + data[at + 1 :]


DAMAGED: Final[dict[str, Callable[[bytes, Random], bytes]]] = {
    "truncated": lambda data, dice: data[: dice.randrange(_DIGEST, len(data) - 1)],
    "flipped": _flipped,
    "garbage": lambda data, dice: dice.randbytes(len(data)),
    "version": lambda data, _dice: _summed(data[:_MAJOR] + b"\x02" + data[_MINOR:-_DIGEST]),
    "empty": lambda _data, _dice: b"",
}
"""The kinds of damage by name: functions that make an invalid segment from a valid one."""
