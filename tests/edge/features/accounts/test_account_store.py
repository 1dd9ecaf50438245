"""Accounts, their keys and logins, and the sessions that depend on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from edge import credentials
from edge.credentials import Credentials
from edge.engine.rules import access
from edge.engine.rules.access import Role, Sender
from edge.engine.sessions import sessions
from edge.engine.sessions.session_lifecycle import Bound
from edge.engine.store.database import Transaction
from edge.features.accounts.store import accounts, last_seen
from edge.features.accounts.store.accounts import Account
from edge.features.presence.store import roster
from edge.ops.devices import device_status
from tests.helpers import waiting
from tests.helpers.store import DOMAIN, Gateway, MakeGateway

PUMP = "pump1@gw.example/fw"


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    return make_gateway()


def test_keys_are_found_by_mechanism(gateway: Gateway) -> None:
    keys = credentials.derive("a password")
    gateway.tx(lambda tx: accounts.add(tx, "pump1", keys, trusted=True))

    def find(tx: Transaction) -> list[Credentials | None]:
        found = [accounts.credentials(tx, "pump1", key.mechanism) for key in keys]
        missing = (("pump1", "PLAIN"), ("pump2", "SCRAM-SHA-256"))
        return [*found, *(accounts.credentials(tx, *names) for names in missing)]

    assert gateway.tx(find) == [*keys, None, None]


def keys_of(gateway: Gateway) -> Credentials | None:
    return gateway.tx(lambda tx: accounts.credentials(tx, "pump1", "SCRAM-SHA-256"))


def test_revoked_device_loses_its_password(gateway: Gateway) -> None:
    keys = credentials.derive("x")
    for change in (accounts.is_active, accounts.revoke, accounts.restore):
        assert not gateway.tx(partial(change, name="pump1")), "there is no such account"
    gateway.tx(lambda tx: accounts.add(tx, "pump1", keys, trusted=True))
    assert [gateway.tx(lambda tx: accounts.revoke(tx, "pump1")) for _ in range(2)] == [True, False]
    assert (keys_of(gateway), grant_of(gateway)) == (None, None)
    assert not gateway.tx(lambda tx: accounts.is_active(tx, "pump1"))
    assert not gateway.tx(lambda tx: accounts.set_credentials(tx, "pump1", keys))
    assert [gateway.tx(lambda tx: accounts.restore(tx, "pump1")) for _ in range(2)] == [True, False]
    assert keys_of(gateway) is None
    assert gateway.tx(lambda tx: accounts.is_active(tx, "pump1"))
    assert gateway.tx(lambda tx: accounts.set_credentials(tx, "pump1", keys))
    assert keys_of(gateway) == keys[0]


def test_devices_are_listed_by_name(gateway: Gateway) -> None:
    gateway.add("pump2", trusted=False)
    gateway.tx(lambda tx: accounts.add(tx, "pump1", credentials.derive("x"), trusted=True))
    now = gateway.clock().wall
    gateway.tx(lambda tx: accounts.revoke(tx, "pump2"))
    expected = [
        Account("pump1", True, now, None, True, False, None),
        Account("pump2", False, now, now, False, False, None),
    ]
    assert gateway.tx(accounts.list_all) == expected
    assert gateway.tx(accounts.list_names) == ["pump1", "pump2"]
    assert gateway.tx(lambda tx: accounts.find(tx, "pump1")) == expected[0]
    assert gateway.tx(lambda tx: accounts.find(tx, "pump3")) is None


def grant_of(gateway: Gateway) -> int | None:
    return gateway.tx(lambda tx: accounts.login_grant(tx, "pump1"))


@pytest.mark.parametrize(
    "changes",
    [
        [accounts.revoke, accounts.restore],
        [accounts.invalidate_logins],
        [accounts.remove, partial(accounts.add, credentials=(), trusted=True)],
    ],
    ids=["restored", "withdrawn", "removed and added again"],
)
def test_session_ends_with_its_login_grant(
    gateway: Gateway, changes: list[Callable[..., object]]
) -> None:
    def bind(generation: int) -> None:
        names, grant = ("pump1", "pump1@gw.example", PUMP), grant_of(gateway)
        gateway.tx(lambda tx: sessions.bind(tx, generation, *names, grant))
        assert gateway.tx(sessions.unprovisioned) == []
        assert role_of(gateway, generation) is Role.DEVICE

    gateway.add("pump1")
    bind(7)
    for change in changes:
        gateway.tx(partial(change, name="pump1"))
    assert gateway.tx(sessions.unprovisioned) == [7]
    assert role_of(gateway, 7) is Role.REVOKED
    gateway.tx(lambda tx: sessions.remove(tx, 7))
    bind(8)


def role_of(gateway: Gateway, generation: int) -> Role:
    sender = gateway.tx(lambda tx: sessions.sender(tx, generation))
    assert sender is not None
    return access.role_of(sender)


def test_removed_device_leaves_nothing_to_its_successor(gateway: Gateway) -> None:
    for name in ("pump1", "pump2"):
        gateway.add(name)
    gateway.tx(lambda tx: add_mutual_contacts(tx, "pump1", "pump2@gw.example"))
    gateway.tx(lambda tx: add_mutual_contacts(tx, "pump2", "pump1@gw.example"))
    removed = gateway.tx(lambda tx: accounts.remove(tx, "pump1"))
    assert removed == (1, 0, 0)
    assert gateway.tx(accounts.list_names) == ["pump2"]
    assert gateway.count("SELECT jid FROM roster") == "pump1@gw.example"
    gateway.tx(lambda tx: roster.remove_from_all(tx, "pump1@gw.example"))
    assert gateway.count("SELECT count(*) FROM roster WHERE listed = 1") == 0
    (removed_contact,) = gateway.tx(roster.take_removed)
    assert removed_contact[1:] == ("pump2", "pump1@gw.example")
    assert gateway.count("SELECT count(*) FROM roster") == 0
    assert gateway.count("SELECT count(*) FROM offline") == 1
    assert gateway.count("SELECT messages FROM offline_total") == 1
    assert gateway.tx(lambda tx: accounts.remove(tx, "pump1")).total == 0


def test_messages_pending_for_a_removed_device_are_counted(gateway: Gateway) -> None:
    for name in ("pump1", "pump2"):
        gateway.add(name)
    source = "pump2@gw.example"
    gateway.tx(lambda tx: waiting.store(tx, source, "pump1"))
    for msg_id in ("m1", "m2"):
        gateway.tx(partial(waiting.queue, source=source, msg_id=msg_id, recipient="pump1"))
    for number, recipient in enumerate(("pump1", "pump1", "pump1", "pump2", None)):
        held = partial(waiting.hold, source=source, msg_id=f"h{number}", recipient=recipient)
        gateway.tx(held)
    pending = gateway.tx(lambda tx: accounts.remove(tx, "pump1"))
    assert pending == (1, 2, 3)
    assert pending.total == 6
    orphans = "SELECT count(*) FROM outbox WHERE account IS NULL AND recipient = 'pump1'"
    assert gateway.count(orphans) == 2


def add_mutual_contacts(tx: Transaction, name: str, other: str) -> None:
    tx.run(
        "INSERT INTO roster (account, jid, listed, subscription, ask, approved)"
        " SELECT id, ?, 1, 'both', 0, 0 FROM accounts WHERE name = ?",
        (other, name),
    )
    tx.run(
        "INSERT INTO offline (account, stanza, sender, bytes, since)"
        " SELECT id, x'00', ?, 1, 0.0 FROM accounts WHERE name = ?",
        (other, name),
    )


@pytest.mark.parametrize("change", [accounts.revoke, accounts.restore])
def test_cached_senders_are_forgotten_on_changes(
    gateway: Gateway, change: Callable[[Transaction, str], bool]
) -> None:
    gateway.add("pump1")
    if change is accounts.restore:
        gateway.tx(lambda tx: accounts.revoke(tx, "pump1"))

    def unit(tx: Transaction) -> dict[str, object]:
        tx.cache["senders"] = {1: "somebody"}
        change(tx, "pump1")
        return dict(tx.cache)

    assert gateway.tx(unit) == {}


@pytest.mark.parametrize("trusted", [True, False, None])
def test_session_has_a_sender(gateway: Gateway, trusted: bool | None) -> None:
    if trusted is not None:
        gateway.add("pump1", trusted=trusted)
    generation = gateway.bind(PUMP)
    rights = trusted is not None, bool(trusted)
    expected = Sender(PUMP, "pump1@gw.example", "pump1", *rights, generation)
    assert gateway.tx(lambda tx: sessions.sender(tx, generation)) == expected


def test_new_session_replaces_the_old_one(gateway: Gateway) -> None:
    def bind(generation: int, full: str) -> int | None:
        names = "pump1", "pump1@gw.example", full
        bound = gateway.tx(lambda tx: gateway.lifecycle.bind(tx, generation, *names))
        assert isinstance(bound, Bound)
        return bound.replaced

    def list_existing() -> list[bool]:
        return [gateway.tx(partial(sessions.sender, generation=g)) is not None for g in (1, 2, 3)]

    assert [bind(1, PUMP), bind(2, "pump1@gw.example/b"), bind(3, PUMP)] == [None, None, 1]
    assert list_existing() == [False, True, True]
    gateway.tx(lambda tx: sessions.remove(tx, 1))  # the old session ends late
    assert list_existing() == [False, True, True]
    gateway.tx(lambda tx: sessions.remove(tx, 3))
    assert list_existing() == [False, True, False]


def test_last_session_is_known_after_an_end_and_after_a_crash(gateway: Gateway) -> None:
    def seen_after_heartbeat() -> int | None:
        gateway.clock.service += 10
        gateway.tx(last_seen.save)
        return seen()

    def seen() -> int | None:
        (device,) = gateway.tx(lambda tx: device_status.read_devices(tx, DOMAIN, tx.now.wall))
        return device.seen

    gateway.add("pump1")
    assert seen() is None
    for full in (PUMP, "pump1@gw.example/b"):
        gateway.bind(full)
        assert seen_after_heartbeat() == gateway.clock().wall
    gateway.end(PUMP)
    assert seen_after_heartbeat() == gateway.clock().wall
    gateway.end("pump1@gw.example/b")
    end = gateway.clock().wall
    assert seen_after_heartbeat() == end
    gateway.bind(PUMP)
    last = seen_after_heartbeat()
    gateway.clock.service += 1
    gateway.crash()
    gateway.tx(last_seen.settle)
    assert seen() == last == gateway.clock().wall - 1000


def test_times_that_are_not_stored_yet_are_known(gateway: Gateway) -> None:
    gateway.add("pump1")
    gateway.bind(PUMP)
    gateway.clock.service += 10
    gateway.end(PUMP)
    assert gateway.tx(last_seen.unsaved) == {"pump1": gateway.clock().wall}
    gateway.tx(last_seen.save)
    assert gateway.tx(last_seen.unsaved) == {}
