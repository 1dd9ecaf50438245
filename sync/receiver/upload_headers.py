"""What the head of a request announces of a segment's body: its sum, its length, its beginning.

Reads headers (RFC 9110, sections 8.6 and 14.4) and refuses what they may not say. Touches no file.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from aiohttp import web

from sync.receiver.http_errors import HttpError

SHA256_HEADER: Final = "X-Fieldpost-SHA256"
DIGEST_HEADER: Final = "X-Fieldpost-Digest"
OFFSET_HEADER: Final = "X-Fieldpost-Offset"
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})", re.ASCII)


class UploadHeaders(NamedTuple):
    """A body's announced SHA-256 (32 bytes), the bytes that follow, and where they begin in it."""

    body_sum: bytes
    length: int
    start: int = 0


def parse_upload_headers(request: web.Request, most: int) -> UploadHeaders:
    """Read what a PUT announces, of a body that has `most` bytes at most.

    `Content-Range` says that the rest of a body follows, to its end: a part from its middle would
    be of no use. Raises Refusal.
    """
    length = request.content_length
    if length is None:
        raise HttpError(411, "length", "a body needs its Content-Length")
    start = _start(request.headers.get("Content-Range"), length)
    if start + length > most:
        raise HttpError(413, "size", f"a body has at most {most} bytes")
    body_sum = parse_body_sha256(request)
    if body_sum is None:
        raise HttpError(400, "sha256", f"{SHA256_HEADER} is missing")
    return UploadHeaders(body_sum, length, start)


def parse_body_sha256(request: web.Request) -> bytes | None:
    """The SHA-256 of the whole body, None if the request has none. Raises Refusal."""
    text = request.headers.get(SHA256_HEADER)
    if text is None:
        return None
    if _SHA256.fullmatch(text) is None:
        raise HttpError(400, "sha256", f"{SHA256_HEADER} is not a SHA-256 in hexadecimal")
    return bytes.fromhex(text)


def _start(text: str | None, length: int) -> int:
    if text is None:
        return 0
    found = _RANGE.fullmatch(text)
    start, end, total = map(int, found.groups()) if found else (0, 0, 0)
    if found is None or end + 1 != total or end + 1 - start != length or length == 0:
        raise HttpError(400, "range", "Content-Range is not the rest of a body to its end")
    return start
