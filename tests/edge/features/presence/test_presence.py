"""Presence between sessions: broadcast, directed presence, probes, and unavailability."""

from __future__ import annotations

import pytest

from edge.config.options import Xmpp
from edge.features.accounts.store import accounts
from tests.helpers.rosters import (
    PANEL,
    PANEL_DESK,
    PUMP,
    VALVE,
    bare,
    discard_sent,
    received_lines,
    send_initial_presence,
    send_presence,
    send_refused,
    subscribe_mutually,
)
from tests.helpers.store import DOMAIN, Gateway, MakeGateway

UNAVAILABLE = "<presence type='unavailable'/>"
# Broadcast


def test_initial_presence_is_broadcast_to_subscribers_and_itself(gateway: Gateway) -> None:
    subscribe_mutually(gateway, PUMP, PANEL)
    send_initial_presence(gateway, (PANEL, PANEL_DESK, VALVE))
    assert gateway.send(PUMP, "<presence/>") is None
    others = [f"available {PANEL}", f"available {PANEL_DESK}"]
    assert received_lines(gateway, PUMP) == [f"available {PUMP}", *others]
    for full in (PANEL, PANEL_DESK):
        assert received_lines(gateway, full) == [f"available {PUMP}"]
    assert received_lines(gateway, VALVE) == []


def test_presence_arrives_unchanged_with_its_sender(gateway: Gateway) -> None:
    subscribe_mutually(gateway, PUMP, PANEL)
    send_initial_presence(gateway, (PANEL,))
    content = "<show>away</show><status>a &lt; b</status><x xmlns='urn:x'/><priority>5</priority>"
    gateway.send(PUMP, f"<presence id='p' xml:lang='de' from='{PUMP}'>{content}</presence>")
    (stanza,) = gateway.elements(PANEL)
    assert stanza.attrib == {
        "id": "p",
        "from": PUMP,
        "to": bare(PANEL),
        "{http://www.w3.org/XML/1998/namespace}lang": "de",
    }
    names = [child.tag.rpartition("}")[2] for child in stanza]
    assert names == ["show", "status", "x", "priority"]
    assert stanza[1].text == "a < b"


@pytest.mark.parametrize(("before", "after"), [(-1, 0), (0, -1), (1, 5)])
def test_only_initial_presence_is_answered_with_presence_of_contacts(
    gateway: Gateway, before: int, after: int
) -> None:
    subscribe_mutually(gateway, PUMP, PANEL)
    send_initial_presence(gateway, (PANEL, PUMP))
    priority = "<presence><priority>{}</priority></presence>"
    gateway.send(PANEL_DESK, priority.format(before))
    own = f"available {PANEL_DESK}"
    others = [f"available {PANEL}", f"available {PUMP}"]
    assert received_lines(gateway, PANEL_DESK) == [own, *others]
    gateway.send(PANEL_DESK, priority.format(after))
    assert received_lines(gateway, PANEL_DESK) == [own]


def test_unavailable_presence_reaches_all_previous_recipients(gateway: Gateway) -> None:
    subscribe_mutually(gateway, PUMP, PANEL)
    send_initial_presence(gateway, (PANEL, PANEL_DESK, PUMP, VALVE))
    status = "<presence type='unavailable'><status>off</status></presence>"
    assert gateway.send(PUMP, status) is None
    (stanza,) = gateway.elements(PANEL)
    assert (stanza.get("type"), stanza.get("from"), stanza[0].text) == ("unavailable", PUMP, "off")
    for full in (PANEL_DESK, PUMP):
        assert received_lines(gateway, full) == [f"unavailable {PUMP}"]
    assert received_lines(gateway, VALVE) == []
    gateway.send(PUMP, status)
    gateway.end(PUMP)
    assert gateway.sent == []
    gateway.end(PANEL_DESK)
    assert received_lines(gateway, PANEL) == [f"unavailable {PANEL_DESK}"]


