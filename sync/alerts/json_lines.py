"""Write alerts as JSON lines to standard output and to a rotated file.

Names that gateways chose are escaped, so that they cannot end a line or control a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from sync.alerts.incidents import Alert
from sync.common.durable_files import PRIVATE_FILE, fsync_folder

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""Size in bytes at which the file is rotated: some 25,000 alerts."""

ROTATED_FILES: Final = 4
"""Number of rotated files that are kept: `FILE.1`, the newest, to `FILE.4`."""


@dataclass
class JsonLinesOutput:
    """Writes alerts to standard output and, if given, durably to the file `out`."""

    out: Path | None = None
    max_file_bytes: int = MAX_FILE_BYTES

    def prepare(self) -> None:
        """Create the file if it is missing; raises OSError if it cannot be written.

        Call it before the fleet is checked.
        """
        if self.out is not None:
            self._append(self.out, b"")

    def write(self, alerts: Sequence[Alert]) -> None:
        """Write a line for each alert. Raises OSError; some lines may have been written then."""
        data = b"".join(map(_line, alerts))
        if not data:
            return
        if self.out is not None:
            self._append(self.out, data)
        sys.stdout.flush()
        sys.stdout.buffer.write(data)  # JSON is UTF-8, in any encoding of the terminal
        sys.stdout.buffer.flush()

    def _append(self, out: Path, data: bytes) -> None:
        if out.exists() and out.stat().st_size + len(data) > self.max_file_bytes:
            _rotate(out)
        is_new = not out.exists()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with os.fdopen(os.open(out, flags, PRIVATE_FILE), "a+b") as file:
            file.write(_missing_newline(file.fileno()) + data)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            fsync_folder(out.parent)


def _line(alert: Alert) -> bytes:
    text = msgspec.json.encode(alert).decode()
    if not text.isprintable():
        text = "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)
    return text.encode() + b"\n"


def _rotate(out: Path) -> None:
    for number in range(ROTATED_FILES, 0, -1):
        older = out.with_name(f"{out.name}.{number}")
        newer = out.with_name(f"{out.name}.{number - 1}") if number > 1 else out
        if newer.exists():
            newer.replace(older)
    fsync_folder(out.parent)


def _missing_newline(descriptor: int) -> bytes:
    """Return a newline if a full disk or a crash cut the last line, else nothing."""
    size = os.fstat(descriptor).st_size
    return b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
