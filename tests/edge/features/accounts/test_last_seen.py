"""When an account had its last session."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from edge.config.limits import Limits
from edge.engine import database
from edge.engine.database import Transaction
from edge.engine.router import Router
from edge.engine.service_time import Now
from edge.engine.session_lifecycle import SessionLifecycle
from edge.features.accounts.store import accounts, last_seen
from edge.ops import device_status
from tests.helpers.store import new_database

NAME = "pump1"
BARE = f"{NAME}@gw.example"


def seen(tx: Transaction) -> int | None:
    (device,) = device_status.read_devices(tx, "gw.example", tx.now.wall)
    return device.seen


def test_last_session_is_known_after_an_end_and_after_a_crash(tmp_path: Path) -> None:
    path = new_database(tmp_path)
    lifecycle = SessionLifecycle(Router("gw.example", Limits()).context)
    with closing(database.connect(path)) as connection:

        def at(wall: int, *heartbeat: bool) -> Transaction:
            """Begin a transaction at a time, perhaps that of a heartbeat."""
            if connection.in_transaction:
                connection.execute("COMMIT")
            connection.execute("BEGIN")
            tx = Transaction(connection, Now(wall / 1000, wall, True))
            if heartbeat:
                last_seen.save(tx)
            return tx

        accounts.add(at(1_000), NAME, (), trusted=True)
        assert seen(at(1_500)) is None
        lifecycle.bind(at(2_000), 1, NAME, BARE, f"{BARE}/one")
        lifecycle.bind(at(3_000), 2, NAME, BARE, f"{BARE}/two")
        assert seen(at(4_000, True)) == 4_000
        lifecycle.end(at(5_000), 1, [])
        assert seen(at(6_000, True)) == 6_000
        lifecycle.end(at(7_000), 2, [])
        assert seen(at(8_000, True)) == 7_000
        lifecycle.bind(at(9_000), 3, NAME, BARE, f"{BARE}/one")
        at(10_000, True)
        at(11_000)
    with closing(database.connect(path)) as connection:
        tx = Transaction(connection, Now(20.0, 20_000, True))
        last_seen.settle(tx)
        assert seen(tx) == 10_000
