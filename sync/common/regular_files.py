"""Reading the files that a gateway is given: regular ones, and nothing else.

A FIFO is waited for without end, a device may be read without end, and either may do something when
it is opened: neither is. Symbolic links are followed, as systemd and others lay them.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

_KINDS: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class NotRegular(OSError):
    """There is something in a file's place; `strerror` says what, `filename` where."""


def check_regular(path: Path) -> os.stat_result:
    """Return what the system knows of a regular file, which is not opened.

    Raises `NotRegular`, and `OSError` as `Path.stat` does.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        what = _KINDS.get(stat.S_IFMT(found.st_mode), "no file")
        text = f"it is {what}, and a regular file is needed"
        raise NotRegular(errno.EINVAL, text, str(path))
    return found


def read_regular(path: Path) -> bytes:
    """Read a regular file; raises `NotRegular`, and `OSError` as `Path.read_bytes` does."""
    check_regular(path)
    return path.read_bytes()
