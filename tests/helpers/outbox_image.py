"""Compare the images of the outbox, of rows in flight, and of sessions with their rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from typing import Any, TypeVar

from edge.engine.sessions import sessions
from edge.engine.store import in_flight
from edge.engine.store.database import MessageBytes, NeedsDatabase, Transaction
from edge.features.accounts.store import accounts
from edge.features.outbox.store import image, outbox
from tests.helpers.store import Gateway

T = TypeVar("T")

_BODIES = "SELECT id, body, kind, content_type FROM outbox_bodies ORDER BY id"


def images_equal_rows(tx: Transaction) -> None:
    """Assert that the images of a transaction equal their rows.

    The images are kept; their pending changes are written.
    """
    tx.write()
    fresh = Transaction(tx._connection, tx.now)
    found, expected = outbox._image(tx), outbox._image(fresh)
    assert content(found) == content(expected)
    assert found.last_row >= expected.last_row
    bodies = {row: body for row, (body, _size) in found.bodies.kept.items()}
    stored = {row: MessageBytes(*values) for row, *values in tx.rows(_BODIES)}
    assert bodies.items() <= stored.items()
    assert list(stored) == sorted(found.rows)
    size = sum(len(content.body) for content in bodies.values())
    assert found.bodies.bytes == size <= image.BODY_BYTES
    assert found.since.first() == min((row.since for row in found.rows.values()), default=None)
    due = [row.due for row in found.rows.values() if row.due is not None]
    assert found.due.first() == min(due, default=None)
    assert in_flight_content(tx) == in_flight_content(fresh)
    for bare in tx.cache.get("sessions", ()):
        assert sessions.of_account(tx, bare) == sessions.of_account(fresh, bare)
    for name in tx.cache.get("accounts", ()):
        assert accounts.status(tx, name) == accounts.status(fresh, name)


def in_flight_content(tx: Transaction) -> tuple[Any, Any]:
    in_flight.load(tx)
    found = tx.cache[in_flight._IMAGE]
    return found.generations, found.sessions


def content(found: image.OutboxImage) -> dict[str, Any]:
    return {
        "rows": found.rows,
        "orphans": found.orphans & found.rows.keys(),
        "total": (found.messages, found.bytes),
        "sources": {name: (one.rows, one.bytes) for name, one in found.sources.items()},
        "accounts": {
            name: (one.sent, one.queued, one.rows, one.bytes, one.sources)
            for name, one in found.accounts.items()
            if one.rows
        },
    }


class DryRunGateway(Gateway):
    """A gateway that first runs each unit in memory and undoes it; that must change nothing."""

    def commit(self, unit: Callable[[Transaction], T]) -> T:
        """Run a unit in its own transaction after a dry run, and compare images and rows."""
        outcome = super().commit(self.with_dry_run(unit))
        if not self.connection.in_transaction:
            images_equal_rows(Transaction(self.connection, self.clock(), self.cache))
        return outcome

    def with_dry_run(self, unit: Callable[[Transaction], T]) -> Callable[[Transaction], T]:

        def run(tx: Transaction) -> T:
            before = deepcopy(_contents(self.cache))
            dry_run = Transaction(None, tx.now, self.cache)
            with suppress(NeedsDatabase):
                unit(dry_run)
            dry_run.undo()
            assert _contents(self.cache) == before
            return unit(tx)

        return run


def _contents(cache: dict[str, Any]) -> list[object]:
    found, sent = cache.get("outbox"), cache.get("in flight")
    return [found and content(found), sent and (sent.rows, sent.generations, sent.sessions)]
