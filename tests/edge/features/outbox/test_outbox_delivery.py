"""Delivery from the outbox: the exchange, the choice of a session, order, retries and failures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from edge.config.options import Xmpp
from edge.features.accounts.store import accounts
from edge.features.eventlog.store import epochs
from edge.features.outbox.store import dead_letters, outbox
from edge.features.outbox.store.dead_letters import StoredDeadLetter
from edge.xmpp.namespaces import QOS_ALL
from tests.helpers.people import PUMP, UNTRUSTED, VALVE, VALVE_BARE, add_contact
from tests.helpers.qos_devices import (
    CAM,
    CLIENT,
    Build,
    DeviceRequest,
    bind_eligible,
    empty_result,
    error_result,
    make_eligible,
    message_xml,
    received_result,
    send_to_valve,
    states,
    take_requests,
)
from tests.helpers.store import (
    DOMAIN,
    EPOCH,
    QOS,
    STANZAS,
    Gateway,
    MakeGateway,
    acknowledged,
    assured,
    deliver,
    read_element,
)

OTHER = "valve@gw.example/spare"


def reports(gateway: Gateway, full: str = PUMP) -> list[tuple[str, str, str, str]]:
    """Return a sender's failure reports: element, msgId, error type and condition."""
    found = []
    for stanza in gateway.elements(full):
        assert (stanza.tag, stanza.get("type")) == (f"{CLIENT}message", "error")
        assert (stanza.get("from"), stanza.get("to")) == (VALVE_BARE, full)
        step, error = stanza[0], stanza[1]
        name, condition = step.tag.removeprefix(f"{{{QOS}}}"), error[0].tag
        type_ = error.get("type", "")
        found.append((name, step.get("msgId", ""), type_, condition.removeprefix(f"{{{STANZAS}}}")))
    return found


def list_dead(gateway: Gateway) -> list[StoredDeadLetter]:
    return gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 10))


def allow_downgrade(gateway: Gateway) -> None:
    gateway.count("UPDATE accounts SET downgrade = 1 WHERE name = 'valve' RETURNING 1")


def remove_valve(gateway: Gateway) -> None:
    gateway.count("DELETE FROM accounts WHERE name = 'valve' RETURNING 1")


@pytest.mark.parametrize("namespace", QOS_ALL)
def test_assured_message_takes_two_steps(gateway: Gateway, namespace: str) -> None:
    bind_eligible(gateway, VALVE, namespace)
    forged = "<message to='other@gw.example' from='forged@gw.example' "
    message = message_xml("open").replace("<message ", forged)
    for xml in (assured("m1", message, VALVE_BARE), deliver("m1", VALVE_BARE)):
        assert gateway.ask(PUMP, xml).type == "result"
    (offer,) = take_requests(gateway, VALVE)
    assert offer[:6] == (f"{EPOCH}-1-a", PUMP, VALVE, "assured", namespace, f"{EPOCH}-1")
    assert offer.message is not None
    assert offer.message.attrib == {"from": PUMP, "to": VALVE_BARE}
    assert offer.text == "open"
    assert gateway.send(VALVE, received_result(offer, "jabber:client")) is None
    (release,) = take_requests(gateway, VALVE)
    assert release[:6] == (f"{EPOCH}-1-d", PUMP, VALVE, "deliver", namespace, f"{EPOCH}-1")
    assert states(gateway) == ["released"]
    gateway.send(VALVE, empty_result(release))
    assert states(gateway) == []
    assert gateway.count("SELECT count(*) FROM outbox_bodies") == 0
    assert gateway.count("SELECT count(*) FROM temp.in_flight") == 0
    assert gateway.sends(PUMP) == [], "answers are not relayed to the sender"


@pytest.mark.parametrize("namespace", ["urn:xmpp:qos", "jabber:client"])
def test_acknowledged_message_takes_one_step(gateway: Gateway, namespace: str) -> None:
    bind_eligible(gateway, VALVE)
    message = message_xml("open").replace("jabber:client", namespace)
    reply = gateway.ask(PUMP, acknowledged(message, VALVE_BARE))
    assert (reply.type, reply.payload) == ("result", None)
    (sent,) = take_requests(gateway, VALVE)
    assert sent[:6] == (f"{EPOCH}-1-k", PUMP, VALVE, "acknowledged", QOS, None)
    assert sent.message is not None
    assert sent.message.tag == f"{{{namespace}}}message"
    gateway.send(VALVE, empty_result(sent))
    assert states(gateway) == []


