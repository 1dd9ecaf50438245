"""The file around header and body: magic, version, lengths, compression and checksum.

What the header and the body say is not known here.
"""

from __future__ import annotations

import struct
import zlib
from hashlib import sha256
from typing import Final, NamedTuple

from sync.segment.errors import SegmentError
from sync.segment.header import DIGEST_SIZE, VERSION
from sync.segment.limits import MAX_BODY, MAX_FILE

MAGIC: Final = b"\x89FPS"
"""The first bytes of every segment. The first is no ASCII, so that no text is taken for one."""

_PREFIX: Final = struct.Struct(">4sBBH")  # magic, major, minor, length of the header
_LEVEL: Final = 6  # zlib's own default: 9 costs twice the time for one per cent


class Frame(NamedTuple):
    """A segment whose checksum is right: version, header and compressed body."""

    version: tuple[int, int]
    header: bytes
    packed: bytes


def pack_frame(header: bytes, body: bytes) -> bytes:
    """Return the whole file.

    Raises `ValueError` if it, or its body, is larger than a reader takes.
    """
    if len(body) > MAX_BODY:
        raise ValueError(f"the body is larger than {MAX_BODY} bytes")
    data = _PREFIX.pack(MAGIC, *VERSION, len(header)) + header + zlib.compress(body, _LEVEL)
    if len(data) + DIGEST_SIZE > MAX_FILE:
        raise ValueError(f"the segment is larger than {MAX_FILE} bytes")
    return data + sha256(data).digest()


def unpack_frame(data: bytes) -> Frame:
    """Check version, size and checksum, and cut the file into its parts.

    Raises `SegmentError` with the reason `short`, `magic`, `version`, `size`, `checksum` or
    `header`.
    """
    if len(data) < _PREFIX.size + DIGEST_SIZE:
        raise SegmentError("short", f"{len(data)} bytes are no segment")
    magic, major, minor, length = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise SegmentError("magic", "does not begin as a segment does")
    if major != VERSION[0]:
        raise SegmentError("version", f"version {major}.{minor}; {VERSION[0]} is read here")
    if len(data) > MAX_FILE:
        raise SegmentError("size", f"larger than {MAX_FILE} bytes")
    end = len(data) - DIGEST_SIZE
    if sha256(memoryview(data)[:end]).digest() != data[end:]:
        raise SegmentError("checksum", "the bytes are not those that were sealed")
    body = _PREFIX.size + length
    if body > end:
        raise SegmentError("header", "longer than the segment")
    return Frame((major, minor), data[_PREFIX.size : body], data[body:end])


def inflate(packed: bytes) -> bytes:
    """Decompress a body, never to more than `MAX_BODY` bytes.

    Raises `SegmentError` with the reason `inflate`.
    """
    decompressor = zlib.decompressobj()
    try:
        body = decompressor.decompress(packed, MAX_BODY + 1)
    except zlib.error as error:
        raise SegmentError("inflate", str(error)) from None
    if len(body) > MAX_BODY:
        raise SegmentError("inflate", f"larger than {MAX_BODY} bytes when decompressed")
    if not decompressor.eof or decompressor.unused_data:
        raise SegmentError("inflate", "the compressed body ends early, or bytes follow it")
    return body
