"""Tests of the TCP options."""

from __future__ import annotations

import asyncio
import socket

from edge.server.tcp_options import set_send_buffer


class ClosedTransport(asyncio.BaseTransport):
    def get_extra_info(self, name: str, default: object = None) -> object:
        return None


def test_a_transport_without_a_socket_is_ignored() -> None:
    set_send_buffer(ClosedTransport(), 65_536)


def test_the_send_buffer_is_limited() -> None:
    one, other = socket.socketpair()
    with one, other:

        class OpenTransport(asyncio.BaseTransport):
            def get_extra_info(self, name: str, default: object = None) -> object:
                return one

        set_send_buffer(OpenTransport(), 8192)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 16_384