def test_largest_message_is_delivered_in_a_slightly_larger_stanza(gateway: Gateway) -> None:
    """The stanza contains both addresses twice, and they may be long."""
    sender, size = f"pump1@{DOMAIN}/{'r' * 1000}", gateway.limits.stanza_bytes
    gateway.bind(sender)
    bind_eligible(gateway, VALVE)
    send_to_valve(gateway, "x" * (size - 1200), sender=sender)
    (offer,) = gateway.sends(VALVE)
    assert size < len(offer.stanza) < size + 4096


def test_messages_of_a_revoked_account_wait_and_block_no_others(gateway: Gateway) -> None:
    send_to_valve(gateway, "close all")
    send_to_valve(gateway, "open", sender=CAM)
    gateway.tx(lambda tx: accounts.revoke(tx, "pump1"))
    bind_eligible(gateway, VALVE)
    (offer,) = take_requests(gateway, VALVE)
    assert offer.text == "open"
    gateway.tx(lambda tx: accounts.restore(tx, "pump1"))
    gateway.tx(gateway.router.context.run_external_change)
    (offer,) = take_requests(gateway, VALVE)
    assert offer.text == "close all"


def test_next_message_is_offered_when_received_and_released_in_order(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE)
    for number in range(3):
        send_to_valve(gateway, f"{number}", f"m{number}")
    (first,) = take_requests(gateway, VALVE)
    gateway.send(VALVE, received_result(first))
    release, second = take_requests(gateway, VALVE)
    assert (release.step, second.step, second.text) == ("deliver", "assured", "1")
    gateway.send(VALVE, received_result(second))
    (third,) = take_requests(gateway, VALVE)
    assert (third.step, third.text) == ("assured", "2")
    assert states(gateway) == ["released", "received", "offered"]
    gateway.send(VALVE, empty_result(release))
    (next_release,) = take_requests(gateway, VALVE)
    assert next_release.msg_id == second.msg_id


def test_wait_error_holds_back_later_messages_and_is_retried(
    gateway: Gateway, offer: DeviceRequest
) -> None:
    gateway.send(VALVE, error_result(offer, "wait", "resource-constraint"))
    send_to_valve(gateway, "behind", "c", CAM)
    assert take_requests(gateway, VALVE) == []
    assert gateway.due is not None
    gateway.clock.service += gateway.limits.retry_after
    gateway.run_timers()
    again, behind = take_requests(gateway, VALVE)
    assert again == offer._replace(message=again.message)
    assert behind.text == "behind"


def test_offer_without_an_answer_is_retried_and_finally_fails(build: Build) -> None:
    gateway = build(retry_attempts=4)
    bind_eligible(gateway, VALVE)
    send_to_valve(gateway, "open")
    sent, delays = take_requests(gateway, VALVE), []
    while states(gateway):
        assert gateway.due is not None
        delays.append(gateway.due - gateway.clock.service)
        gateway.clock.service = gateway.due
        gateway.run_timers()
        sent += take_requests(gateway, VALVE)
    assert [one.id for one in sent] == [f"{EPOCH}-1-a"] * 4
    assert delays[0] == 15
    assert all(15 <= seconds <= 15 * 2**n for n, seconds in enumerate(delays))
    assert reports(gateway) == [("assured", "m1", "wait", "recipient-unavailable")]
    (event,) = gateway.events("system", "dead")
    assert (event.level, event.source) == ("Error", PUMP)
    assert event.tags == {"msgId": "m1", "destination": VALVE_BARE}


def test_release_without_an_answer_is_in_doubt(build: Build) -> None:
    gateway = build(retry_attempts=2)
    bind_eligible(gateway, VALVE)
    send_to_valve(gateway, "open")
    gateway.send(VALVE, received_result(take_requests(gateway, VALVE)[0]))
    for _ in range(2):
        assert [one.step for one in take_requests(gateway, VALVE)] == ["deliver"]
        gateway.clock.service += 3600
        gateway.run_timers()
    (dead,) = list_dead(gateway)
    assert (dead.state, dead.session, dead.outbox) == ("in doubt", VALVE, 1)
    assert [event.level for event in gateway.events("system", "in_doubt")] == ["Error"]
    (report,) = gateway.elements(PUMP)
    text = report.findtext(f"{CLIENT}error/{{{STANZAS}}}text", "")
    assert text.startswith("in doubt: it may have been delivered")


