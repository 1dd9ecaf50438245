"""The relay as a micro benchmark: messages from device to device, assured on both hops.

All eight stanzas of a message are parsed, routed and processed, without sockets or commits. Pairs
of devices send at the same time: each step processes one stanza of each kind, of four messages, and
the changes of `GROUP` steps are written together, as those of a group of units are. So each unit
of a message is in another group than the one before it. A message's id can be reused after its
release.
"""

from __future__ import annotations

from collections import deque
from itertools import count, cycle
from typing import Final

from benchmarks import commands, payload
from benchmarks.exchange_steps import LIMITS, MESSAGES
from edge.engine.dispatch.encoding import encode
from edge.engine.dispatch.hooks import new_context
from edge.engine.sessions import sessions
from edge.engine.sessions.sessions import guarded
from edge.engine.store.database import Transaction
from edge.features.accounts.store import accounts
from edge.features.eventlog.store import epochs
from edge.routing.xmpp.router import Router
from edge.xmpp import PROTOCOL
from edge.xmpp.envelopes import EnvelopeParser
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import Stanza

SENDER: Final = 10_000
"""A generation above those of other sessions."""

GROUP: Final = 8
"""Steps whose changes are written together."""

PAIRS: Final = 4 * GROUP
"""Pairs of devices, so that a pair has finished a message before its next one."""

_RECIPIENT: Final = SENDER + PAIRS


class Device:
    """A bound session: its stream, and the stanzas that it received."""

    def __init__(self, router: Router, name: str, generation: int) -> None:
        self.name, self.generation = name, generation
        self.bare = f"{name}@{payload.DOMAIN}"
        self.full = f"{self.bare}/fw"
        self._router = router
        self._parser = StreamParser(LIMITS.stanza_bytes, envelopes=EnvelopeParser())
        self._parser.feed(payload.HEADER)

    def bind(self, tx: Transaction) -> None:
        """Bind the session in the database."""
        accounts.add(tx, self.name, [], trusted=True)
        sessions.bind(tx, self.generation, self.name, self.bare, self.full)

    def do(self, tx: Transaction, data: bytes) -> bytes:
        """Process a stanza from this device, and write what it changes; return the answer."""
        answer = self.process(tx, data)
        tx.write()
        return answer

    def process(self, tx: Transaction, data: bytes, *, acknowledged: bool = False) -> bytes:
        """Process a stanza from this device; return the answer.

        `acknowledged` is whether the device's stream acknowledges it (XEP-0198).
        """
        (item,) = self._parser.feed(data)
        if not isinstance(item, Stanza):
            raise TypeError(f"the parser returned {item!r} instead of a stanza")
        if acknowledged:
            item.acknowledged = True
        work = self._router.route(item, self.full)
        if not callable(work):
            raise TypeError(f"the router returned {work!r} instead of a unit of work")
        return guarded(work, self.generation)(tx)


class _Pair:
    """A device that sends messages, and the one that receives them."""

    def __init__(self, tx: Transaction, router: Router, number: int) -> None:
        context = router.context
        self.sender = Device(router, f"sender{number}", SENDER + number)
        self.recipient = Device(router, f"recipient{number}", _RECIPIENT + number)
        for device in (self.sender, self.recipient):
            device.bind(tx)
        self.recipient.do(tx, commands.PRESENCE)
        to = self.recipient.name.encode()
        self._messages = cycle([_message(to, number, count) for count in range(MESSAGES)])
        for request in self.next_message():
            self.sender.do(tx, request)
        while sends := tx.take_sends():  # a query for the recipient's features, and the message
            for send in sends:
                stanza = encode(context, PROTOCOL, send.message)
                if stanza.startswith(b"<iq"):
                    self.recipient.do(tx, commands.answer(stanza))

    def next_message(self) -> tuple[bytes, bytes]:
        """Return the offer and the release of the next message."""
        return next(self._messages)


class RelayedMessages:
    """Pairs of devices, of which one sends to the other."""

    def __init__(self, tx: Transaction) -> None:
        epochs.begin(tx, epochs.CREATED)
        router = Router(new_context(payload.DOMAIN, LIMITS))
        self._context = router.context
        self._pairs = [_Pair(tx, router, number) for number in range(PAIRS)]
        self._numbers = count()
        self._releases: deque[bytes] = deque()
        self._received: dict[int, bytes] = {}

    def relay(self, tx: Transaction) -> int:
        """Offer one message, and process the next stanza of three earlier ones.

        Return the number of stanzas that recipients received.
        """
        number = next(self._numbers)
        if number % GROUP == 0:
            tx.run_before_commit()
        offer, release = self._pairs[number % PAIRS].next_message()
        self._releases.append(release)
        self._request(tx, number, offer)
        if number >= GROUP:
            self._request(tx, number - GROUP, self._releases.popleft())
        return self._answer(tx, number - 2 * GROUP) + self._answer(tx, number - 3 * GROUP)

    def _request(self, tx: Transaction, number: int, stanza: bytes) -> None:
        """Process a stanza from the sender of a message."""
        answer = self._pairs[number % PAIRS].sender.process(tx, stanza)
        if b"type='result'" not in answer:
            raise RuntimeError(f"the gateway did not accept a message: {answer!r}")
        self._receive(tx)

    def _answer(self, tx: Transaction, number: int) -> int:
        """Answer what the recipient of a message received last, if anything."""
        recipient = self._pairs[number % PAIRS].recipient
        stanza = self._received.pop(recipient.generation, None)
        if stanza is None:
            return 0
        recipient.process(tx, commands.quick_answer(stanza))
        self._receive(tx)
        return 1

    def _receive(self, tx: Transaction) -> None:
        for send in tx.take_sends():
            self._received[send.generation] = encode(self._context, PROTOCOL, send.message)


def _message(to: bytes, pair: int, count: int) -> tuple[bytes, bytes]:
    key = payload.msg_id(0, pair, count)
    return commands.assured(b"a%d" % count, to, key), commands.deliver(b"d%d" % count, to, key)
