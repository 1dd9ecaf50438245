"""Report a service's state to systemd (sd_notify(3), sd_watchdog_enabled(3))."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> None:
    """Send `state`, such as `READY=1`, to systemd; do nothing if `$NOTIFY_SOCKET` is not set.

    Raises OSError if nothing listens on the socket that `$NOTIFY_SOCKET` names.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
        out.sendto(state.encode(), address)


def watchdog_interval() -> float | None:
    """Return the seconds between two `WATCHDOG=1` messages: half of systemd's watchdog timeout.

    Returns None if systemd does not expect these messages from this process.
    """
    limit, process = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not limit.isdecimal() or process not in ("", str(os.getpid())):
        return None
    return int(limit) / 2e6 or None
