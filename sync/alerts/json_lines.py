"""Writes alerts as JSON lines: to standard output, and to a file that is bounded.

A line is on the disk when `write` returns. Whoever follows the file sees whole lines, and a new
file now and then. Names that gateways chose can neither end a line nor steer a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from sync.alerts.incidents import Alert
from sync.common.durable_files import PRIVATE_FILE, fsync_folder

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the file from which on a new one is begun: some 25,000 alerts."""

ROTATED_FILES: Final = 4
"""Older files that are kept, `FILE.1` the latest."""


class JsonLinesOutput:
    """Where alerts are written: standard output, and the file `out` if one is named."""

    def __init__(self, out: Path | None = None, file_bytes: int = MAX_FILE_BYTES) -> None:
        self._out = out
        self._file_bytes = file_bytes

    def write(self, messages: Sequence[Alert]) -> None:
        """Write a line for each message. Raises OSError; then a part may be written."""
        data = b"".join(map(_line, messages))
        if not data:
            return
        if self._out is not None:
            self._append(self._out, data)
        sys.stdout.flush()
        sys.stdout.buffer.write(data)  # JSON is UTF-8, whatever the terminal's encoding is
        sys.stdout.buffer.flush()

    def _append(self, out: Path, data: bytes) -> None:
        if out.exists() and out.stat().st_size + len(data) > self._file_bytes:
            _rotate(out)
        new = not out.exists()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(out, flags, PRIVATE_FILE)
        try:
            _write_all(descriptor, _mend(descriptor) + data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if new:
            fsync_folder(out.parent)


def _line(message: Alert) -> bytes:
    """Write a message in a line; what cannot be printed is escaped, as JSON lets anything be."""
    text = msgspec.json.encode(message).decode()
    if not text.isprintable():
        text = "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)
    return text.encode() + b"\n"


def _rotate(out: Path) -> None:
    """Give each file the next number; the last one goes."""
    for number in range(ROTATED_FILES, 0, -1):
        older = out.with_name(f"{out.name}.{number}")
        newer = out.with_name(f"{out.name}.{number - 1}") if number > 1 else out
        if newer.exists():
            newer.replace(older)
    fsync_folder(out.parent)


def _mend(descriptor: int) -> bytes:
    """End the line that a full disk, or a crash, has cut."""
    size = os.fstat(descriptor).st_size
    return b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