def test_detached_session_stays_available(gateway: Gateway) -> None:
    subscribe_mutually(gateway, PUMP, PANEL)
    send_initial_presence(gateway, (PANEL, PUMP))
    gateway.detach(PUMP)
    assert received_lines(gateway, PANEL) == []
    gateway.send(PANEL_DESK, "<presence/>")
    lines = [f"available {full}" for full in (PANEL_DESK, PANEL, PUMP)]
    assert received_lines(gateway, PANEL_DESK) == lines
    assert received_lines(gateway, PUMP) == [f"available {PANEL_DESK}"]


def test_replaced_session_becomes_unavailable_before_the_new_one(gateway: Gateway) -> None:
    subscribe_mutually(gateway, PUMP, PANEL)
    send_initial_presence(gateway, (PANEL, PUMP))
    gateway.bind(PUMP)
    gateway.send(PUMP, "<presence/>")
    assert received_lines(gateway, PANEL) == [f"unavailable {PUMP}", f"available {PUMP}"]


def test_revoked_account_neither_sends_nor_gets_presence(gateway: Gateway) -> None:
    subscribe_mutually(gateway, PUMP, PANEL)
    send_initial_presence(gateway, (PANEL,))
    gateway.tx(lambda tx: accounts.revoke(tx, "pump1"))
    gateway.send(PUMP, "<presence/>")
    assert received_lines(gateway, PANEL) == []
    assert received_lines(gateway, PUMP) == []
    gateway.send(PANEL_DESK, "<presence/>")
    assert received_lines(gateway, PANEL_DESK) == [f"available {PANEL_DESK}", f"available {PANEL}"]
    gateway.end(PUMP)
    assert received_lines(gateway, PANEL) == [f"available {PANEL_DESK}", f"unavailable {PUMP}"]


def test_removed_account_cannot_broadcast_or_probe(gateway: Gateway) -> None:
    subscribe_mutually(gateway, PUMP, PANEL)
    send_initial_presence(gateway, (PANEL,))
    gateway.tx(lambda tx: accounts.remove(tx, "pump1"))
    assert gateway.send(PUMP, "<presence/>") is None
    assert received_lines(gateway, PANEL) == []
    discard_sent(gateway)
    send_presence(gateway, PUMP, "probe", bare(PANEL))
    assert gateway.sent == []


@pytest.mark.parametrize("sends_unavailable", [True, False])
def test_removed_account_becomes_unavailable(gateway: Gateway, sends_unavailable: bool) -> None:
    subscribe_mutually(gateway, PUMP, PANEL)
    send_presence(gateway, VALVE, "subscribe", bare(PUMP))
    send_initial_presence(gateway, (PANEL, PANEL_DESK, VALVE, PUMP))
    gateway.send(PANEL, UNAVAILABLE)
    discard_sent(gateway)
    gateway.tx(lambda tx: accounts.remove(tx, "pump1"))
    if sends_unavailable:
        gateway.send(PUMP, UNAVAILABLE)
    gateway.end(PUMP)
    assert received_lines(gateway, PANEL_DESK) == [f"unavailable {PUMP}"]
    assert received_lines(gateway, PANEL) == received_lines(gateway, VALVE) == []


@pytest.mark.parametrize(
    ("xml", "error"),
    [
        ("<presence><priority>128</priority></presence>", "modify/bad-request"),
        ("<presence><priority>x</priority></presence>", "modify/bad-request"),
        ("<presence><priority><x/></priority></presence>", "modify/bad-request"),
        ("<presence><priority/><priority/></presence>", "modify/bad-request"),
        ("<presence type='here'/>", "modify/bad-request"),
        ("<presence type='here' to='panel@gw.example'/>", "modify/bad-request"),
        ("<presence type='subscribe'/>", "modify/bad-request"),
        ("<presence type='probe'/>", "modify/bad-request"),
        (f"<presence><status>{'x' * 1024}</status></presence>", "modify/not-acceptable"),
        ("<presence to='@gw.example'/>", "modify/jid-malformed"),
        ("<presence to='other.example'/>", "cancel/remote-server-not-found"),
        ("<presence type='subscribe' to='x@other.example'/>", "cancel/remote-server-not-found"),
        ("<presence type='subscribe' to='pump1@gw.example'/>", "cancel/not-allowed"),
        ("<presence to='gw.example/x'/>", "cancel/service-unavailable"),
    ],
)
def test_invalid_presence_is_refused(gateway: Gateway, xml: str, error: str) -> None:
    send_initial_presence(gateway, (PANEL,))
    subscribe_mutually(gateway, PUMP, PANEL)
    assert send_refused(gateway, PUMP, xml) == error
    assert gateway.sent == []
    assert gateway.count("SELECT available FROM temp.sessions WHERE full = ?", PUMP) == 0
    limits = [(event.name, event.source, event.tags) for event in gateway.events()]
    oversized = [("presence_bytes", bare(PUMP), {"limit": "1024"})]
    assert limits == (oversized if "x" * 1024 in xml else [])


