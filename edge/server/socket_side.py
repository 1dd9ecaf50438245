"""The parts of a protocol at its sockets, in the core or in a front process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from edge.config.limits import Limits
from edge.server.wire import Parser, SocketWire

BACKLOG: Final = 512
"""Maximum connections that the kernel queues while the process is busy: all devices of a site after
a power cut."""


class SocketSide(NamedTuple):
    """A protocol's sockets: the constant `SIDE` of a module.

    Attributes:
        alpn: the protocol's name in TLS (RFC 7301).
        wire: the class of its wires.
        parser: makes the parser of a wire.
        encoder: makes the function that encodes the items of one connection for the core.
    """

    alpn: str
    wire: type[SocketWire]
    parser: Callable[[Limits], Parser]
    encoder: Callable[[], Callable[[Sequence[Any]], bytes]]


def load(module: str) -> SocketSide:
    """Import the sockets of a protocol by the name of their module."""
    side: SocketSide = import_module(module).SIDE
    return side
