"""A publication over MQTT as a micro benchmark: its packets, without sockets or commits.

The changes of `GROUP` publications are written together, as those of a group of units are. A packet
identifier can be reused after its release, so a few alternating messages are enough.
"""

from __future__ import annotations

from itertools import count
from typing import Final

from benchmarks.exchange_steps import LIMITS, MESSAGES
from benchmarks.payload import DOMAIN, SENSOR_DATA
from benchmarks.relay_steps import GROUP
from edge.config.options import Pubsub
from edge.engine.dispatch.hooks import new_context
from edge.engine.sessions import sessions
from edge.engine.sessions.sessions import Declaration, guarded
from edge.engine.store.database import Transaction
from edge.features.accounts.store import accounts
from edge.mqtt.codec import PacketParser, encode
from edge.mqtt.packets import MAX_ID, V5, Fault, PubAck, PubComp, Publish, PubRec, PubRel
from edge.routing.mqtt import MqttHooks, Peer

_NAME: Final = "publisher0"
_TOPIC: Final = f"{_NAME}/state"

_GENERATION: Final = 30_000
"""A generation above those of other sessions."""


class Publications:
    """A client that publishes retained messages at one QoS to one topic, without subscribers."""

    def __init__(self, tx: Transaction, qos: int) -> None:
        self._context = new_context(DOMAIN, LIMITS, pubsub=Pubsub(auto_create=[_TOPIC]))
        self._handlers = self._context.hooks.of(MqttHooks).handlers
        self._parser = PacketParser(LIMITS.stanza_bytes, V5)
        self._numbers = count()
        self._messages = [_message(qos, number) for number in range(MESSAGES)]
        bare = f"{_NAME}@{DOMAIN}"
        declared = Declaration(
            qos="mqtt", adopts=False, resends=False, ordered=True, ids=MAX_ID, durable=3600.0
        )
        accounts.add(tx, _NAME, [], trusted=True)
        sessions.bind(tx, _GENERATION, _NAME, bare, f"{bare}/{_NAME}", declared=declared)

    def publish(self, tx: Transaction) -> None:
        """Publish a message, and release it if it is of QoS 2."""
        number = next(self._numbers)
        if number % GROUP == 0:
            tx.run_before_commit()
        for data, expected in self._messages[number % MESSAGES]:
            (packet,) = self._parser.feed(data)
            if isinstance(packet, Fault):
                raise TypeError(f"the parser returned {packet!r}")
            work = self._handlers[type(packet)](self._context, packet, Peer())
            if not callable(work) or guarded(work, _GENERATION)(tx) != expected:
                raise RuntimeError(f"a publication failed: {packet!r}")


def _message(qos: int, number: int) -> list[tuple[bytes, bytes]]:
    """Return the packets of a message with the answers to them."""
    id = number + 1 if qos else 0
    payload = SENSOR_DATA + b"%08d" % number
    publish = encode(Publish(_TOPIC, payload, qos, retain=True, id=id), V5)
    if qos == 0:
        return [(publish, b"")]
    if qos == 1:
        return [(publish, encode(PubAck(id), V5))]
    release = encode(PubRel(id), V5), encode(PubComp(id), V5)
    return [(publish, encode(PubRec(id), V5)), release]
