"""Subscription stanzas between two accounts, and the presence that follows."""

from __future__ import annotations

import pytest

from edge.config.limits import Limits
from edge.features.accounts.store import accounts
from edge.features.presence.rules.subscriptions import SubscriptionState
from tests.helpers.rosters import (
    PANEL,
    PANEL_DESK,
    PUMP,
    UNTRUSTED,
    bare,
    discard_sent,
    received_lines,
    request_roster,
    send_initial_presence,
    send_presence,
    send_refused,
    state_of,
    subscribe_mutually,
)
from tests.helpers.store import DOMAIN, Gateway, MakeGateway


def test_approved_request_is_followed_by_presence(gateway: Gateway) -> None:
    send_initial_presence(gateway, (PUMP, PANEL, PANEL_DESK))
    xml = f"<presence type='subscribe' id='s' to='{PANEL}'><status>Please</status></presence>"
    assert gateway.send(PUMP, xml) is None
    assert received_lines(gateway, PUMP) == [f"push {bare(PANEL)} none ask"]
    (found,) = gateway.elements(PANEL)
    assert (found.get("from"), found.get("to"), found.get("id")) == (bare(PUMP), bare(PANEL), "s")
    assert found[0].text == "Please"
    assert received_lines(gateway, PANEL_DESK) == [f"subscribe {bare(PUMP)}"]
    send_presence(gateway, PANEL_DESK, "subscribed", bare(PUMP))
    for full in (PANEL, PANEL_DESK):
        assert received_lines(gateway, full) == [f"push {bare(PUMP)} from"]
    replies = [f"subscribed {bare(PANEL)}", f"push {bare(PANEL)} to"]
    presences = [f"available {PANEL_DESK}", f"available {PANEL}"]
    assert received_lines(gateway, PUMP) == [*replies, *presences]


def test_request_is_pending_until_answered(gateway: Gateway) -> None:
    attrs = f"type='subscribe' to='{bare(PANEL)}'"
    for text in ("first", "second"):
        gateway.send(PUMP, f"<presence {attrs}><status>{text}</status></presence>")
    for full in (PANEL, PANEL_DESK):
        gateway.send(full, "<presence/>")
        requests = [e for e in gateway.elements(full) if e.get("type") == "subscribe"]
        assert [request[0].text for request in requests] == ["first"]
    assert request_roster(gateway, PANEL) == []
    send_presence(gateway, PANEL, "unsubscribed", bare(PUMP))
    assert_unsubscribed(gateway)
    gateway.send(PANEL, "<presence type='unavailable'/>")
    discard_sent(gateway)
    gateway.send(PANEL, "<presence/>")
    assert f"subscribe {bare(PUMP)}" not in received_lines(gateway, PANEL)


def assert_unsubscribed(gateway: Gateway) -> None:
    """Assert that the pump and the panel have no subscription, and none is pending."""
    for one, other in ((PUMP, PANEL), (PANEL, PUMP)):
        assert state_of(gateway, one, other) is SubscriptionState.NONE


@pytest.mark.parametrize(
    ("canceller", "kind", "other", "own_lines", "other_lines"),
    [
        (
            *(PANEL, "unsubscribed", PUMP, [f"push {bare(PUMP)} to"]),
            [f"unavailable {PANEL}", f"unsubscribed {bare(PANEL)}", f"push {bare(PANEL)} from"],
        ),
        (
            *(PUMP, "unsubscribe", PANEL, [f"push {bare(PANEL)} from", f"unavailable {PANEL}"]),
            [f"unsubscribe {bare(PUMP)}", f"push {bare(PUMP)} to"],
        ),
    ],
    ids=["by its owner", "by its subscriber"],
)
def test_subscription_is_cancelled(
    gateway: Gateway, canceller: str, kind: str, other: str, own_lines: list[str],
    other_lines: list[str],
) -> None:  # fmt: skip
    subscribe_mutually(gateway, PUMP, PANEL)
    send_initial_presence(gateway, (PUMP, PANEL))
    send_presence(gateway, canceller, kind, bare(other))
    assert received_lines(gateway, canceller) == own_lines
    assert received_lines(gateway, other) == other_lines


def test_pre_approval_answers_the_request(gateway: Gateway) -> None:
    send_initial_presence(gateway, (PUMP, PANEL))
    send_presence(gateway, PANEL, "subscribed", bare(PUMP))
    assert received_lines(gateway, PANEL) == [f"push {bare(PUMP)} none approved"]
    assert received_lines(gateway, PUMP) == []
    send_presence(gateway, PUMP, "subscribe", bare(PANEL))
    assert received_lines(gateway, PANEL) == [f"push {bare(PUMP)} from"]
    assert received_lines(gateway, PUMP) == [
        f"push {bare(PANEL)} none ask",
        f"subscribed {bare(PANEL)}",
        f"push {bare(PANEL)} to",
        f"available {PANEL}",
    ]


def test_stream_advertises_pre_approval(gateway: Gateway) -> None:
    assert b"<sub xmlns='urn:xmpp:features:pre-approval'/>" in gateway.router.stream_features


