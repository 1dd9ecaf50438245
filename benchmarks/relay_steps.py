"""The relay as a micro benchmark: a message from device to device, assured on both hops.

All eight stanzas are parsed, routed and processed, without sockets or commits; the recipient
answers at once. What each stanza changes is written to the rows before the next one, as if it were
the only one of its group. A message's id can be reused after its release.
"""

from __future__ import annotations

from itertools import cycle
from typing import Final

from benchmarks import commands, payload
from benchmarks.exchange_steps import LIMITS, MESSAGES
from edge.engine import sessions
from edge.engine.database import Transaction
from edge.engine.router import Router, guarded
from edge.features.accounts.store import accounts
from edge.features.eventlog.store import epochs
from edge.xmpp.envelopes import EnvelopeParser
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import Stanza

SENDER: Final = 10_000
"""A generation above those of other sessions."""


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

    def process(self, tx: Transaction, data: bytes) -> bytes:
        """Process a stanza from this device; return the answer."""
        (item,) = self._parser.feed(data)
        if not isinstance(item, Stanza):
            raise TypeError(f"the parser returned {item!r} instead of a stanza")
        work = self._router.route(item, self.full)
        if not callable(work):
            raise TypeError(f"the router returned {work!r} instead of a unit of work")
        return guarded(work, self.generation)(tx)


class RelayedMessages:
    """Two devices, of which one sends to the other."""

    def __init__(self, tx: Transaction) -> None:
        epochs.begin(tx, epochs.CREATED)
        router = Router(payload.DOMAIN, LIMITS)
        self._from = Device(router, "sender", SENDER)
        self._to = Device(router, "recipient", SENDER + 1)
        for device in (self._from, self._to):
            device.bind(tx)
        self._to.do(tx, commands.PRESENCE)
        self._answer_all(tx)
        to = self._to.name.encode()
        self._messages = cycle([_message(to, count) for count in range(MESSAGES)])
        self.relay(tx)  # the first message makes the gateway query the recipient's features

    def relay(self, tx: Transaction) -> int:
        """Relay one message; return the number of stanzas that the recipient received."""
        offer, release = next(self._messages)
        answers = self._from.do(tx, offer), self._from.do(tx, release)
        if not all(b"type='result'" in answer for answer in answers):
            raise RuntimeError(f"the gateway did not accept a message: {answers!r}")
        return self._answer_all(tx)

    def _answer_all(self, tx: Transaction) -> int:
        """Answer as the recipient until it receives nothing more."""
        count = 0
        while sends := tx.take_sends():
            for send in sends:
                if send.generation == self._to.generation and send.stanza.startswith(b"<iq"):
                    self._to.do(tx, commands.answer(send.stanza))
                    count += 1
        return count


def _message(to: bytes, count: int) -> tuple[bytes, bytes]:
    key = payload.msg_id(0, 0, count)
    return commands.assured(b"a%d" % count, to, key), commands.deliver(b"d%d" % count, to, key)
