"""The exchange as a micro benchmark: its steps, without sockets or commits.

A message's id can be reused after its release, so a few alternating messages are enough for any
number of exchanges.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import TypeAlias

from benchmarks import payload
from edge.config.limits import Limits
from edge.engine.dispatch.hooks import new_context
from edge.engine.sessions import sessions
from edge.engine.sessions.sessions import guarded
from edge.engine.store import database
from edge.engine.store.database import Transaction
from edge.engine.store.group_commit import Store, UnitLimits
from edge.engine.time.clock import Clock
from edge.features.accounts.store import accounts
from edge.routing.xmpp.router import Router
from edge.xmpp.envelopes import EnvelopeParser
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import Stanza

LIMITS = Limits(unsealed_events=1_000_000_000)
"""The gateway's defaults, except for the limit of unsealed events: nothing seals them here."""


MESSAGES = 3
"""Messages that alternate. Their number does not divide that of the remembered keys, so that each
remembered key replaces another one, as it does with ids that are never reused."""

Unit: TypeAlias = "Callable[[Transaction], bytes]"
Exchange: TypeAlias = tuple[Unit, Unit]
"""The two units of work of an exchange: hold a message, and deliver it."""


class SensorStream:
    """A client's stream, ready for exchanges."""

    def __init__(self, number: int = 0) -> None:
        self.name = f"sensor{number:04d}"
        self.full = f"{self.name}@{payload.DOMAIN}/fw"
        self._generation = number + 1
        self._parser = StreamParser(LIMITS.stanza_bytes, envelopes=EnvelopeParser())
        self._parser.feed(payload.HEADER)
        self._router = Router(new_context(payload.DOMAIN, LIMITS))
        self._messages = cycle([_message(number, count) for count in range(MESSAGES)])
        self._assured, _deliver = next(self._messages)

    def parse(self) -> Stanza:
        """Parse the assured iq."""
        return self._stanza(self._assured)

    def route(self) -> Unit:
        """Parse the assured iq, find its handler, and decode it into a unit of work."""
        return self._unit(self._assured)

    def units(self) -> Exchange:
        """Return the units of work of the next message's exchange."""
        assured, deliver = next(self._messages)
        return self._unit(assured), self._unit(deliver)

    def exchange(self, tx: Transaction) -> int:
        """Run both halves of the exchange, and return the number of bytes of the answers."""
        hold, release = self.units()
        answers = hold(tx), release(tx)
        if not all(b"type='result'" in answer for answer in answers):
            raise RuntimeError(f"an exchange failed: {answers!r}")
        return len(answers[0]) + len(answers[1])

    def bind_session(self, tx: Transaction) -> None:
        """Bind the session in the database."""
        bare = self.full.partition("/")[0]
        sessions.bind(tx, self._generation, self.name, bare, self.full)

    def _stanza(self, data: bytes) -> Stanza:
        (item,) = self._parser.feed(data)
        if not isinstance(item, Stanza):
            raise TypeError(f"the parser returned {item!r} instead of a stanza")
        return item

    def _unit(self, data: bytes) -> Unit:
        work = self._router.route(self._stanza(data), self.full)
        if not callable(work):
            raise TypeError(f"the router returned {work!r} instead of a unit of work")
        return guarded(work, self._generation)


def _message(number: int, count: int) -> tuple[bytes, bytes]:
    key, tail = payload.msg_id(0, number, count), b"%04x%08x" % (number, count)
    return payload.assured(b"a" + tail, key), payload.deliver(b"d" + tail, key)


@contextmanager
def transaction(subject: SensorStream) -> Iterator[Transaction]:
    """Open a transaction of a new database with the client bound; roll it back at the end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / database.FILE_NAME
        database.create(path)
        connection = database.connect(path)
        connection.execute("BEGIN IMMEDIATE")
        tx = Transaction(connection, Clock(0.0)())
        accounts.add(tx, subject.name, [], trusted=True)
        subject.bind_session(tx)
        yield tx
        connection.execute("ROLLBACK")
        connection.close()


async def open_senders(folder: Path, count: int) -> tuple[Store, list[list[Exchange]]]:
    """Open the store of a gateway's folder with sessions of senders; return their exchanges."""
    bounds = UnitLimits(LIMITS.waiting_units, LIMITS.waiting_bytes)
    store = await Store.open(folder / database.FILE_NAME, Clock(0.0), bounds)
    subjects = [SensorStream(number) for number in range(count)]
    for subject in subjects:
        await store.run(subject.bind_session)
    return store, [[subject.units() for _ in range(MESSAGES)] for subject in subjects]
