"""Find out why the gateway cannot listen on an address, and which process uses the port."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Final

from edge.config.load import Address
from edge.errors import ConfigError

_LISTEN: Final = "0A"
"""The state of a listening socket in /proc/net/tcp."""


def listen_error(section: str, option: str, address: Address, error: Exception) -> ConfigError:
    """Return the error for an address, set in `[section] option`, that cannot be listened on."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        who = _listening_process(address.port)
        text = f"port {address.port} is already in use{who}; choose another in [{section}] {option}"
        return ConfigError(text)
    reason = getattr(error, "strerror", None) or error
    return ConfigError(f"{section}.{option}: cannot listen on {address}: {reason}")


def find_listen_error(section: str, option: str, address: Address) -> ConfigError | None:
    """Return the reason why an address cannot be listened on now, or `None` if it can.

    The address is bound for a moment to find out.
    """
    if address.port == 0:
        return None
    try:
        for family, kind, protocol, _, place in socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(place)
    except (OSError, UnicodeError) as error:
        return listen_error(section, option, address, error)
    return None


def _listening_process(port: int) -> str:
    """Return ` (pid NUMBER, NAME)` of the process that listens on a TCP port, or an empty string if
    this user cannot find it out."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(file.readlink()) in sockets for file in (process / "fd").iterdir()):
                name = (process / "comm").read_text("utf-8", "replace").strip()
                return f" (pid {process.name}, {name})"
        except OSError:  # another user's process, or one that has just ended
            continue
    return ""


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
