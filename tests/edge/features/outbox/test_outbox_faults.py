"""Faults and abuse around messages in the outbox: lost sessions, forged answers, full stores."""

from __future__ import annotations

from itertools import product

import pytest

from edge.features.accounts.store import accounts
from edge.features.discovery import store
from tests.helpers.people import PUMP, UNTRUSTED, VALVE, VALVE_BARE
from tests.helpers.qos_devices import (
    CAM,
    Build,
    DeviceRequest,
    bind_eligible,
    empty_result,
    received_result,
    send_to_valve,
    states,
    take_requests,
)
from tests.helpers.qos_devices import error_result as refused
from tests.helpers.store import DOMAIN, EPOCH, QOS, STANZAS, Gateway

OTHER = "valve@gw.example/spare"
INFO = "http://jabber.org/protocol/disco#info"


def announce(gateway: Gateway, full: str, ver: str) -> None:
    """Broadcast presence that announces capabilities."""
    caps = f"hash='sha-1' node='https://fw.example' ver='{ver}'"
    gateway.send(full, f"<presence><c xmlns='http://jabber.org/protocol/caps' {caps}/></presence>")


def answer_queries(gateway: Gateway, full: str) -> int:
    """Answer a session's capability queries; return their number."""
    queries = [iq for iq in gateway.elements(full) if iq.find(f"{{{INFO}}}query") is not None]
    for iq in queries:
        query = f"<query xmlns='{INFO}'><feature var='urn:xmpp:qos'/></query>"
        gateway.send(full, f"<iq type='result' id='{iq.get('id')}' to='{DOMAIN}'>{query}</iq>")
    return len(queries)


@pytest.mark.parametrize("queried", [True, False])
def test_releases_wait_for_known_capabilities_and_are_sent_once(
    gateway: Gateway, queried: bool
) -> None:
    """New capabilities between the two steps do not delay a release forever, although another
    session accepts messages.
    """
    gateway.bind(VALVE)
    announce(gateway, VALVE, "first")
    send_to_valve(gateway, "one")
    send_to_valve(gateway, "two", "m2", CAM)
    assert answer_queries(gateway, VALVE) == 1
    offers = take_requests(gateway, VALVE)
    bind_eligible(gateway, OTHER)
    announce(gateway, VALVE, "second")
    for offer in offers:
        gateway.send(VALVE, received_result(offer))
    assert states(gateway) == ["received", "received"]
    if queried:
        answer_queries(gateway, VALVE)
    else:
        gateway.tx(lambda tx: store.add_verified(tx, "sha-1", "third", "urn:xmpp:qos", 8))
        announce(gateway, VALVE, "third")
    assert states(gateway) == ["released", "released"]
    releases = take_requests(gateway, VALVE)
    assert [one.step for one in releases] == ["deliver", "deliver"]
    for release in releases:
        gateway.send(VALVE, empty_result(release))
    assert states(gateway) == []


def test_session_that_drops_qos_is_offered_nothing(gateway: Gateway) -> None:
    gateway.bind(VALVE)
    announce(gateway, VALVE, "first")
    send_to_valve(gateway, "open")
    answer_queries(gateway, VALVE)
    assert len(take_requests(gateway, VALVE)) == 1
    gateway.tx(lambda tx: store.add_verified(tx, "sha-1", "none", "", 8))
    announce(gateway, VALVE, "none")
    send_to_valve(gateway, "behind", "m2", CAM)
    gateway.sends(VALVE)
    gateway.clock.service += gateway.limits.retry_after
    gateway.run_timers()
    assert gateway.sends(VALVE) == []
    bind_eligible(gateway, OTHER)
    assert [one.text for one in take_requests(gateway, OTHER)] == ["open", "behind"]


def test_full_device_that_reconnects_often_uses_no_attempts(gateway: Gateway) -> None:
    """Each retry is immediate, so it must not count as an attempt."""
    send_to_valve(gateway, "open")
    for _ in range(3 * gateway.limits.retry_attempts):
        bind_eligible(gateway, VALVE)
        (offer,) = take_requests(gateway, VALVE)
        gateway.send(VALVE, refused(offer, "wait", "resource-constraint"))
    assert states(gateway) == ["offered"]
    assert gateway.count("SELECT attempts FROM outbox") == 1


