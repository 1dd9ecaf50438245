"""Accounts, sessions, and what the gateway remembers of itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge import credentials
from edge.credentials import Credentials
from edge.errors import SetupError
from edge.rules.access import Sender
from edge.store import accounts, custody, events, meta, sessions
from edge.store.database import Transaction
from edge.store.events import NewEvent
from tests.helpers.store import EPOCH, Gateway, digest_of, new_database

PUMP = "pump1@gw.example/fw"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    made = Gateway(new_database(tmp_path))
    yield made
    made.close()


def test_an_account_has_its_keys_by_mechanism(gateway: Gateway) -> None:
    keys = credentials.derive("a password")
    gateway.tx(lambda tx: accounts.add(tx, "pump1", keys, trusted=True))

    def find(tx: Transaction) -> list[Credentials | None]:
        found = [accounts.credentials(tx, "pump1", key.mechanism) for key in keys]
        missing = (("pump1", "PLAIN"), ("pump2", "SCRAM-SHA-256"))
        return [*found, *(accounts.credentials(tx, *names) for names in missing)]

    assert gateway.tx(find) == [*keys, None, None]


def test_a_name_is_provisioned_once(gateway: Gateway) -> None:
    gateway.add("pump1")
    with pytest.raises(SetupError, match="'pump1' exists already"):
        gateway.add("pump1", trusted=False)
    assert gateway.count("SELECT trusted FROM accounts") == 1


def test_the_keys_go_with_their_account(gateway: Gateway) -> None:
    gateway.tx(lambda tx: accounts.add(tx, "pump1", credentials.derive("x"), trusted=True))
    gateway.tx(lambda tx: tx.run("DELETE FROM accounts"))
    assert gateway.count("SELECT count(*) FROM credentials") == 0


@pytest.mark.parametrize("trusted", [True, False])
def test_a_session_tells_who_sends(gateway: Gateway, trusted: bool) -> None:
    gateway.add("pump1", trusted=trusted)
    generation = gateway.bind(PUMP)
    expected = Sender(PUMP, "pump1@gw.example", "pump1", True, trusted, generation)
    assert gateway.tx(lambda tx: sessions.sender(tx, generation)) == expected


def test_a_session_without_an_account_is_nobodys(gateway: Gateway) -> None:
    generation = gateway.bind(PUMP)
    expected = Sender(PUMP, "pump1@gw.example", "pump1", False, False, generation)
    assert gateway.tx(lambda tx: sessions.sender(tx, generation)) == expected


def test_a_new_session_of_the_same_full_jid_replaces_the_old(gateway: Gateway) -> None:
    def bind(generation: int, resource: str) -> int | None:
        full = f"pump1@gw.example/{resource}"
        return gateway.tx(
            lambda tx: gateway.lifecycle.enter(tx, generation, "pump1", "pump1@gw.example", full)
        )

    def there(generation: int) -> bool:
        return gateway.tx(lambda tx: sessions.sender(tx, generation)) is not None

    assert bind(1, "a") is None
    assert bind(2, "b") is None
    assert bind(3, "a") == 1
    assert [there(generation) for generation in (1, 2, 3)] == [False, True, True]
    gateway.tx(lambda tx: sessions.end(tx, 1))  # the old one ends late: it is not the new one
    assert there(3)
    gateway.tx(lambda tx: sessions.end(tx, 3))
    assert not there(3)


def test_sessions_end_with_the_process(gateway: Gateway) -> None:
    generation = gateway.bind(PUMP)
    gateway.crash()
    assert gateway.tx(lambda tx: sessions.sender(tx, generation)) is None


def test_what_the_gateway_remembers(gateway: Gateway) -> None:
    def unit(tx: Transaction) -> None:
        assert meta.read_text(tx, meta.EPOCH) == EPOCH
        assert meta.read_bytes(tx, meta.DECOY) == bytes(32)
        assert meta.read_number(tx, meta.SERVICE) == 0.0
        meta.write(tx, meta.SERVICE, 12.5)
        meta.write(tx, meta.SERVICE, 13.5)
        assert meta.read_number(tx, meta.SERVICE) == 13.5

    gateway.tx(unit)


def test_service_time_is_at_least_that_of_the_newest_row(gateway: Gateway) -> None:
    def service() -> float:
        return gateway.tx(meta.service)

    def hold(tx: Transaction) -> None:
        custody.hold(tx, "a", "a/r", str(tx.now.service), "gw", b"x", digest_of("x"))

    assert service() == 0.0
    gateway.tx(lambda tx: meta.write(tx, meta.SERVICE, 100.0))
    assert service() == 100.0
    gateway.clock.service = 130.0
    gateway.tx(hold)
    assert service() == 130.0
    gateway.clock.service = 150.0
    gateway.tx(lambda tx: events.append(tx, events.LOGS, NewEvent("log")))
    assert service() == 150.0
    gateway.tx(lambda tx: meta.write(tx, meta.SERVICE, 160.0))
    assert service() == 160.0
