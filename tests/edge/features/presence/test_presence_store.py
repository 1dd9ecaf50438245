"""The roster table and the presence columns of sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from edge.engine.store.database import Transaction
from edge.features.presence.rules.subscriptions import FIELDS, SubscriptionState
from edge.features.presence.store import presence, roster
from edge.features.presence.store.presence import ContactPresence
from edge.features.presence.store.roster import RosterItem
from tests.helpers.store import Gateway, MakeGateway

T = TypeVar("T")

PUMP = "pump1@gw.example"
PANEL = "panel@gw.example"
VALVE = "valve@gw.example"
REQUEST = b"<presence type='subscribe'/>"


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    return make_gateway(accounts_of=("pump1", "panel", "valve"))


def with_account(gateway: Gateway, name: str, unit: Callable[[Transaction, int], T]) -> T:
    def run(tx: Transaction) -> T:
        found = roster.account_id(tx, name)
        assert found is not None
        return unit(tx, found)

    return gateway.tx(run)


def save(gateway: Gateway, name: str, contact: RosterItem) -> None:
    with_account(gateway, name, lambda tx, account: roster.save(tx, account, contact))


def add_contact(gateway: Gateway, name: str, jid: str, state: SubscriptionState) -> None:
    save(gateway, name, RosterItem(jid, listed=True, state=state))


@pytest.mark.parametrize("state", SubscriptionState)
@pytest.mark.parametrize(("name", "groups"), [(None, ()), ("Pump 1", ("Plant", 'a "b" é'))])
def test_item_is_read_as_it_was_saved(
    gateway: Gateway, state: SubscriptionState, name: str | None, groups: tuple[str, ...]
) -> None:
    request = REQUEST if FIELDS[state].pending else None
    contact = RosterItem(PUMP, True, state, request, name, groups)
    save(gateway, "panel", RosterItem(PUMP, listed=True))
    save(gateway, "panel", contact)
    assert with_account(gateway, "panel", lambda tx, a: roster.find(tx, a, PUMP)) == contact
    assert with_account(gateway, "panel", roster.list_items) == [contact]


def test_contacts_and_requests_are_counted_separately(gateway: Gateway) -> None:
    add_contact(gateway, "panel", PUMP, SubscriptionState.TO)
    add_contact(gateway, "panel", "x@gw.example", SubscriptionState.NONE)
    save(gateway, "panel", RosterItem(VALVE, False, SubscriptionState.NONE_IN, REQUEST))

    def count(listed: bool) -> int:
        return with_account(gateway, "panel", lambda tx, a: roster.count(tx, a, listed=listed))

    assert (count(True), count(False)) == (2, 1)
    listed = with_account(gateway, "panel", roster.list_items)
    assert [contact.jid for contact in listed] == [PUMP, "x@gw.example"]
    requests = with_account(gateway, "panel", lambda tx, a: roster.pending_requests(tx, a, 9))
    assert requests == [(VALVE, REQUEST)]
    with_account(gateway, "panel", lambda tx, a: roster.remove(tx, a, PUMP))
    assert count(True) == 1


def test_visible_fields_hide_requests_and_unlisted_items() -> None:
    item = RosterItem(PUMP, listed=True)
    assert RosterItem(PUMP).visible_fields is None
    assert RosterItem(PUMP, False, SubscriptionState.NONE_IN, REQUEST).visible_fields is None
    requested = item.with_state(SubscriptionState.NONE_IN, REQUEST)
    assert requested.visible_fields == item.visible_fields
    for changed in (
        item.with_state(SubscriptionState.NONE_OUT, b""),
        item.with_state(SubscriptionState.NONE_APPROVED, b""),
        item._replace(name="P"),
        item._replace(groups=("P",)),
    ):
        assert changed.visible_fields != item.visible_fields


PLAIN_STATES = [
    SubscriptionState.NONE, SubscriptionState.TO, SubscriptionState.FROM, SubscriptionState.BOTH
]  # fmt: skip


@pytest.mark.parametrize("state", PLAIN_STATES)
@pytest.mark.parametrize("reverse", PLAIN_STATES)
def test_contact_presence_has_the_subscription_of_the_contacts_roster(
    gateway: Gateway, state: SubscriptionState, reverse: SubscriptionState
) -> None:
    add_contact(gateway, "panel", PUMP, state)
    add_contact(gateway, "pump1", PANEL, reverse)
    session = gateway.bind(f"{PUMP}/fw")
    gateway.bind(f"{PUMP}/other")
    gateway.tx(lambda tx: presence.set_shown(tx, session, b"<presence/>"))
    found = with_account(
        gateway, "panel", lambda tx, a: presence.contact_presences(tx, a, PANEL, 0, 9, 9)
    )
    expected = ContactPresence(session, b"<presence/>", f"{PUMP}/fw", reverse.value.lower(), True)
    assert found == ([expected] if state in (SubscriptionState.TO, SubscriptionState.BOTH) else [])


def test_queries_for_recipients_scan_no_table(gateway: Gateway) -> None:
    for sql in (presence._AUDIENCE, presence._VISIBLE):
        values = (1,) * sql.count("?")
        plan = gateway.connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
        scans = {step for *_, step in plan if step.startswith("SCAN")}
        assert scans <= {"SCAN page"}, plan
