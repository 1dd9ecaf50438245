"""TCP options of accepted connections."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

KEEPALIVE: Final = (60, 15, 4)
"""Seconds of silence before TCP probes a peer, seconds between probes, and the number of unanswered
probes that ends the connection."""

USER_TIMEOUT: Final = 120_000
"""Milliseconds for which TCP retransmits unacknowledged data: as long as keep-alive takes, so that
a half-open connection ends within two minutes, with or without data to send."""


def set_keepalive(transport: asyncio.BaseTransport) -> None:
    """Make the kernel end a connection whose peer is gone."""
    connection = transport.get_extra_info("socket")
    idle, interval, count = KEEPALIVE
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, idle),
        (socket.TCP_KEEPINTVL, interval),
        (socket.TCP_KEEPCNT, count),
        (socket.TCP_USER_TIMEOUT, USER_TIMEOUT),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def set_send_buffer(transport: asyncio.BaseTransport, size: int) -> None:
    """Limit the kernel's send buffer, which grows to some MiB by default.

    `size` is in bytes; Linux allows twice as many, including its own overhead. A transport whose
    peer disconnected during a handshake has no socket any more.
    """
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
