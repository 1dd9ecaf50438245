"""MQTT's own hooks: handlers of packets, and how messages become packets.

The `mqtt` modules of features register them: `hooks.of(MqttHooks)` is their registry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from edge.engine.dispatch.hooks import Context, OffloadedWork, PartedWork, Registry, Work
from edge.engine.rules.access import Sender
from edge.engine.store.database import SentMessage, Transaction
from edge.mqtt.packets import MAX_PACKET, V5, Connect, Disconnect, Property, Publish, PubRel


class Peer(NamedTuple):
    """The client at the other end of a connection, as it has described itself.

    Attributes:
        version: the version of the protocol, `V311` or `V5`.
        explains: whether it accepts reason strings in all packets (section 3.1.2.11.7).
        max_packet: the largest packet that it accepts, in bytes (section 3.1.2.11.4).
    """

    version: int = V5
    explains: bool = True
    max_packet: int = MAX_PACKET


Handler: TypeAlias = Callable[[Context, Any, Peer], Work | OffloadedWork | PartedWork | bytes]
"""Turns a packet into work, or into an answer that needs no transaction. An answer that is a
DISCONNECT ends the connection."""

PacketMaker: TypeAlias = Callable[[Context, Any, Callable[[], float]], Publish | PubRel | None]
"""Turns a message into the packet that a session is sent, or `None` if MQTT has none for it. The
expiry of a message that has expired is 0. The last argument returns the present service second."""

ConnectHook: TypeAlias = Callable[[Context, Transaction, Sender, Connect], None]
"""Runs when a session begins, before its CONNECT is answered."""

DisconnectHook: TypeAlias = Callable[[Context, Transaction, Sender, Disconnect], None]
"""Runs when a client disconnects by itself, before its session ends."""

DiscardHook: TypeAlias = Callable[[Context, Any, Transaction, Sender], bytes]
"""Finishes a stored message that its session cannot be sent; returns empty bytes."""


@dataclass(eq=False)
class MqttHooks(Registry):
    """The registry of MQTT's hooks, which features add to and sessions read."""

    handlers: dict[type, Handler] = field(default_factory=dict)
    """Handlers of the packets of clients that have a session, by type."""
    packets: dict[type[Any], PacketMaker] = field(default_factory=dict)
    """Makers of packets, by the type of the message."""
    discards: dict[type[Any], DiscardHook] = field(default_factory=dict)
    """Functions that finish messages which cannot be sent, by the type of the message."""
    encoded: dict[int, tuple[Publish, bytes]] = field(default_factory=dict)
    """By version, the publication that was encoded last, and its bytes: at QoS 0 it usually goes to
    several sessions."""
    on_connect: list[ConnectHook] = field(default_factory=list)
    on_disconnect: list[DisconnectHook] = field(default_factory=list)

    def packet(
        self, context: Context, message: SentMessage, now: Callable[[], float]
    ) -> Publish | PubRel | None:
        """Return the packet that a session is sent for a message, or `None` if MQTT has none for it
        or it has expired. One that was sent before is sent again even then, because the client may
        keep its identifier until it has the rest."""
        make = self.packets.get(type(message))
        found = None if make is None else make(context, message, now)
        if not isinstance(found, Publish) or found.dup or not found.properties:
            return found
        return None if found.properties.get(Property.MESSAGE_EXPIRY) == 0 else found