@pytest.mark.usefixtures("offer")
def test_detached_session_is_not_retried(gateway: Gateway) -> None:
    gateway.detach(VALVE)
    for _ in range(30):
        gateway.clock.service += 3600
        gateway.run_timers()
    assert take_requests(gateway, VALVE) == []
    assert gateway.count("SELECT attempts FROM outbox") == 1
    assert gateway.resume(VALVE)
    assert take_requests(gateway, VALVE) == [], "stream management repeats it"
    assert gateway.due is not None
    assert gateway.due - gateway.clock.service >= gateway.limits.retry_after
    gateway.clock.service = gateway.due
    gateway.run_timers()
    assert [one.step for one in take_requests(gateway, VALVE)] == ["assured"]


def test_lost_session_does_not_count_as_an_attempt(gateway: Gateway) -> None:
    for _ in range(30):
        bind_eligible(gateway, VALVE)
        if not states(gateway):
            send_to_valve(gateway, "open")
        assert [one.id for one in take_requests(gateway, VALVE)] == [f"{EPOCH}-1-a"]
        assert gateway.count("SELECT attempts FROM outbox") == 1
        gateway.end(VALVE)
    assert gateway.count("SELECT attempts FROM outbox") == 0


def test_restart_does_not_count_as_an_attempt(gateway: Gateway, offer: DeviceRequest) -> None:
    gateway.crash()
    gateway.run_timers()
    bind_eligible(gateway, VALVE)
    assert [one.id for one in take_requests(gateway, VALVE)] == [offer.id]
    assert gateway.count("SELECT attempts FROM outbox") == 1
    gateway.send(VALVE, received_result(offer))
    gateway.crash()
    gateway.clock.service += 86400
    gateway.run_timers()
    assert gateway.due is not None
    assert gateway.due > gateway.clock.service, "a timer fires once"
    bind_eligible(gateway, VALVE)
    assert [one.step for one in take_requests(gateway, VALVE)] == ["deliver"]
    assert gateway.count("SELECT attempts FROM outbox") == 1


def test_message_keeps_its_id_in_a_new_epoch(gateway: Gateway, offer: DeviceRequest) -> None:
    following = gateway.tx(lambda tx: epochs.begin(tx, "restored"))
    gateway.send(VALVE, received_result(offer))
    (release,) = take_requests(gateway, VALVE)
    assert (release.id, release.msg_id) == (f"{EPOCH}-1-d", f"{EPOCH}-1")
    gateway.send(VALVE, empty_result(release))
    assert states(gateway) == []
    send_to_valve(gateway, "shut", "m2")
    (offer,) = take_requests(gateway, VALVE)
    assert offer.msg_id == f"{following}-2"


def test_offered_message_goes_to_another_session(gateway: Gateway, offer: DeviceRequest) -> None:
    bind_eligible(gateway, OTHER)
    gateway.end(VALVE)
    (moved,) = take_requests(gateway, OTHER)
    assert (moved.id, moved.to, moved.text) == (offer.id, OTHER, "open")


def test_wait_error_applies_only_to_its_session(gateway: Gateway, offer: DeviceRequest) -> None:
    gateway.send(VALVE, error_result(offer, "wait", "resource-constraint"))
    gateway.end(VALVE)
    bind_eligible(gateway, OTHER)
    assert [one.text for one in take_requests(gateway, OTHER)] == ["open"]


def test_received_message_waits_for_its_session_and_blocks_no_others(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE, priority=5)
    bind_eligible(gateway, OTHER)
    send_to_valve(gateway, "first")
    gateway.send(VALVE, received_result(take_requests(gateway, VALVE)[0]))
    gateway.end(VALVE)
    assert take_requests(gateway, OTHER) == []
    send_to_valve(gateway, "second", "m2")
    assert [one.text for one in take_requests(gateway, OTHER)] == ["second"]
    bind_eligible(gateway, VALVE, priority=5)
    (release,) = take_requests(gateway, VALVE)
    assert (release.step, release.msg_id) == ("deliver", f"{EPOCH}-1")


def test_best_session_with_qos_is_chosen(gateway: Gateway) -> None:
    bind_eligible(gateway, OTHER, qos="", priority=9)
    bind_eligible(gateway, VALVE, priority=1)
    send_to_valve(gateway, "open")
    assert [one.step for one in take_requests(gateway, VALVE)] == ["assured"]
    assert gateway.sends(OTHER) == []