def test_refusal_repeats_address_and_id(gateway: Gateway) -> None:
    reply = gateway.ask(PUMP, "<presence id='7' to='x@other.example'/>")
    assert (reply.attrs["id"], reply.attrs["from"]) == ("7", "x@other.example")


@pytest.mark.parametrize(
    "to", ["", f" to='{PANEL}'", " to='@gw.example'", f" to='{bare(PANEL)}'", " to='o.example'"]
)
def test_error_is_never_answered(gateway: Gateway, to: str) -> None:
    for content in ("", "x" * 1024):
        assert gateway.send(PUMP, f"<presence type='error'{to}>{content}</presence>") is None
    assert gateway.events() == []


@pytest.mark.parametrize("type_", ["", " type='unavailable'", " type='probe'", " type='error'"])
def test_presence_to_the_gateway_is_ignored(gateway: Gateway, type_: str) -> None:
    assert gateway.send(PUMP, f"<presence{type_} to='{DOMAIN}'/>") is None
    assert gateway.sent == []


@pytest.mark.parametrize("ends", [True, False], ids=["end", "unavailable"])
@pytest.mark.parametrize("to", [VALVE, bare(VALVE)])
def test_directed_presence_and_its_end_reach_the_target(
    gateway: Gateway, to: str, ends: bool
) -> None:
    send_initial_presence(gateway, (VALVE,))
    assert gateway.send(PUMP, f"<presence to='{to}'><show>chat</show></presence>") is None
    (stanza,) = gateway.elements(VALVE)
    assert (stanza.get("from"), stanza.get("to"), stanza[0].text) == (PUMP, to, "chat")
    gateway.send(PUMP, "<presence/>")
    assert received_lines(gateway, VALVE) == []
    if ends:
        gateway.end(PUMP)
    else:
        gateway.send(PUMP, UNAVAILABLE)
    (stanza,) = gateway.elements(VALVE)
    assert (stanza.get("type"), stanza.get("from"), stanza.get("to")) == ("unavailable", PUMP, to)


def test_directed_presence_is_withdrawn_once(gateway: Gateway) -> None:
    gateway.send(PUMP, f"<presence to='{VALVE}'/>")
    send_presence(gateway, PUMP, "unavailable", VALVE)
    assert received_lines(gateway, VALVE) == [f"available {PUMP}", f"unavailable {PUMP}"]
    send_presence(gateway, PUMP, "unavailable", VALVE)
    gateway.end(PUMP)
    assert received_lines(gateway, VALVE) == []


def test_subscriber_with_directed_presence_gets_one_unavailable(gateway: Gateway) -> None:
    subscribe_mutually(gateway, PUMP, PANEL)
    send_initial_presence(gateway, (PANEL, PUMP))
    gateway.send(PUMP, f"<presence to='{PANEL}'/>")
    gateway.end(PUMP)
    assert received_lines(gateway, PANEL) == [f"available {PUMP}", f"unavailable {PUMP}"]


def test_directed_presence_to_an_absent_target_is_not_stored(gateway: Gateway) -> None:
    for to in ("nobody@gw.example/x", "nobody@gw.example", f"{bare(VALVE)}/other", bare(VALVE)):
        assert gateway.send(PUMP, f"<presence to='{to}'/>") is None
    assert gateway.count("SELECT count(*) FROM temp.directed") == 0
    gateway.send(VALVE, "<presence/>")
    assert received_lines(gateway, VALVE) == [f"available {VALVE}"]


