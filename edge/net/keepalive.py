"""Letting the kernel find out that a peer is gone: silent, or deaf to what it is sent."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

SILENCE: Final = (60, 15, 4)
"""Seconds of silence before TCP probes a peer, between probes, and how many go unanswered."""

UNANSWERED: Final = 120_000
"""Milliseconds for which TCP repeats what a peer does not acknowledge: as long as the above takes,
so that a connection which is half open ends in two minutes, whoever spoke last."""


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Set both for a connection."""
    connection = transport.get_extra_info("socket")
    idle, interval, count = SILENCE
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, idle),
        (socket.TCP_KEEPINTVL, interval),
        (socket.TCP_KEEPCNT, count),
        (socket.TCP_USER_TIMEOUT, UNANSWERED),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