@pytest.mark.parametrize("cause", ["negative", "detached", "not available"])
def test_ineligible_session_gets_nothing(gateway: Gateway, cause: str) -> None:
    gateway.bind(VALVE)
    if cause != "not available":
        make_eligible(gateway, VALVE, priority=-1 if cause == "negative" else 0)
    if cause == "detached":
        gateway.detach(VALVE)
    send_to_valve(gateway, "open")
    assert gateway.sends(VALVE) == []
    assert states(gateway) == ["queued"]


def test_session_without_qos_waits_unless_downgrade_is_allowed(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE, qos="")
    send_to_valve(gateway, "first")
    send_to_valve(gateway, "second", "m2")
    assert gateway.sends(VALVE) == []
    allow_downgrade(gateway)
    gateway.tx(gateway.router.context.run_external_change)
    (send_,) = gateway.sends(VALVE)
    message = read_element(send_.stanza)
    found = message.tag, message.get("from"), message.get("to")
    assert found == (f"{CLIENT}message", PUMP, VALVE_BARE)
    assert message.findtext(f"{CLIENT}body") == "first"
    assert message.find("{urn:xmpp:delay}delay") is not None
    assert states(gateway) == ["plain", "queued"]
    assert send_.receipt is not None
    gateway.acknowledge(VALVE, send_.receipt)
    (second,) = gateway.elements(VALVE)
    assert second.findtext(f"{CLIENT}body") == "second"
    assert states(gateway) == []


def test_unacknowledged_plain_message_is_sent_again(gateway: Gateway) -> None:
    allow_downgrade(gateway)
    bind_eligible(gateway, VALVE, qos="")
    inherited = "<message xmlns='urn:xmpp:qos'><body>open</body></message>"
    gateway.send(PUMP, acknowledged(inherited, VALVE_BARE))
    assert len(gateway.sends(VALVE)) == 1
    gateway.end(VALVE)
    assert states(gateway) == ["plain"]
    bind_eligible(gateway, VALVE)
    (message,) = gateway.elements(VALVE)
    assert message.tag == f"{CLIENT}message", "a plain message stays plain"
    assert message.findtext(f"{CLIENT}body") == "open"
    assert states(gateway) == []


def test_repeated_answer_changes_nothing(gateway: Gateway, offer: DeviceRequest) -> None:
    for _ in range(2):
        gateway.send(VALVE, received_result(offer))
    gateway.send(VALVE, error_result(offer, "cancel", "conflict"))
    assert states(gateway) == ["released"]
    (release,) = take_requests(gateway, VALVE)
    gateway.send(VALVE, error_result(release, "wait", "resource-constraint"))
    gateway.send(VALVE, error_result(release, "cancel", "item-not-found"))
    assert states(gateway) == ["released"], "an error counts only while an answer is expected"
    gateway.send(VALVE, empty_result(release))
    assert states(gateway) == []


def error_xml(type_: str, condition: str) -> str:
    return f"type='error'><error type='{type_}'><{condition} xmlns='{STANZAS}'/></error>"


STUCK = f"<x xmlns='urn:x'/><text xmlns='{STANZAS}'>the valve is stuck</text>"
NOT_RECEIVED = ("cancel", "undefined-condition", "answered the offer without <received/>")


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (error_xml("cancel", "not-allowed"), ("cancel", "not-allowed", "")),
        (error_xml("auth", "forbidden"), ("auth", "forbidden", "")),
        (error_xml("modify", "bad-request"), ("modify", "bad-request", "")),
        ("type='error'>", ("cancel", "undefined-condition", "")),
        (
            f"type='error'><error type='cancel'>{STUCK}</error>",
            ("cancel", "undefined-condition", "the valve is stuck"),
        ),
        ("type='result'>", NOT_RECEIVED),
        ("type='result'><received xmlns='urn:xmpp:qos' msgId='other'/>", NOT_RECEIVED),
        ("type='result'><x/>", NOT_RECEIVED),
    ],
)
def test_final_answer_to_an_offer_fails_it_and_the_next_message_continues(
    gateway: Gateway, offer: DeviceRequest, answer: str, failure: tuple[str, str, str]
) -> None:
    send_to_valve(gateway, "behind", "m2")
    gateway.send(VALVE, f"<iq id='{offer.id}' to='{PUMP}' {answer}</iq>")
    type_, condition, reason = failure
    assert reports(gateway) == [("assured", "m1", type_, condition)]
    (dead,) = list_dead(gateway)
    assert (dead.state, dead.recipient, dead.destination) == ("failed", "valve", VALVE_BARE)
    assert (dead.sender, dead.msg_id, dead.session) == (PUMP, "m1", None)
    assert reason in dead.reason
    assert [one.text for one in take_requests(gateway, VALVE)] == ["behind"]


