"""Publish-subscribe as a micro benchmark: a node with subscribers, and a queue with workers.

All stanzas are parsed, routed and processed, without sockets or commits. The changes of `GROUP`
steps are written together, as those of a group of units are. A worker deletes an item in a later
group than the one in which it was published.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import Final

from benchmarks import commands, queue_payload
from benchmarks.exchange_steps import LIMITS
from benchmarks.payload import DOMAIN
from benchmarks.queue_payload import ITEM, NODE, TOPIC
from benchmarks.relay_steps import GROUP, Device
from edge.engine.dispatch.encoding import encode
from edge.engine.dispatch.hooks import new_context
from edge.engine.sessions.session_lifecycle import SessionLifecycle
from edge.engine.store.database import Receipt, Send, Transaction
from edge.routing.xmpp.router import Router
from edge.xmpp import PROTOCOL

SUBSCRIBERS: Final = 10
WORKERS: Final = 4

REQUESTS: Final = 5
"""Items that a worker takes at a time."""

_FIRST: Final = 20_000
"""A generation above those of other sessions."""

_CONFIGURE: Final = (
    b"<iq type='set' id='c' to='pubsub.gw.example'>"
    b"<pubsub xmlns='http://jabber.org/protocol/pubsub'><create node='%b'/><configure>"
    b"<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE' type='hidden'>"
    b"<value>http://jabber.org/protocol/pubsub#node_config</value></field>"
    b"<field var='pubsub#queueing'><value>%d</value></field></x></configure></pubsub></iq>"
)


class _Node:
    """A node, its publisher, and the devices that are subscribed to it.

    Attributes:
        publisher: the device that publishes.
        subscribers: the devices that receive what it publishes, by generation.
    """

    def __init__(
        self, tx: Transaction, router: Router, node: str, devices: int, first: int, configure: bytes
    ) -> None:
        self._node = node
        self._context = router.context
        self._numbers = count()
        found = [Device(router, f"{node.rpartition('/')[2]}{n}", first + n) for n in range(devices)]
        for device in found:
            device.bind(tx)
            device.do(tx, commands.PRESENCE)
        self.publisher, *others = found
        self.subscribers = {device.generation: device for device in others}
        _check(self.publisher.do(tx, configure))

    def subscribe(self, tx: Transaction, requests: int = 0) -> None:
        """Subscribe the account of each device, to a queue for so many items at a time."""
        for device in self.subscribers.values():
            jid = device.bare.encode()
            _check(device.do(tx, queue_payload.subscribe(b"s", jid, self._node, requests)))
        tx.take_sends()

    def publish(self, tx: Transaction) -> None:
        """Publish an item with a new ItemID."""
        number = next(self._numbers)
        if number % GROUP == 0:
            tx.run_before_commit()
        stanza = queue_payload.publish(b"p%d" % number, self._node, b"item-%08d" % number)
        _check(self.publisher.process(tx, stanza))


class FannedOutItems(_Node):
    """A node with subscribers at level 0."""

    def __init__(self, tx: Transaction, router: Router) -> None:
        configure = _CONFIGURE % (TOPIC.encode(), 0)
        super().__init__(tx, router, TOPIC, SUBSCRIBERS + 1, _FIRST, configure)
        self.subscribe(tx)

    def fan_out(self, tx: Transaction) -> None:
        """Publish an item, which all subscribers receive."""
        self.publish(tx)
        received = tx.take_sends()
        stanzas = [encode(self._context, PROTOCOL, send.message) for send in received]
        if not all(stanzas) or {send.generation for send in received} != self.subscribers.keys():
            raise RuntimeError(f"not all subscribers received an item: {received!r}")


class QueuedItems(_Node):
    """A queue with workers."""

    def __init__(self, tx: Transaction, router: Router) -> None:
        configure = _CONFIGURE % (NODE.encode(), 1)
        super().__init__(tx, router, NODE, WORKERS + 1, _FIRST + SUBSCRIBERS + 1, configure)
        self._lifecycle = SessionLifecycle(router.context)
        self._assigned: deque[Send] = deque()
        self._confirmed: deque[tuple[int, Receipt]] = deque()
        self.subscribe(tx, REQUESTS)

    def work(self, tx: Transaction) -> None:
        """Publish an item, let a worker delete an earlier one, and confirm another deletion.

        Sessions receive stanzas after the commit, and what they answer is in a later group.
        """
        self.publish(tx)
        self._assigned += tx.take_sends()
        if len(self._assigned) > GROUP:
            self._delete(tx, self._assigned.popleft())
        if len(self._confirmed) > GROUP:
            generation, receipt = self._confirmed.popleft()
            self._lifecycle.acknowledge(tx, generation, [receipt])

    def _delete(self, tx: Transaction, send: Send) -> None:
        """Delete an item as the worker that it was sent to."""
        item = ITEM.search(encode(self._context, PROTOCOL, send.message))
        if item is None:
            raise RuntimeError(f"a worker received no item: {send!r}")
        worker = self.subscribers[send.generation]
        _check(worker.process(tx, queue_payload.retract(b"r", NODE, item[1])))
        (confirmation,) = tx.take_sends()
        stanza = encode(self._context, PROTOCOL, confirmation.message)
        if confirmation.receipt is None or not stanza:
            raise RuntimeError(f"the deletion was not confirmed: {confirmation!r}")
        self._confirmed.append((confirmation.generation, confirmation.receipt))


def new_router() -> Router:
    """Return a router with the limits of these benchmarks."""
    return Router(new_context(DOMAIN, LIMITS))


def _check(answer: bytes) -> None:
    if b"type='result'" not in answer:
        raise RuntimeError(f"the gateway refused a request: {answer!r}")
