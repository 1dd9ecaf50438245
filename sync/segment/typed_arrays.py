"""Typed arrays (RFC 8746) and bitmaps: sequences of numbers or flags as one byte string.

Arrays are little-endian. Integers have the smallest type that fits every number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

from cbor2 import CBORTag

from sync.segment.errors import SegmentError

_SIZED: Final = (  # smallest first, unsigned before signed
    (64, 0, 2**8 - 1),
    (72, -(2**7), 2**7 - 1),
    (69, 0, 2**16 - 1),
    (77, -(2**15), 2**15 - 1),
    (70, 0, 2**32 - 1),
    (78, -(2**31), 2**31 - 1),
    (79, -(2**63), 2**63 - 1),
)
CODES: Final = {
    64: "B", 69: "H", 70: "I", 72: "b", 77: "h", 78: "i", 79: "q", 85: "f", 86: "d",
}  # fmt: skip
"""For each CBOR tag of a typed array, the type of its numbers, as `struct` and numpy name it."""

_BYTES: Final = 64
_DIGITS: Final = bytes.maketrans(b"\x00\x01", b"01")

UNSIGNED: Final = (64, 69, 70)
"""CBOR tags of arrays of unsigned integers, for counts and indexes."""

INTEGERS: Final = (64, 69, 70, 72, 77, 78, 79)
"""CBOR tags of arrays of unsigned or signed integers."""

SINGLE: Final = 85
"""The CBOR tag of arrays of 32-bit floats."""

DOUBLE: Final = 86
"""The CBOR tag of arrays of 64-bit floats."""

FLOATS: Final = (SINGLE, DOUBLE)
"""CBOR tags of arrays of floats."""


def pack_array(tag: int, numbers: Sequence[Any]) -> CBORTag:
    """Encode `numbers` as a typed array with this CBOR tag; its type must fit the numbers."""
    if tag == _BYTES:
        return CBORTag(tag, bytes(numbers))
    return CBORTag(tag, struct.pack(f"<{len(numbers)}{CODES[tag]}", *numbers))


def pack_integers(numbers: Sequence[int]) -> CBORTag:
    """Encode `numbers` as the smallest typed array; an empty sequence as an array of bytes.

    Raises `ValueError` for a number that does not fit 64 bits.
    """
    return pack_array(smallest_type(numbers), numbers)


def smallest_type(numbers: Sequence[int]) -> int:
    """Return the CBOR tag of the smallest typed array that fits all of `numbers`.

    Raises `ValueError` for a number that does not fit 64 bits.
    """
    low, high = min(numbers, default=0), max(numbers, default=0)
    for tag, least, most in _SIZED:
        if least <= low and high <= most:
            return tag
    raise ValueError("a number does not fit 64 bits")


def unpack_array(
    item: Any, tags: Sequence[int], least: int, most: int | None = None
) -> tuple[Any, ...]:
    """Decode a typed array whose CBOR tag is in `tags`.

    It must have `least` to `most` numbers; `most` is `least` by default.

    Raises `SegmentError` with the reason `column`.
    """
    if not isinstance(item, CBORTag) or item.tag not in tags or not isinstance(item.value, bytes):
        raise SegmentError("column", "a typed array is missing or has the wrong type")
    code = CODES[item.tag]
    count, rest = divmod(len(item.value), struct.calcsize(f"<{code}"))
    if rest or not least <= count <= (least if most is None else most):
        raise SegmentError("column", "a typed array has the wrong length")
    return struct.unpack(f"<{count}{code}", item.value)


def pack_bits(flags: Iterable[int]) -> bytes:
    """Encode flags (0 or 1) as a bitmap, the first flag in the highest bit of the first byte."""
    digits = bytes(flags).translate(_DIGITS)
    return (int(digits, 2) << -len(digits) % 8).to_bytes((len(digits) + 7) // 8, "big")


def unpack_bits(item: Any, count: int) -> str:
    """Decode a bitmap to a string of `count` digits, 0 or 1.

    Raises `SegmentError` with the reason `column`.
    """
    if not isinstance(item, bytes) or len(item) != (count + 7) // 8:
        raise SegmentError("column", "a bitmap is missing or has the wrong length")
    digits = format(int.from_bytes(item, "big"), f"0{8 * len(item)}b")
    if "1" in digits[count:]:
        raise SegmentError("column", "a bitmap has unused bits set")
    return digits[:count]
