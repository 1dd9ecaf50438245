"""Describe why an address cannot be listened on, with the process that uses the port."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from edge.config.load import Address
from edge.errors import ConfigError

_LISTEN: Final = "0A"
"""The state of a listening socket in /proc/net/tcp."""


def listen_error(section: str, option: str, address: Address, error: Exception) -> ConfigError:
    """Return the error for an address that `[section] option` names."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        pid = _listening_pid(address.port)
        who = "" if pid is None else f" (pid {pid})"
        text = f"port {address.port} is already in use{who}; choose another in [{section}] {option}"
        return ConfigError(text)
    reason = getattr(error, "strerror", None) or error
    return ConfigError(f"{section}.{option}: cannot listen on {address}: {reason}")


def _listening_pid(port: int) -> int | None:
    """Return the process that listens on a TCP port, if this user can find it out."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(file.readlink()) in sockets for file in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:  # another user's process, or one that has just ended
            continue
    return None


def _listening_inodes(port: int) -> set[str]:
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found
