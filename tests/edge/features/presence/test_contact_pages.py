"""Pages of contacts' presence that a session gets after its initial presence."""

from __future__ import annotations

import pytest

from edge.config.limits import Limits
from edge.engine.store.database import Receipt
from edge.features.accounts.store import accounts
from edge.features.presence.store import presence
from tests.helpers.rosters import received_lines, send_initial_presence, subscribe_mutually
from tests.helpers.store import Gateway, MakeGateway, read_element

PANEL = "panel@gw.example/screen"
PUMPS = tuple(f"pump{number}@gw.example/fw" for number in range(1, 8))
LIMITS = Limits(unacknowledged_stanzas=24, unacknowledged_bytes=64 * 1024)
PAGE = 3
"""An eighth of the limit of unacknowledged stanzas."""


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    gateway = make_gateway(LIMITS, accounts_of=("panel", *(f"pump{n}" for n in range(1, 8))))
    for full in PUMPS:
        subscribe_mutually(gateway, PANEL, full)
    return gateway


def take_senders(gateway: Gateway) -> list[str]:
    """Return the senders of the presence that the panel got since the last call; acknowledge it."""
    lines = [line.split(" ") for line in received_lines(gateway, PANEL)]
    return [sender for kind, sender in lines if kind == "available" and sender != PANEL]


def take_last_receipt(gateway: Gateway) -> Receipt:
    """Return the receipt of the panel's last stanza, and discard all of them."""
    receipt = gateway.sends(PANEL)[-1].receipt
    assert receipt is not None
    return receipt


def test_next_page_comes_when_the_previous_is_acknowledged(gateway: Gateway) -> None:
    send_initial_presence(gateway, PUMPS)
    gateway.send(PANEL, "<presence/>")
    pages = [take_senders(gateway) for _ in range(4)]
    assert pages == [list(PUMPS[:3]), list(PUMPS[3:6]), list(PUMPS[6:]), []]
    assert gateway.count("SELECT count(*) FROM temp.in_flight") == 0


def test_single_page_needs_no_acknowledgement(gateway: Gateway) -> None:
    send_initial_presence(gateway, PUMPS[:PAGE])
    gateway.send(PANEL, "<presence/>")
    assert [send.receipt for send in gateway.sends(PANEL)] == [None] * (1 + PAGE)


def test_page_is_limited_in_bytes(gateway: Gateway) -> None:
    send_initial_presence(gateway, PUMPS, f"<status>{'x' * 3900}</status>")
    gateway.send(PANEL, "<presence/>")
    assert [len(take_senders(gateway)) for _ in range(5)] == [2, 2, 2, 1, 0]


def test_oversized_presence_is_a_page_of_its_own(make_gateway: MakeGateway) -> None:
    limits = Limits(unacknowledged_bytes=64 * 1024, presence_bytes=16 * 1024)
    gateway = make_gateway(limits, accounts_of=("panel", "pump1", "pump2"))
    for full in PUMPS[:2]:
        subscribe_mutually(gateway, PANEL, full)
    send_initial_presence(gateway, PUMPS[:2], f"<status>{'x' * 12_000}</status>")
    gateway.send(PANEL, "<presence/>")
    assert [take_senders(gateway) for _ in range(3)] == [[PUMPS[0]], [PUMPS[1]], []]


def test_changes_between_pages_are_broadcast(gateway: Gateway) -> None:
    send_initial_presence(gateway, PUMPS[:5])
    gateway.send(PANEL, "<presence/>")
    receipt = take_last_receipt(gateway)
    gateway.send(PUMPS[4], "<presence type='unavailable'/>")
    gateway.send(PUMPS[6], "<presence/>")
    assert received_lines(gateway, PANEL) == [f"unavailable {PUMPS[4]}", f"available {PUMPS[6]}"]
    gateway.acknowledge(PANEL, receipt)
    assert take_senders(gateway) == [PUMPS[3], PUMPS[6]]


def test_pages_end_with_availability_and_restart_with_it(gateway: Gateway) -> None:
    send_initial_presence(gateway, PUMPS)
    gateway.send(PANEL, "<presence/>")
    first = take_last_receipt(gateway)
    assert first == (presence.RECEIPT, gateway.generation(PUMPS[PAGE - 1]))
    gateway.send(PANEL, "<presence type='unavailable'/>")
    gateway.sent.clear()
    gateway.acknowledge(PANEL, first)
    assert gateway.sent == []
    for _ in range(2):
        gateway.send(PANEL, "<presence type='unavailable'/>")
        gateway.send(PANEL, "<presence/>")
    second = take_last_receipt(gateway)
    gateway.acknowledge(PANEL, first, second)
    assert take_senders(gateway) == list(PUMPS[3:6])


def test_removed_account_gets_no_further_pages(gateway: Gateway) -> None:
    send_initial_presence(gateway, PUMPS)
    gateway.send(PANEL, "<presence/>")
    gateway.tx(lambda tx: accounts.remove(tx, "panel"))
    assert take_senders(gateway) == list(PUMPS[:PAGE])
    assert take_senders(gateway) == []


def test_pages_of_an_ended_session_are_dropped(gateway: Gateway) -> None:
    send_initial_presence(gateway, PUMPS)
    gateway.send(PANEL, "<presence/>")
    gateway.sent.clear()
    gateway.end(PANEL)
    assert gateway.count("SELECT count(*) FROM temp.in_flight") == 0
    types = [read_element(send.stanza).get("type") for send in gateway.sent]
    assert types == ["unavailable"] * len(PUMPS)
