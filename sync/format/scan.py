"""A guard before cbor2: reads CBOR that is as plain as a segment's, and nothing else.

The walk allows maps with text keys, arrays, integers, strings, floats, true, false, null and the
typed arrays of RFC 8746, all of definite length, within bounds of depth and number. So none of the
decoder's richer types (dates, regular expressions, shared references) can be reached from outside.
"""

from __future__ import annotations

from typing import Any, Final

import cbor2

from sync.format.errors import Reason, SegmentError
from sync.format.limits import MAX_DEPTH, MAX_ITEMS

_BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = 2, 3, 4, 5, 6, 7
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


class _Level:
    """A container that is being walked: items still to come and, in a map, the keys seen."""

    __slots__ = ("is_map", "keys", "left")

    def __init__(self, left: int, is_map: bool = False) -> None:
        self.left = left
        self.is_map = is_map
        self.keys: set[bytes] = set()

    def wants_key(self) -> bool:
        """Tell whether the item just taken is a map's key: what is left is odd after it."""
        return self.is_map and self.left % 2 == 1

    def add_key(self, key: bytes) -> None:
        """Refuse a key that this map has already."""
        if key in self.keys:
            raise _Refused("a map has a key twice")
        self.keys.add(key)


def _walk(data: bytes) -> int:
    """Return where the first item of `data` ends."""
    at = 0
    levels = [_Level(1)]
    for _ in range(MAX_ITEMS):
        while levels and not levels[-1].left:
            levels.pop()
        if not levels:
            return at
        level = levels[-1]
        level.left -= 1
        major, argument, start = _head(data, at)
        inner, at = _content(data, major, argument, start)
        if level.wants_key():
            if major != _TEXT:
                raise _Refused("a map's key is no text")
            level.add_key(data[start:at])
        if inner is not None:
            levels.append(inner)
        if len(levels) > MAX_DEPTH:
            raise _Refused("nested too deep")
    raise _Refused("too many items")


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


def _content(data: bytes, major: int, argument: int, at: int) -> tuple[_Level | None, int]:
    """Step over a string, or say what a container holds."""
    if major in (_BYTES, _TEXT):
        if argument > len(data) - at:
            raise _Refused("a string is longer than what is there")
        return None, at + argument
    if major == _ARRAY:
        return _Level(argument), at
    if major == _MAP:
        return _Level(2 * argument, is_map=True), at
    if major == _TAG:
        if argument not in _TYPED_ARRAYS:
            raise _Refused("a tag that is no typed array's")
        return _Level(1), at
    return None, at