@pytest.mark.parametrize("kind", ["a", "d", "k"])
@pytest.mark.usefixtures("offer")
def test_forged_answer_is_ignored(gateway: Gateway, kind: str) -> None:
    bind_eligible(gateway, OTHER)
    forgers, addressees = (PUMP, CAM, UNTRUSTED, OTHER), (PUMP, VALVE, DOMAIN, CAM)
    forged = [*product(forgers, addressees), *product([VALVE], [CAM, DOMAIN, VALVE_BARE])]
    for forger, to in forged:
        attrs = f"id='{EPOCH}-1-{kind}' to='{to}'"
        received = f"<received xmlns='urn:xmpp:qos' msgId='{EPOCH}-1'/>"
        error = f"<error type='cancel'><gone xmlns='{STANZAS}'/></error>"
        gateway.send(forger, f"<iq type='result' {attrs}>{received}</iq>")
        gateway.send(forger, f"<iq type='error' {attrs}>{error}</iq>")
    assert states(gateway) == ["offered"]


@pytest.mark.parametrize(
    "id",
    [
        f"{EPOCH}-0-a",
        f"{EPOCH}-999999999999999999-a",
        f"{EPOCH.lower()}-00000000000000001-a",
        "01JZ0000000000000000000001-1-a",
    ],
)
@pytest.mark.usefixtures("offer")
def test_answer_with_an_old_epoch_or_odd_row_changes_nothing(gateway: Gateway, id: str) -> None:
    gateway.send(VALVE, f"<iq type='result' id='{id}' to='{PUMP}'/>")
    assert states(gateway) == ["offered"]


def test_message_that_ends_its_sessions_fails_and_the_next_is_delivered(build: Build) -> None:
    gateway = build(retry_attempts=3)
    send_to_valve(gateway, "poison")
    send_to_valve(gateway, "good", "m2", CAM)
    losses = 0
    while len(states(gateway)) == 2:
        bind_eligible(gateway, VALVE)
        gateway.end(VALVE)
        losses += 1
        assert losses <= 30
    assert losses == 30
    (event,) = gateway.events("system", "dead")
    assert event.text == "30 sessions ended without an answer"
    bind_eligible(gateway, VALVE)
    assert [one.text for one in take_requests(gateway, VALVE)] == ["good"]


@pytest.mark.parametrize("plain", [False, True])
def test_release_or_plain_message_that_ends_sessions_is_in_doubt(build: Build, plain: bool) -> None:
    gateway = build(retry_attempts=2)
    if plain:
        gateway.count("UPDATE accounts SET downgrade = 1 WHERE name = 'valve' RETURNING 1")
    send_to_valve(gateway, "open")
    bind_eligible(gateway, VALVE, "" if plain else QOS)
    if not plain:
        gateway.send(VALVE, received_result(take_requests(gateway, VALVE)[0]))
    for _ in range(20):
        gateway.end(VALVE)
        bind_eligible(gateway, VALVE, "" if plain else QOS)
    found = gateway.connection.execute("SELECT state, session FROM dead").fetchall()
    assert found == [("in doubt", None if plain else VALVE)]


def test_revoked_device_gets_nothing_until_it_is_restored(
    gateway: Gateway, offer: DeviceRequest
) -> None:
    """Its session ends within seconds; its messages wait because it may be restored."""
    for number in (1, 2):
        send_to_valve(gateway, f"{number}", f"m{number}b")
    gateway.tx(lambda tx: accounts.revoke(tx, "valve"))
    gateway.send(VALVE, received_result(offer))
    assert [one.text for one in take_requests(gateway, VALVE) if one.text] == []
    gateway.end(VALVE)
    gateway.tx(lambda tx: accounts.restore(tx, "valve"))
    bind_eligible(gateway, VALVE)
    assert [one.text for one in take_requests(gateway, VALVE) if one.text] == ["1"]


def test_messages_of_a_removed_device_are_delivered_and_their_failure_is_harmless(
    gateway: Gateway,
) -> None:
    send_to_valve(gateway, "open")
    gateway.end(PUMP)
    gateway.tx(lambda tx: accounts.remove(tx, "pump1"))
    bind_eligible(gateway, VALVE)
    (offer,) = take_requests(gateway, VALVE)
    gateway.send(VALVE, refused(offer, "cancel", "not-acceptable"))
    assert states(gateway) == []
    assert gateway.count("SELECT count(*) FROM offline") == 0
    assert gateway.events("system", "dead")


def test_failing_senders_do_not_use_up_the_report_quota_of_others(build: Build) -> None:
    gateway = build(offline_messages_per_source=4, offline_messages=100)
    for number in range(8):
        send_to_valve(gateway, "bad", f"m{number}")
    gateway.end(PUMP)
    send_to_valve(gateway, "good", "m", CAM)
    gateway.end(CAM)
    gateway.clock.service += gateway.limits.outbox_ttl + 1
    gateway.run_timers()
    assert states(gateway) == []
    query = "SELECT count(*) FROM offline JOIN accounts AS a ON a.id = account WHERE a.name = 'cam'"
    assert gateway.count(query) == 1
