"""A guard before cbor2: reads CBOR that is as plain as a segment's, and nothing else.

The walk allows maps with text keys, arrays, integers, strings, floats, true, false, null and the
typed arrays of RFC 8746, all of definite length, within bounds of depth and number. So none of the
decoder's richer types (dates, regular expressions, shared references) can be reached from outside.
"""

from __future__ import annotations

from typing import Any, Final

import cbor2

from sync.segment.errors import Reason, SegmentError
from sync.segment.limits import MAX_DEPTH, MAX_ITEMS

_BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = 2, 3, 4, 5, 6, 7
_STRINGS: Final = (_BYTES, _TEXT)
_CONTAINERS: Final = (_ARRAY, _MAP, _TAG)
_SIMPLES: Final = (20, 21, 22, 25, 26, 27)  # false, true, null, and floats of 16, 32 and 64 bits
_TYPED_ARRAYS: Final = range(64, 88)
_INDEFINITE: Final = 28  # from here on, additional information is reserved or "of any length"


def load_map(data: bytes, reason: Reason) -> dict[str, Any]:
    """Read one CBOR map that fills `data`.

    Raises `SegmentError` with `reason` for anything else.
    """
    try:
        end = _walk(data)
        if end != len(data):
            raise _Refused("bytes follow the CBOR item")
        loaded = cbor2.loads(data)
    except (_Refused, cbor2.CBORDecodeError) as error:
        raise SegmentError(reason, str(error)) from None
    if not isinstance(loaded, dict):
        raise SegmentError(reason, "not a CBOR map")
    return loaded


class _Refused(Exception):
    """CBOR that a segment does not use."""


def _walk(data: bytes) -> int:
    """Return where the first item of `data` ends.

    `left` items of the innermost container are still to come, an odd number after the key of a map,
    whose `keys` are those seen; `outer` is the same of the containers around it.
    """
    at, left = 0, 1
    keys: set[bytes] | None = None
    outer: list[tuple[int, set[bytes] | None]] = []
    for _ in range(MAX_ITEMS):
        while not left:
            if not outer:
                return at
            left, keys = outer.pop()
        left -= 1
        major, argument, start = _head(data, at)
        at = start + argument if major in _STRINGS else start
        if at > len(data):
            raise _Refused("a string is longer than what is there")
        if keys is not None and left % 2:
            _add_key(keys, major, data[start:at])
        if major in _CONTAINERS:
            outer.append((left, keys))
            if len(outer) == MAX_DEPTH:
                raise _Refused("nested too deep")
            left, keys = _items(major, argument)
    raise _Refused("too many items")


def _add_key(keys: set[bytes], major: int, key: bytes) -> None:
    if major != _TEXT:
        raise _Refused("a map's key is no text")
    if key in keys:
        raise _Refused("a map has a key twice")
    keys.add(key)


def _head(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the major type, the argument and where the head ends."""
    if at >= len(data):
        raise _Refused("ends within an item")
    major, info = data[at] >> 5, data[at] & 31
    if major == _SIMPLE and info not in _SIMPLES:
        raise _Refused("a simple value that is not in use")
    if info < 24:
        return major, info, at + 1
    if info >= _INDEFINITE:
        raise _Refused("an item of indefinite length")
    end = at + 1 + (1 << (info - 24))
    if end > len(data):
        raise _Refused("ends within an item")
    return major, int.from_bytes(data[at + 1 : end], "big"), end


def _items(major: int, argument: int) -> tuple[int, set[bytes] | None]:
    """Say how many items a container holds, and begin the keys of a map."""
    if major == _MAP:
        return 2 * argument, set()
    if major == _ARRAY:
        return argument, None
    if argument not in _TYPED_ARRAYS:
        raise _Refused("a tag that is no typed array's")
    return 1, None
