"""Describe any file as far as it can be read as a segment, for a person who examines it.

The bytes may be hostile. A header with a wrong checksum or an unknown version is shown as it is.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

from sync.common.text import printable
from sync.segment import Identity, SegmentError, decode_columns, read_header
from sync.segment.cbor_guard import load_map
from sync.segment.frame import MAGIC, PREFIX

SHOWN_BYTES: Final = 64
"""Number of first bytes of a file that are shown: magic, version and the start of the header."""

SHOWN_TEXT: Final = 200
"""Maximum number of characters of a header field that are shown."""


@dataclass(frozen=True, slots=True)
class FileInspection:
    """A file: its `size` in bytes, and `reason` and `detail` if it is not a valid segment.

    `identity` is set if header and checksum are valid. `header` maps the fields that can be read to
    printable text; `first` has the first bytes in hexadecimal.
    """

    size: int
    sha256: str
    reason: str | None
    detail: str | None
    version: str | None
    identity: Identity | None
    header: dict[str, str]
    first: str


def inspect_file(data: bytes) -> FileInspection:
    """Inspect the content of a file."""
    identity: Identity | None = None
    reason: str | None = None
    detail: str | None = None
    try:
        identity = read_header(data).identity
        decode_columns(data)
    except SegmentError as error:
        reason, detail = error.reason, error.text
    return FileInspection(
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        reason=reason,
        detail=detail,
        version=f"{data[4]}.{data[5]}" if data[:4] == MAGIC and len(data) > 5 else None,
        identity=identity,
        header=_header(data),
        first=data[:SHOWN_BYTES].hex(" "),
    )


def _header(data: bytes) -> dict[str, str]:
    """Read the header without checking version and checksum."""
    if len(data) < PREFIX.size or data[:4] != MAGIC:
        return {}
    length = PREFIX.unpack_from(data)[3]
    try:
        fields = load_map(data[PREFIX.size : PREFIX.size + length], "header")
    except SegmentError:
        return {}
    return {_written(key): _written(value) for key, value in fields.items()}


def _written(value: Any) -> str:
    if isinstance(value, bytes):
        text = value.hex()
    elif isinstance(value, str):
        text = printable(value)
    else:
        text = json.dumps(value, default=str)
    return text if len(text) <= SHOWN_TEXT else f"{text[:SHOWN_TEXT]}..."
