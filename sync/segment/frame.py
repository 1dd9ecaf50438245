"""The outer layout of a segment: magic, version, lengths, compression and checksum."""

from __future__ import annotations

import struct
import zlib
from hashlib import sha256
from typing import Final, NamedTuple

from sync.segment.errors import SegmentError
from sync.segment.header import DIGEST_SIZE, VERSION
from sync.segment.limits import MAX_BODY, MAX_FILE

MAGIC: Final = b"\x89FPS"
"""The first 4 bytes of every segment; the first byte is not ASCII, so that no text file matches."""

PREFIX: Final = struct.Struct(">4sBBH")
"""Magic, major and minor version, and length of the header."""

_LEVEL: Final = 6  # zlib's default; 9 costs twice the time for one per cent


class Frame(NamedTuple):
    """The version, header and compressed body of a segment with a valid checksum."""

    version: tuple[int, int]
    header: bytes
    packed: bytes


def pack_frame(header: bytes, body: bytes) -> bytes:
    """Compress the body, and return the bytes of the segment.

    Raises `ValueError` if the body has more than `MAX_BODY` bytes or the segment more than
    `MAX_FILE`.
    """
    if len(body) > MAX_BODY:
        raise ValueError(f"the body is larger than {MAX_BODY} bytes")
    data = PREFIX.pack(MAGIC, *VERSION, len(header)) + header + zlib.compress(body, _LEVEL)
    if len(data) + DIGEST_SIZE > MAX_FILE:
        raise ValueError(f"the segment is larger than {MAX_FILE} bytes")
    return data + sha256(data).digest()


def unpack_frame(data: bytes) -> Frame:
    """Check the version, size and checksum of a segment, and split it into header and body.

    Raises `SegmentError` with the reason `short`, `magic`, `version`, `size`, `checksum` or
    `header`.
    """
    if len(data) < PREFIX.size + DIGEST_SIZE:
        raise SegmentError("short", f"the file has only {len(data)} bytes, too few for a segment")
    magic, major, minor, length = PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise SegmentError("magic", "the file does not begin with a segment's magic bytes")
    if major != VERSION[0]:
        raise SegmentError(
            "version", f"the segment has version {major}.{minor}; supported is {VERSION[0]}.x"
        )
    if len(data) > MAX_FILE:
        raise SegmentError("size", f"the segment is larger than {MAX_FILE} bytes")
    end = len(data) - DIGEST_SIZE
    if sha256(memoryview(data)[:end]).digest() != data[end:]:
        raise SegmentError("checksum", "the segment was damaged after it was sealed")
    body = PREFIX.size + length
    if body > end:
        raise SegmentError("header", "the header's length exceeds the segment")
    return Frame((major, minor), data[PREFIX.size : body], data[body:end])


def inflate(packed: bytes) -> bytes:
    """Decompress a body to at most `MAX_BODY` bytes.

    Raises `SegmentError` with the reason `inflate`.
    """
    decompressor = zlib.decompressobj()
    try:
        body = decompressor.decompress(packed, MAX_BODY + 1)
    except zlib.error as error:
        raise SegmentError("inflate", str(error)) from None
    if len(body) > MAX_BODY:
        raise SegmentError("inflate", f"the body is larger than {MAX_BODY} bytes when decompressed")
    if not decompressor.eof or decompressor.unused_data:
        raise SegmentError(
            "inflate", "the compressed body is truncated, or followed by other bytes"
        )
    return body
