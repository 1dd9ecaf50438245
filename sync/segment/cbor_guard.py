"""Check, before cbor2 decodes CBOR, that it contains only the plain types that segments use.

Allowed are maps with text keys, arrays, integers, strings, floats, true, false, null and the typed
arrays of RFC 8746, of definite length, up to `MAX_DEPTH` levels and `MAX_ITEMS` items. So untrusted
bytes cannot make cbor2 create richer types, such as dates, regular expressions and shared
references.
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
_INDEFINITE: Final = (
    28  # additional information from here on is reserved or means indefinite length
)


def load_map(data: bytes, reason: Reason) -> dict[str, Any]:
    """Decode `data`, which must be exactly one CBOR map.

    Raises `SegmentError` with `reason` if it is not.
    """
    try:
        end = _check_item(data)
        if end != len(data):
            raise _NotAllowed("bytes follow the CBOR map")
        loaded = cbor2.loads(data)
    except (_NotAllowed, cbor2.CBORDecodeError) as error:
        raise SegmentError(reason, str(error)) from None
    if not isinstance(loaded, dict):
        raise SegmentError(reason, "the CBOR is not a map")
    return loaded


class _NotAllowed(Exception):
    """The CBOR contains a type or structure that segments do not use."""


def _check_item(data: bytes) -> int:
    """Check the first item of `data` and return the offset of its end.

    `left` is the number of unread items in the innermost container; in a map it is odd after a key.
    `keys` are the keys read from this map. `outer` has (`left`, `keys`) of each outer container.
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
            raise _NotAllowed("a string is longer than the data")
        if keys is not None and left % 2:
            _add_key(keys, major, data[start:at])
        if major in _CONTAINERS:
            outer.append((left, keys))
            if len(outer) == MAX_DEPTH:
                raise _NotAllowed("containers are nested too deep")
            left, keys = _items(major, argument)
    raise _NotAllowed("there are too many items")


def _add_key(keys: set[bytes], major: int, key: bytes) -> None:
    if major != _TEXT:
        raise _NotAllowed("the key of a map is not text")
    if key in keys:
        raise _NotAllowed("a map has a repeated key")
    keys.add(key)


def _head(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the major type and argument of the item at offset `at`, and the end of its head."""
    if at >= len(data):
        raise _NotAllowed("the data ends within an item")
    major, info = data[at] >> 5, data[at] & 31
    if major == _SIMPLE and info not in _SIMPLES:
        raise _NotAllowed("a CBOR simple value is not false, true or null")
    if info < 24:
        return major, info, at + 1
    if info >= _INDEFINITE:
        raise _NotAllowed("an item has indefinite length")
    end = at + 1 + (1 << (info - 24))
    if end > len(data):
        raise _NotAllowed("the data ends within an item")
    return major, int.from_bytes(data[at + 1 : end], "big"), end


def _items(major: int, argument: int) -> tuple[int, set[bytes] | None]:
    """Return the number of items in a container and, for a map, an empty set for its keys."""
    if major == _MAP:
        return 2 * argument, set()
    if major == _ARRAY:
        return argument, None
    if argument not in _TYPED_ARRAYS:
        raise _NotAllowed("a CBOR tag is not that of a typed array")
    return 1, None