def test_existing_subscription_is_not_requested_again(gateway: Gateway) -> None:
    subscribe_mutually(gateway, PUMP, PANEL)
    send_initial_presence(gateway, (PUMP, PANEL))
    gateway.connection.execute("DELETE FROM roster WHERE jid = ?", (bare(PANEL),))
    send_presence(gateway, PUMP, "subscribe", bare(PANEL))
    assert received_lines(gateway, PANEL) == []
    replies = [f"subscribed {bare(PANEL)}", f"push {bare(PANEL)} to"]
    assert received_lines(gateway, PUMP)[1:3] == replies


@pytest.mark.parametrize("to", ["nobody@gw.example", DOMAIN])
def test_request_to_an_unknown_account_is_refused(gateway: Gateway, to: str) -> None:
    send_initial_presence(gateway, (PUMP,))
    send_presence(gateway, PUMP, "subscribe", to)
    lines = [f"push {to} none ask", f"unsubscribed {to}", f"push {to} none"]
    assert received_lines(gateway, PUMP) == lines
    for kind in ("subscribed", "unsubscribed", "unsubscribe"):
        send_presence(gateway, PUMP, kind, "nobody@gw.example")
    assert state_of(gateway, PUMP, "nobody@gw.example") is SubscriptionState.NONE


def test_untrusted_device_may_request_only_from_roster_contacts(gateway: Gateway) -> None:
    send_initial_presence(gateway, (UNTRUSTED, PANEL))
    send_presence(gateway, UNTRUSTED, "subscribe", bare(PANEL))
    assert received_lines(gateway, PANEL) == []
    assert received_lines(gateway, UNTRUSTED)[1] == f"unsubscribed {bare(PANEL)}"
    assert [event.name for event in gateway.events()] == ["untrusted"]
    send_presence(gateway, PANEL, "subscribe", bare(UNTRUSTED))
    discard_sent(gateway)
    send_presence(gateway, UNTRUSTED, "subscribe", bare(PANEL))
    assert received_lines(gateway, PANEL) == [f"subscribe {bare(UNTRUSTED)}"]


@pytest.mark.parametrize("name", ["panel", "pump1"])
def test_revoked_account_neither_requests_nor_gets_requests(gateway: Gateway, name: str) -> None:
    send_initial_presence(gateway, (PANEL,))
    gateway.tx(lambda tx: accounts.revoke(tx, name))
    gateway.send(PUMP, f"<presence type='subscribe' to='{bare(PANEL)}'/>")
    assert received_lines(gateway, PANEL) == []
    assert state_of(gateway, PANEL, PUMP) is SubscriptionState.NONE


def test_account_revoked_after_its_request_gets_no_presence(gateway: Gateway) -> None:
    send_initial_presence(gateway, (PUMP, PANEL))
    send_presence(gateway, PUMP, "subscribe", bare(PANEL))
    gateway.tx(lambda tx: accounts.revoke(tx, "pump1"))
    discard_sent(gateway)
    send_presence(gateway, PANEL, "subscribed", bare(PUMP))
    assert f"available {PANEL}" not in received_lines(gateway, PUMP)


def test_full_roster_sends_no_requests(gateway: Gateway) -> None:
    for name in ("a", "b"):
        send_presence(gateway, PUMP, "subscribed", f"{name}@gw.example")
    xml = f"<presence type='{{}}' to='{bare(PANEL)}'/>"
    for kind in ("subscribe", "subscribed"):
        assert send_refused(gateway, PUMP, xml.format(kind)) == "wait/resource-constraint"
    send_presence(gateway, PUMP, "unsubscribe", bare(PANEL))
    assert_unsubscribed(gateway)
    assert {event.name for event in gateway.events()} == {"roster_items"}


def test_pending_requests_are_limited_like_contacts(gateway: Gateway) -> None:
    for name in ("a", "b"):
        gateway.add(name)
        send_presence(gateway, f"{name}@gw.example/x", "subscribe", bare(PANEL))
    xml = f"<presence type='subscribe' to='{bare(PANEL)}'/>"
    assert send_refused(gateway, PUMP, xml) == "wait/resource-constraint"
    assert request_roster(gateway, PUMP) == []
    send_presence(gateway, PANEL, "unsubscribed", "a@gw.example")
    assert gateway.send(PUMP, xml) is None
    assert state_of(gateway, PANEL, PUMP) is SubscriptionState.NONE_IN


@pytest.mark.parametrize(("size", "count"), [(0, 4), (4000, 3)])
def test_pending_requests_are_limited_in_bytes(
    make_gateway: MakeGateway, size: int, count: int
) -> None:
    limits = Limits(unacknowledged_stanzas=16, unacknowledged_bytes=64 * 1024)
    gateway = make_gateway(limits, accounts_of=("panel", *"abcdef"))
    attrs, text = f"type='subscribe' to='{bare(PANEL)}'", "x" * size
    for name in "abcdef":
        xml = f"<presence {attrs}><status>{text}</status></presence>"
        assert gateway.send(f"{name}@gw.example/x", xml) is None
    gateway.bind(PANEL)
    for first in (0, 1):
        gateway.send(PANEL, "<presence/>")
        lines = [line for line in received_lines(gateway, PANEL) if line.startswith("subscribe ")]
        assert lines == [f"subscribe {n}@gw.example" for n in "abcdef"[first : first + count]]
        send_presence(gateway, PANEL, "unsubscribed", "a@gw.example")
        gateway.send(PANEL, "<presence type='unavailable'/>")
