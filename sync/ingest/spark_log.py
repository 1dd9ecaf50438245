"""The bound of what Spark writes while an ingest goes on: the file is cut, and its last part kept.

Diverts nothing; `sync.tables.spark_session.spark_errors` does. For Linux.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from sync.common.durable_files import replace_file
from sync.common.text import os_error

LOG_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the log that are kept when it is cut: more than 20,000 lines, which tell of days. They
are in memory for a moment."""

_STDERR: Final = 2


def rotate_stderr(log: Path, most: int = LOG_BYTES) -> None:
    """Once stderr, a file that was begun as `log`, has more than `most` bytes, begin it anew.

    The last `most` of them become `log`.1. The file is cut and not renamed, because the JVM has it
    open too, to append to it. It is reached by its descriptor: another run may have begun a `log`
    of its own. What is written between the copy and the cut is lost; so is what the disk refuses to
    keep, of which the new beginning tells. Raises OSError when the file cannot be cut.
    """
    if os.fstat(_STDERR).st_size <= most:
        return
    told = ""
    try:
        with Path(f"/proc/self/fd/{_STDERR}").open("rb") as written:
            written.seek(-most, os.SEEK_END)
            last = written.read(most)
        replace_file(log.with_name(f"{log.name}.1"), last)
    except OSError as error:
        told = f"what stood here is lost: {os_error(error)}\n"
    os.ftruncate(_STDERR, 0)
    with contextlib.suppress(OSError):  # a disk that is full all the same
        os.write(_STDERR, told.encode())
