"""The sockets of the toy's protocol."""

from __future__ import annotations

from typing import Final

import msgspec

from edge.config.limits import Limits
from edge.server.socket_side import SocketSide
from edge.server.wire import SocketWire
from tests.toy.codec import LineParser

ALPN: Final = "toy"

encode: Final = msgspec.msgpack.Encoder().encode
decode: Final = msgspec.msgpack.Decoder(list[list[bytes]]).decode


def parser(_limits: Limits) -> LineParser:
    return LineParser()


SIDE: Final = SocketSide(ALPN, SocketWire, parser, lambda: encode)
