"""The options of a connection's socket, where there is no socket any more."""

from __future__ import annotations

import asyncio
import socket

from edge.server.keepalive import bound_unread


class Gone(asyncio.BaseTransport):
    def get_extra_info(self, name: str, default: object = None) -> object:
        return None


def test_a_peer_that_went_amid_the_handshake_ends_nothing() -> None:
    bound_unread(Gone(), 65_536)


def test_what_the_kernel_keeps_for_a_peer_is_bounded() -> None:
    one, other = socket.socketpair()
    with one, other:

        class There(asyncio.BaseTransport):
            def get_extra_info(self, name: str, default: object = None) -> object:
                return one

        bound_unread(There(), 8192)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 16_384
