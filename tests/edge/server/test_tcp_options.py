from __future__ import annotations

import asyncio
import socket

from edge.server.tcp_options import set_send_buffer


def test_a_transport_without_a_socket_is_ignored() -> None:
    set_send_buffer(asyncio.BaseTransport(), 65_536)


def test_the_send_buffer_is_limited() -> None:
    one, other = socket.socketpair()
    with one, other:
        set_send_buffer(asyncio.BaseTransport({"socket": one}), 8192)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 16_384
