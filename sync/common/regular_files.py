"""Read regular files; refuse FIFOs, devices, sockets and folders.

Opening a FIFO can block for ever, reading a device may never end, and opening either can have side
effects. Symbolic links are followed because systemd and configuration tools use them.
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


class NotRegularError(OSError):
    """The path is not a regular file; `strerror` names the type of file."""


def check_regular(path: Path) -> os.stat_result:
    """Return the `stat` of a regular file without opening it.

    Raises `NotRegularError`, and `OSError` as `Path.stat` does.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "not a file")
        text = f"it is {kind}, but a regular file is needed"
        raise NotRegularError(errno.EINVAL, text, str(path))
    return found


def read_regular(path: Path) -> bytes:
    """Read a regular file; raises `NotRegularError`, and `OSError` as `Path.read_bytes` does."""
    check_regular(path)
    return path.read_bytes()