@pytest.mark.parametrize("sends", [1, 2])
def test_repeated_acknowledged_message_that_fails_is_in_doubt(gateway: Gateway, sends: int) -> None:
    bind_eligible(gateway, VALVE)
    gateway.send(PUMP, acknowledged(message_xml("open"), VALVE_BARE))
    if sends == 2:
        gateway.end(VALVE)
        bind_eligible(gateway, VALVE)
    sent = take_requests(gateway, VALVE)[-1]
    gateway.send(VALVE, error_result(sent, "cancel", "not-allowed"))
    assert [one.state for one in list_dead(gateway)] == ["failed" if sends == 1 else "in doubt"]
    assert reports(gateway) == [("acknowledged", "", "cancel", "not-allowed")]


@pytest.mark.parametrize("absent", [False, True])
def test_expired_message_is_reported_to_its_sender(gateway: Gateway, absent: bool) -> None:
    send_to_valve(gateway, "open")
    if absent:
        gateway.end(PUMP)
    gateway.clock.service += gateway.limits.outbox_ttl
    gateway.run_timers()
    assert states(gateway) == []
    assert [one.state for one in list_dead(gateway)] == ["failed"]
    if absent:
        bind_eligible(gateway, PUMP)
    assert reports(gateway) == [("assured", "m1", "wait", "recipient-unavailable")]


@pytest.mark.parametrize("with_a_session", [True, False])
def test_messages_to_a_removed_account_become_dead_letters(
    gateway: Gateway, with_a_session: bool
) -> None:
    if with_a_session:
        bind_eligible(gateway, VALVE)
    send_to_valve(gateway, "open")
    remove_valve(gateway)
    gateway.tx(gateway.router.context.run_external_change)
    assert states(gateway) == []
    assert reports(gateway) == [("assured", "m1", "cancel", "service-unavailable")]
    assert gateway.count("SELECT reason FROM dead").endswith("the device was removed")


def test_failed_message_is_requeued_as_new(gateway: Gateway, offer: DeviceRequest) -> None:
    gateway.send(VALVE, error_result(offer, "cancel", "not-allowed"))
    assert gateway.tx(lambda tx: dead_letters.requeue(tx, 1, may_repeat=False)) == 2
    gateway.tx(gateway.router.context.run_external_change)
    (again,) = take_requests(gateway, VALVE)
    assert (again.msg_id, again.text, again.sender) == (f"{EPOCH}-2", "open", PUMP)
    assert list_dead(gateway) == []
    assert [event.name for event in gateway.events("system")] == ["dead", "requeued"]


def test_requeued_message_in_doubt_is_only_released(gateway: Gateway, offer: DeviceRequest) -> None:
    gateway.send(VALVE, received_result(offer))
    gateway.send(VALVE, error_result(take_requests(gateway, VALVE)[0], "cancel", "item-not-found"))
    assert [(one.state, one.session) for one in list_dead(gateway)] == [("in doubt", VALVE)]
    assert gateway.tx(lambda tx: dead_letters.requeue(tx, 1, may_repeat=False)) == 1
    gateway.tx(gateway.router.context.run_external_change)
    (release,) = take_requests(gateway, VALVE)
    assert release[:6] == (f"{EPOCH}-1-d", PUMP, VALVE, "deliver", QOS, f"{EPOCH}-1")
    gateway.send(VALVE, empty_result(release))
    assert states(gateway) == []


QOS_REQUESTS = pytest.mark.parametrize(
    "qos_request", [partial(assured, "m1"), acknowledged], ids=["assured", "acknowledged"]
)


@QOS_REQUESTS
def test_answer_reveals_nothing_to_untrusted_senders(
    gateway: Gateway, qos_request: Callable[[str, str], str]
) -> None:
    for to in ("nobody@gw.example", VALVE_BARE):
        reply = gateway.ask(UNTRUSTED, qos_request(message_xml("x"), to))
        assert (reply.error, reply.text) == (("cancel", "not-allowed"), "")
    assert states(gateway) == []
    assert gateway.count("SELECT count(*) FROM held") == 0


def test_roster_contact_may_send_without_trust(gateway: Gateway) -> None:
    add_contact(gateway, "valve", "apart@gw.example")
    bind_eligible(gateway, VALVE)
    send_to_valve(gateway, "open", sender=UNTRUSTED)
    assert [one.sender for one in take_requests(gateway, VALVE)] == [UNTRUSTED]


