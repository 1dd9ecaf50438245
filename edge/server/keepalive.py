"""What the kernel does: find out that a peer is gone, or deaf, and keep little that is unread."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

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


def bound_unread(transport: asyncio.BaseTransport, size: int) -> None:
    """Bound what the kernel keeps for a peer that does not read: of its own accord, some MiB.

    `size` is in bytes; Linux keeps up to twice as many, its own book-keeping included. A transport
    has no socket any more where its peer went amid a handshake.
    """
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
