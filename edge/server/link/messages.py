"""The messages between a front process and the core, as arrays of MessagePack.

A front numbers its connections; a number is never used again. What it says of a connection that it
has not opened, or that is lost, has no effect. `Batches` sends and receives lists of messages.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

VERSION: Final = 1
"""The version of the messages. Both sides are started from the same files, but these may have been
replaced in between, by an upgrade."""

WINDOW: Final = 16 * 1024
"""The cost of the input of one session that may be on its way to the core, or wait there."""

ITEM_COST: Final = 256
"""The cost of an item beside its bytes."""

MAX_REQUESTS: Final = 4096
"""Maximum requests to a front itself, such as pings of a WebSocket, that it counts at once."""

MAX_TEXT: Final = 256
"""Maximum characters of a text about a connection."""

MAX_MESSAGES: Final = 32
"""Maximum messages of a list: the other side works on one while the next is made. More would gain
less, and a decoded list takes up to 20 times its bytes; fewer would wake the other side too often.
"""

MAX_ITEMS: Final = 4 * 1024 * 1024
"""Maximum bytes of items that a front sends at once: a stanza has at most 1 MiB."""

MAX_WAITING: Final = 1024 * 1024
"""The cost of a session's input, in the core or on its way to it, at which a front that sends more
items breaks the rules: the window, and the items of a slice or of what a WebSocket has read ahead.
"""

MAX_HELD: Final = 2 * MAX_ITEMS
"""Encoded bytes of a connection's input, in the core, at which a front that sends more items breaks
the rules, whatever size it names."""

MAX_WRITE: Final = 1024 * 1024
"""Maximum bytes of one write; more are several."""

MAX_CONNECTIONS: Final = 1 << 15
"""Maximum connections of a front, which closes further ones at once. The core has limits of its
own, and tells the front to close what exceeds them, perhaps later."""

Number: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 53)]
Size: TypeAlias = Annotated[int, Meta(gt=-(1 << 32), lt=1 << 32)]
Text: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT)]
Address: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT, pattern="^[0-9A-Fa-f:.]+(%[!-~]+)?$")]
Rule: TypeAlias = Annotated[str, Meta(pattern="^(authentication|tls|websocket)$")]


class Listening(msgspec.Struct, array_like=True):
    """Listening sockets of a front: the module that has the protocol's `SocketSide`, whether
    connections begin with TLS, and the file descriptors."""

    module: str
    only_tls: bool
    sockets: tuple[int, ...]


class Certificate(msgspec.Struct, array_like=True, gc=False):
    """`PeerCertificate`."""

    fingerprint: Annotated[bytes, Meta(min_length=32, max_length=32)]
    serial: Text
    begins: int
    ends: int


class CertificateFiles(msgspec.Struct, array_like=True, tag=11):
    """The bytes of the gateway's certificate, of its key, of the CA's certificate and of the
    revocation list, if there is one; those that the core has checked."""

    server: bytes
    server_key: bytes
    ca: bytes
    crl: bytes | None


# From a front to the core


class Ready(msgspec.Struct, array_like=True, tag=0, gc=False):
    """The front accepts connections. `confined` says whether the kernel keeps files from it."""

    version: int
    confined: bool


class Opened(msgspec.Struct, array_like=True, tag=1, gc=False):
    """A peer has connected to a listener: its place in `Begin.listening`, the peer's IP address,
    and whether TLS begins with the first byte."""

    connection: Number
    listener: Number
    address: Address | None
    direct: bool


class Received(msgspec.Struct, array_like=True, tag=2, gc=False):
    """The items that ended in `size` bytes of input, encoded by the protocol; whether the peer has
    sent more; and the number of requests to the front itself. The size may be negative, to take
    back what was counted twice."""

    connection: Number
    items: Annotated[bytes, Meta(max_length=MAX_ITEMS)]
    size: Size
    pending: bool
    requests: Annotated[int, Meta(ge=0, le=MAX_REQUESTS)]


class Refused(msgspec.Struct, array_like=True, tag=3, gc=False):
    """The front has refused something to a peer by a rule."""

    connection: Number
    rule: Rule


class Secured(msgspec.Struct, array_like=True, tag=4, gc=False):
    """The connection is under TLS."""

    connection: Number
    certificate: Certificate | None
    direct: bool


class TlsFailed(msgspec.Struct, array_like=True, tag=5, gc=False):
    """TLS has failed, by a rule and a reason."""

    connection: Number
    rule: Rule
    reason: Text


class Stalled(msgspec.Struct, array_like=True, tag=6, gc=False):
    """The peer does not read, and so many bytes wait for it; or it reads again: 0."""

    connection: Number
    backlog: Number


class Left(msgspec.Struct, array_like=True, tag=7, gc=False):
    """So many bytes of what was written since the beginning have left the write buffers."""

    connection: Number
    position: Number


class Lost(msgspec.Struct, array_like=True, tag=8, gc=False):
    """The connection is closed or lost."""

    connection: Number


class Figures(msgspec.Struct, array_like=True, tag=9, gc=False):
    """Figures of the front: the number of handshakes now; how often changed certificate files could
    not be used, and how many connections it had no room for, since the last figures."""

    handshakes: Number
    bad_certificates: Number
    refused: Number = 0


OfConnection: TypeAlias = Received | Refused | Secured | TlsFailed | Stalled | Left
OfFront: TypeAlias = Ready | Opened | Lost | Figures
FromFront: TypeAlias = OfConnection | OfFront

# From the core to a front


class Begin(msgspec.Struct, array_like=True, tag=0):
    """All that a front needs to begin: the certificate files, its limits, and what it listens
    on."""

    version: int
    certificates: CertificateFiles
    limits: dict[str, int | float]
    listening: list[Listening]


class Write(msgspec.Struct, array_like=True, tag=1, gc=False):
    """Bytes for the peer; `reports` asks for `Left` when they have left the write buffers."""

    connection: int
    data: bytes
    reports: bool


class Credit(msgspec.Struct, array_like=True, tag=2, gc=False):
    """The front may pass on input of this cost."""

    connection: int
    cost: int


class SetLimit(msgspec.Struct, array_like=True, tag=3, gc=False):
    """Maximum bytes of an item from now on."""

    connection: int
    max_bytes: int


class Reset(msgspec.Struct, array_like=True, tag=4, gc=False):
    """Parse a new stream."""

    connection: int


class StartTls(msgspec.Struct, array_like=True, tag=5, gc=False):
    """Begin TLS after what was written."""

    connection: int


class Release(msgspec.Struct, array_like=True, tag=6, gc=False):
    """Free memory that is needed only while the peer sends."""

    connection: int


class Close(msgspec.Struct, array_like=True, tag=7, gc=False):
    """Close when what was written has left."""

    connection: int


class Abort(msgspec.Struct, array_like=True, tag=8, gc=False):
    """Close at once."""

    connection: int


class Limit(msgspec.Struct, array_like=True, tag=9):
    """The limits from now on."""

    limits: dict[str, int | float]


class StopAccepting(msgspec.Struct, array_like=True, tag=10, gc=False):
    """Accept no more connections."""


ToConnection: TypeAlias = Write | Credit | SetLimit | Reset | StartTls | Release | Close | Abort
FromCore: TypeAlias = Begin | ToConnection | CertificateFiles | Limit | StopAccepting

encode: Final = msgspec.msgpack.Encoder().encode
decode_from_front: Final = msgspec.msgpack.Decoder(
    Annotated[list[FromFront], Meta(max_length=MAX_MESSAGES)]
).decode
decode_from_core: Final = msgspec.msgpack.Decoder(list[FromCore]).decode


class LinkFault(Exception):
    """The other side has broken the rules of the link."""


def cost(size: int, items: int) -> int:
    """Return the cost of input."""
    return max(size, 0) + ITEM_COST * items