def test_message_whose_account_was_removed_in_custody_becomes_a_dead_letter(
    gateway: Gateway,
) -> None:
    gateway.send(PUMP, assured("m1", message_xml("open"), VALVE_BARE))
    remove_valve(gateway)
    reply = gateway.ask(PUMP, deliver("m1", VALVE_BARE))
    assert reply.error == ("cancel", "service-unavailable")
    assert [(one.state, one.recipient) for one in list_dead(gateway)] == [("refused", "valve")]


def test_message_with_a_forged_delay_becomes_a_dead_letter(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE)
    delay = "<delay xmlns='urn:xmpp:&#100;elay' from='GW.example' stamp='2020-01-01T00:00:00Z'/>"
    forged = f"<message xmlns='jabber:client'>{delay}</message>"
    assert gateway.ask(PUMP, acknowledged(forged, VALVE_BARE)).type == "result"
    assert gateway.sends(VALVE) == []
    assert "delay" in gateway.count("SELECT reason FROM dead")


def test_account_quota_includes_messages_in_custody(build: Build) -> None:
    gateway = build(outbox_messages_per_account=8)
    for number in range(6):
        send_to_valve(gateway, "x", f"m{number}")
    assert gateway.ask(PUMP, assured("m6", message_xml("x"), VALVE_BARE)).error is None
    reply = gateway.ask(PUMP, assured("m7", message_xml("x"), VALVE_BARE))
    assert reply.error == ("wait", "resource-constraint"), "an eighth is reserved for others"
    assert reply.text == "the limit outbox_messages_per_account = 7 is reached"
    assert gateway.ask(CAM, assured("m0", message_xml("x"), VALVE_BARE)).error is None
    reply = gateway.ask(CAM, acknowledged(message_xml("x"), VALVE_BARE))
    assert reply.text == "the limit outbox_messages_per_account = 8 is reached"
    reply = gateway.ask(PUMP, deliver("m6", VALVE_BARE))
    assert reply.error is None, "the offer was charged already"
    assert gateway.tx(lambda tx: outbox.usage(tx, "valve", "")[1].total.messages) == 8
    names = {event.name for event in gateway.events("system")}
    assert names == {"outbox_messages_per_account"}


def test_source_quota_spans_all_outboxes(build: Build) -> None:
    gateway = build(outbox_messages_per_source=2)
    send_to_valve(gateway, "x", "m0")
    gateway.send(PUMP, assured("m1", message_xml("x"), "cam@gw.example"))
    reply = gateway.ask(PUMP, acknowledged(message_xml("x"), VALVE_BARE))
    assert reply.text == "the limit outbox_messages_per_source = 2 is reached"


@QOS_REQUESTS
def test_component_takes_custody_only_for_itself(
    make_gateway: MakeGateway, qos_request: Callable[[str, str], str]
) -> None:
    gateway = make_gateway(xmpp=Xmpp(trusted_domains=["plant.example"]), accounts=False)
    reply = gateway.ask("user@plant.example/x", qos_request(message_xml("x"), f"valve@{DOMAIN}"))
    assert reply.error == ("cancel", "service-unavailable")


def test_message_fails_after_repeated_wait_errors(build: Build) -> None:
    gateway = build(retry_attempts=3)
    bind_eligible(gateway, VALVE)
    send_to_valve(gateway, "open")
    for _ in range(3):
        (offer,) = take_requests(gateway, VALVE)
        gateway.send(VALVE, error_result(offer, "wait", "resource-constraint"))
        gateway.clock.service += 3600
        gateway.run_timers()
    assert reports(gateway) == [("assured", "m1", "wait", "resource-constraint")]


def test_unfinished_messages_are_limited_in_bytes(build: Build) -> None:
    gateway = build(unacknowledged_bytes=64 * 1024)
    for number in range(9):
        gateway.add(f"s{number}")
        send_to_valve(gateway, "x" * 9000, "m1", f"s{number}@gw.example/fw")
    bind_eligible(gateway, VALVE)
    assert len(take_requests(gateway, VALVE)) == 3


def test_plain_message_without_an_eligible_session_expires_in_doubt(gateway: Gateway) -> None:
    allow_downgrade(gateway)
    bind_eligible(gateway, VALVE, qos="")
    send_to_valve(gateway, "open")
    gateway.end(VALVE)
    gateway.clock.service += gateway.limits.outbox_ttl
    gateway.run_timers()
    assert [(one.state, one.session) for one in list_dead(gateway)] == [("in doubt", None)]