def test_directed_targets_are_limited(gateway: Gateway) -> None:
    for to in (VALVE, PANEL, VALVE):
        assert gateway.send(PUMP, f"<presence to='{to}'/>") is None
    discard_sent(gateway)
    xml = f"<presence to='{PANEL_DESK}'/>"
    assert send_refused(gateway, PUMP, xml) == "wait/resource-constraint"
    assert [event.name for event in gateway.events()] == ["directed_presences"]
    assert gateway.sent == []


def test_directed_presence_reaches_only_reachable_accounts(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(xmpp=Xmpp(trust="roster"), accounts_of=("pump1", "panel"))
    for full in (PUMP, PANEL):
        gateway.bind(full)
    assert gateway.send(PUMP, f"<presence to='{PANEL}'/>") is None
    assert received_lines(gateway, PANEL) == []
    assert [event.name for event in gateway.events()] == ["untrusted"]
    subscribe_mutually(gateway, PUMP, PANEL)
    gateway.send(PUMP, f"<presence to='{PANEL}'/>")
    assert received_lines(gateway, PANEL) == [f"available {PUMP}"]


def test_error_reaches_the_session_that_it_answers(gateway: Gateway) -> None:
    gateway.send(PUMP, f"<presence to='{VALVE}'/>")
    xml = f"<presence type='error' to='{PUMP}'><error type='cancel'/></presence>"
    assert gateway.send(VALVE, xml) is None
    assert received_lines(gateway, PUMP) == [f"error {VALVE}"]


def test_probe_is_answered_for_available_sessions(gateway: Gateway) -> None:
    subscribe_mutually(gateway, PUMP, PANEL)
    send_initial_presence(gateway, (PANEL, PANEL_DESK, PUMP))
    of_panel = [f"available {PANEL_DESK}", f"available {PANEL}"]
    for prober, target, answers in (
        (PUMP, bare(PANEL), of_panel),
        (PUMP, PANEL_DESK, [f"available {PANEL_DESK}"]),
        (PUMP, f"{bare(PANEL)}/x", [f"unavailable {bare(PANEL)}/x"]),
        (PANEL_DESK, bare(PANEL), of_panel),
    ):
        send_presence(gateway, prober, "probe", target)
        assert received_lines(gateway, prober) == answers
    assert received_lines(gateway, PANEL) == []


@pytest.mark.parametrize("to", [bare(VALVE), VALVE, "nobody@gw.example"])
def test_probe_reveals_nothing_without_a_subscription(gateway: Gateway, to: str) -> None:
    send_initial_presence(gateway, (VALVE, PUMP))
    send_presence(gateway, PUMP, "probe", to)
    assert gateway.sent == []


def test_probe_corrects_a_wrong_subscription(gateway: Gateway) -> None:
    subscribe_mutually(gateway, PUMP, PANEL)
    send_initial_presence(gateway, (PUMP,))
    gateway.connection.execute("DELETE FROM roster WHERE jid = ?", (bare(PUMP),))
    send_presence(gateway, PUMP, "probe", bare(PANEL))
    corrected = [f"unsubscribed {bare(PANEL)}", f"push {bare(PANEL)} from"]
    assert received_lines(gateway, PUMP) == corrected


@pytest.mark.parametrize(
    ("priorities", "sent"), [([-1], 0), ([0], 1), ([-1, -2], 0), ([-1, 0], 1), ([5, -1, 5], 1)]
)
def test_offline_messages_come_with_the_first_non_negative_priority(
    gateway: Gateway, priorities: list[int], sent: int
) -> None:
    gateway.send(PUMP, f"<message to='{bare(VALVE)}'><body>hello</body></message>")
    for priority in priorities:
        gateway.send(VALVE, f"<presence><priority>{priority}</priority></presence>")
    names = [element.tag.rpartition("}")[2] for element in gateway.elements(VALVE)]
    assert names.count("message") == sent
