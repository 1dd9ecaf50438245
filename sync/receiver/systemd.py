"""Telling systemd how it stands (sd_notify(3)); elsewhere, telling nobody.

`sync.common.sd_notify` does the same at the gateway; the two do not import each other.
"""

from __future__ import annotations

import os
import socket


def notify(state: str) -> None:
    """Send `state`, such as `READY=1`, to the socket that systemd named, if it named one.

    Raises OSError when nobody has that socket open.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
        out.sendto(state.encode(), address)
