"""Subscriptions: requests, owners, and sessions that end (XEP-0060, 5.6, 6.1 to 6.4 and 8.8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from edge.config.options import Pubsub
from tests.helpers.people import PUMP, UNTRUSTED, VALVE, VALVE_BARE
from tests.helpers.pubsub import (
    FORM,
    NODE,
    OWNER,
    SERVICE,
    affiliate,
    create,
    element,
    form,
    item,
    list_subscriptions,
    notifications,
    options,
    publish,
    reading,
    refusal,
    send_request,
    subid,
    subscribe,
    subscription,
    subscription_events,
    values,
)
from tests.helpers.store import DOMAIN, Gateway, MakeGateway, Reply

BARE: Final = f"pump1@{DOMAIN}"
TWIN: Final = f"{BARE}/twin"
BAD_REQUEST: Final = ("modify", "bad-request", "")
INVALID_JID: Final = ("modify", "bad-request", "invalid-jid")
NOT_SUBSCRIBED: Final = ("cancel", "unexpected-request", "not-subscribed")
TOO_MANY: Final = ("wait", "policy-violation", "too-many-subscriptions")
PLAIN_DEFAULTS: Final = {"deliver": "1", "qos": "0", "expire": ""}


@pytest.fixture
def build(build_empty: MakeGateway) -> MakeGateway:
    """A function that builds a gateway on which the valve owns `NODE`; the pump subscribes."""

    def build(**options: object) -> Gateway:
        gateway = build_empty(**options)
        create(gateway, VALVE, NODE)
        return gateway

    return build


@pytest.fixture
def gateway(build: MakeGateway) -> Gateway:
    return build()


def count_notified(gateway: Gateway, node: str = NODE) -> int:
    """Publish an item; return the number of notifications sent to the pump's session."""
    assert publish(gateway, VALVE, node, item("i", reading(1))).type == "result"
    return len([one for one in notifications(gateway, PUMP) if one.element == "items"])


# Subscribe


@pytest.mark.parametrize("jid", [BARE, PUMP])
def test_a_bare_or_full_jid_subscribes_and_is_notified(gateway: Gateway, jid: str) -> None:
    gateway.send(PUMP, "<presence/>")
    reply = subscribe(gateway, PUMP, NODE, jid)
    attrs = subscription(reply).attrib
    assert (attrs["jid"], attrs["node"], attrs["subscription"]) == (jid, NODE, "subscribed")
    assert subid(reply)
    assert count_notified(gateway) == 1


def test_subscribing_again_returns_and_changes_the_same_subscription(gateway: Gateway) -> None:
    first = subscribe(gateway, PUMP, NODE, qos="2")
    assert values(first.payload)["qos"] == "2"
    again = subscribe(gateway, PUMP, NODE, deliver="false")
    assert values(again.payload) == {"deliver": "0", "qos": "2", "expire": ""}
    assert subid(again) == subid(first)
    assert subid(subscribe(gateway, PUMP, NODE)) == subid(first)
    assert subid(subscribe(gateway, PUMP, NODE, PUMP)) != subid(first)
    assert len(list_subscriptions(gateway, PUMP)) == 2


@pytest.mark.parametrize(
    ("node", "jid", "following", "error"),
    [
        (NODE, VALVE_BARE, "", INVALID_JID),
        (NODE, f"{BARE}/other", "", INVALID_JID),
        (NODE, "@", "", INVALID_JID),
        (NODE, "", "", INVALID_JID),
        (NODE, "pump1@elsewhere.example", "", INVALID_JID),
        (None, BARE, "", ("modify", "bad-request", "nodeid-required")),
        ("x", BARE, "", ("cancel", "item-not-found", "")),
        ("x/#/y", BARE, "", BAD_REQUEST),
        ("$share:a", BARE, "", BAD_REQUEST),
        ("closed", BARE, "", ("cancel", "not-allowed", "closed-node")),
        ("work", BARE, "", ("modify", "not-acceptable", "configuration-required")),
        (NODE, BARE, "<other/>", BAD_REQUEST),
        (NODE, BARE, element("options", node="x"), BAD_REQUEST),
        (NODE, BARE, "<options/><options/>", BAD_REQUEST),
    ],
)
def test_an_invalid_request_changes_nothing(
    gateway: Gateway, node: str | None, jid: str, following: str, error: tuple[str, str, str]
) -> None:
    create(gateway, VALVE, "closed", access_model="whitelist")
    create(gateway, VALVE, "work", queueing="1")
    content = element("subscribe", node=node, jid=jid) + following
    assert refusal(gateway, PUMP, content) == error
    assert list_subscriptions(gateway, PUMP) == []


def test_an_untrusted_account_cannot_subscribe(gateway: Gateway) -> None:
    content = element("subscribe", node=NODE, jid=UNTRUSTED)
    assert refusal(gateway, UNTRUSTED, content) == ("auth", "forbidden", "")


def test_subscriptions_of_each_account_are_limited(build: MakeGateway) -> None:
    gateway = build(subscriptions_per_account=2)
    of_pump = [change(jid, "subscribed") for jid in (BARE, PUMP)]
    of_valve = [change(f"{VALVE_BARE}/{number}", "subscribed") for number in range(3)]
    assert as_owner(gateway, *of_valve).error == TOO_MANY[:2], "an owner subscribes one too many"
    assert as_owner(gateway, *of_pump, *of_valve[:2]).type == "result", "two of each account"
    assert refusal(gateway, PUMP, element("subscribe", node="b/#", jid=BARE)) == TOO_MANY
    assert subscribe(gateway, PUMP, NODE, qos="1").type == "result", "it exists already"
    assert len(list_subscriptions(gateway, PUMP)) == 2
    found = gateway.events(name="subscriptions_per_account")
    assert [(one.kind, one.source) for one in found] == [("limit", VALVE_BARE), ("limit", BARE)]


def test_subscriptions_of_all_accounts_are_limited(build: MakeGateway) -> None:
    gateway = build(subscriptions=2)
    subscribe(gateway, PUMP, NODE)
    of_valve = [change(f"{VALVE_BARE}/{number}", "subscribed") for number in range(2)]
    assert as_owner(gateway, *of_valve).error == TOO_MANY[:2]
    assert as_owner(gateway, of_valve[0]).type == "result"
    assert refusal(gateway, VALVE, element("subscribe", node=NODE, jid=VALVE)) == TOO_MANY


# Filters


def test_a_filter_reaches_only_nodes_that_its_subscriber_may_access(gateway: Gateway) -> None:
    create(gateway, VALVE, "plant/secret", access_model="whitelist")
    subscribe(gateway, PUMP, "#", PUMP)
    for node, affiliation, count in (
        ("plant/secret", "none", 0),
        ("plant/secret", "member", 1),
        ("plant/secret", "none", 0),
        (NODE, "none", 1),
        (NODE, "outcast", 0),
    ):
        affiliate(gateway, VALVE, node, pump1=affiliation)
        assert count_notified(gateway, node) == count
    assert [one["node"] for one in list_subscriptions(gateway, PUMP)] == ["#"]


def test_a_filter_reaches_nodes_that_an_owners_roster_opens(gateway: Gateway) -> None:
    create(gateway, VALVE, "plant/close", access_model="presence")
    subscribe(gateway, PUMP, "plant/#", PUMP)
    assert count_notified(gateway, "plant/close") == 0
    gateway.send(PUMP, f"<presence type='subscribe' to='{VALVE_BARE}'/>")
    gateway.send(VALVE, f"<presence type='subscribed' to='{BARE}'/>")
    assert count_notified(gateway, "plant/close") == 1


def test_filters_and_share_names_are_limited_in_bytes(build: MakeGateway) -> None:
    gateway = build(node_bytes=20)
    assert subscribe(gateway, PUMP, "é" * 9 + "/#").type == "result"
    for node in ("é" * 10 + "/#", "$share:n:" + "é" * 11, "$share:" + "é" * 11 + ":a"):
        reply = subscribe(gateway, PUMP, node)
        assert reply.error == ("modify", "bad-request")
        assert "20 bytes" in reply.text


def test_shares_can_be_disabled(build: MakeGateway) -> None:
    gateway = build(pubsub=Pubsub(shares=False))
    for node in ("$share:n:a/#", "$share/n/a/#", "$share:bad"):
        assert subscribe(gateway, PUMP, node).error == ("cancel", "feature-not-implemented")


# Unsubscribe


@pytest.mark.parametrize("node", [NODE, "plant/#"])
@pytest.mark.parametrize("full", [PUMP, TWIN])
def test_any_own_session_ends_a_subscription(gateway: Gateway, node: str, full: str) -> None:
    found = subid(subscribe(gateway, PUMP, node, PUMP))
    content = element("unsubscribe", node=node, jid=PUMP, subid=found)
    assert send_request(gateway, full, content).type == "result"
    assert count_notified(gateway) == 0
    assert list_subscriptions(gateway, PUMP) == []


@pytest.mark.parametrize(
    ("attrs", "error"),
    [
        ({"node": NODE}, ("modify", "bad-request", "jid-required")),
        ({"jid": BARE}, ("modify", "bad-request", "nodeid-required")),
        ({"node": NODE, "jid": PUMP}, NOT_SUBSCRIBED),
        ({"node": "plant/+", "jid": BARE}, NOT_SUBSCRIBED),
        ({"node": "$share:a:b", "jid": BARE}, NOT_SUBSCRIBED),
        ({"node": NODE, "jid": VALVE_BARE}, ("auth", "forbidden", "")),
        ({"node": "x", "jid": BARE}, ("cancel", "item-not-found", "")),
        ({"node": NODE, "jid": BARE, "subid": "x"}, ("modify", "not-acceptable", "invalid-subid")),
        ({"node": NODE, "jid": "@"}, ("modify", "jid-malformed", "")),
    ],
)
@pytest.mark.parametrize(
    ("name", "type_"), [("unsubscribe", "set"), ("options", "get"), ("options", "set")]
)
def test_a_request_needs_a_subscription_of_the_account(
    gateway: Gateway, name: str, type_: str, attrs: dict[str, str], error: tuple[str, str, str]
) -> None:
    subscribe(gateway, PUMP, NODE)
    subscribe(gateway, VALVE, NODE)
    before = list_subscriptions(gateway, PUMP)
    assert refusal(gateway, PUMP, element(name, "", **attrs), type_) == error
    assert list_subscriptions(gateway, PUMP) == before


# Options


def test_options_are_returned_as_a_form_and_set(gateway: Gateway) -> None:
    found = subid(subscribe(gateway, PUMP, NODE, PUMP))
    attrs = {"node": NODE, "jid": PUMP, "subid": found}
    payload = send_request(gateway, PUMP, element("options", **attrs), "get").content
    assert dict(payload[0].attrib) == attrs
    assert values(payload) == PLAIN_DEFAULTS
    assert len([*payload.iter(f"{{{FORM}}}option")]) == 5
    submitted = form("subscribe_options", {"deliver": "0", "expire": "presence"})
    assert send_request(gateway, PUMP, element("options", submitted, **attrs)).type == "result"
    payload = send_request(gateway, PUMP, element("options", **attrs), "get").content
    assert values(payload) == {"deliver": "0", "qos": "0", "expire": "presence"}


@pytest.mark.parametrize("node", [NODE, "plant/#"])
def test_notifications_are_sent_only_while_deliver_is_set(gateway: Gateway, node: str) -> None:
    subscribe(gateway, PUMP, node, PUMP, deliver="0")
    assert count_notified(gateway) == 0
    subscribe(gateway, PUMP, node, PUMP, deliver="1")
    assert count_notified(gateway) == 1


@pytest.mark.parametrize(
    "content",
    [
        options(qos="3"),
        element("options", form("node_config", {"qos": "1"})),
        "<options><x xmlns='jabber:x:data' type='form'/></options>",
        "<options><y xmlns='urn:y'/></options>",
        element("options", form("subscribe_options", {}) * 2),
        element("options", form("subscribe_options", {"qos": ["1", "2"]})),
        "<options><x xmlns='jabber:x:data' type='submit'><field var='queue_requests'/>"
        "<field var='pubsub#queue_requests'/></x></options>",
    ],
)
def test_invalid_options_are_refused(gateway: Gateway, content: str) -> None:
    invalid = ("modify", "bad-request", "invalid-options")
    assert refusal(gateway, PUMP, element("subscribe", node=NODE, jid=BARE) + content) == invalid
    subscribe(gateway, PUMP, NODE)
    submitted = content.replace("<options>", f"<options node='{NODE}' jid='{BARE}'>")
    assert refusal(gateway, PUMP, submitted) == invalid


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        *((node, PLAIN_DEFAULTS) for node in (None, NODE, "plant/#")),
        (
            "$share:n:plant/#",
            {"queue_requests": "10", "qos": "1", "expire": "", "queue_policy": "least-loaded"},
        ),
        ("work", {"queue_requests": ""}),
    ],
)
def test_default_options(gateway: Gateway, node: str | None, expected: dict[str, str]) -> None:
    create(gateway, VALVE, "work", queueing="1")
    payload = send_request(gateway, PUMP, element("default", node=node), "get").payload
    assert values(payload) == expected


def test_an_account_lists_its_own_subscriptions(gateway: Gateway) -> None:
    for node, jid in ((NODE, BARE), (NODE, PUMP), ("plant/#", BARE), ("$share/n/plant/#", BARE)):
        subscribe(gateway, PUMP, node, jid)
    subscribe(gateway, VALVE, NODE)
    found = [(one["node"], one["jid"]) for one in list_subscriptions(gateway, TWIN)]
    share = "$share:n:plant/#"
    assert found == [(NODE, BARE), (NODE, PUMP), ("plant/#", BARE), (share, BARE)]
    for node, count in ((NODE, 2), ("plant/#", 1), (share, 1), ("x/#", 0)):
        assert len(list_subscriptions(gateway, PUMP, node)) == count
    error = refusal(gateway, PUMP, element("subscriptions", node="x"), "get")
    assert error == ("cancel", "item-not-found", "")


# Owners


def as_owner(gateway: Gateway, *changes: str, node: str = NODE) -> Reply:
    content = element("subscriptions", "".join(changes), node=node)
    return send_request(gateway, VALVE, content, "set" if changes else "get", OWNER)


def change(jid: str, state: str, subid: str | None = None) -> str:
    return element("subscription", jid=jid, subscription=state, subid=subid)


def test_an_owner_lists_the_subscriptions_to_a_node(gateway: Gateway) -> None:
    found = subid(subscribe(gateway, PUMP, NODE))
    subscribe(gateway, PUMP, "plant/#")
    (one,) = as_owner(gateway).content[0]
    assert one.attrib == {"jid": BARE, "subid": found, "subscription": "subscribed"}


def test_an_owner_ends_a_subscription_and_its_subscriber_is_notified(gateway: Gateway) -> None:
    found = subid(subscribe(gateway, PUMP, NODE, PUMP))
    assert as_owner(gateway, change(PUMP, "none", "x")).error == ("modify", "not-acceptable")
    assert as_owner(gateway, change(PUMP, "none", found)).type == "result"
    assert subscription_events(gateway, PUMP) == [(NODE, "none")]
    assert list_subscriptions(gateway, PUMP) == []


def test_an_owner_subscribes_other_accounts_which_are_notified(gateway: Gateway) -> None:
    gateway.bind(PUMP)
    reply = as_owner(gateway, change(PUMP, "subscribed"), change(BARE, "subscribed"))
    assert reply.type == "result"
    assert subscription_events(gateway, PUMP)[0] == (NODE, "subscribed")
    before = list_subscriptions(gateway, PUMP)
    assert [one["jid"] for one in before] == [PUMP, BARE]
    assert as_owner(gateway, change(PUMP, "subscribed")).type == "result"
    assert subscription_events(gateway, PUMP) == []
    assert list_subscriptions(gateway, PUMP) == before


@pytest.mark.parametrize(
    ("node", "jid", "state", "error"),
    [
        (NODE, BARE, "pending", ("modify", "not-acceptable")),
        (NODE, f"nobody@{DOMAIN}", "subscribed", ("modify", "not-acceptable")),
        (NODE, "pump1@elsewhere.example", "subscribed", ("modify", "not-acceptable")),
        (NODE, BARE, "none", ("cancel", "unexpected-request")),
        (NODE, "@", "none", ("modify", "jid-malformed")),
        ("work", BARE, "subscribed", ("modify", "not-acceptable")),
        ("closed", BARE, "subscribed", ("modify", "not-acceptable")),
    ],
)
def test_an_invalid_change_by_an_owner_changes_nothing(
    gateway: Gateway, node: str, jid: str, state: str, error: tuple[str, str]
) -> None:
    create(gateway, VALVE, "work", queueing="1")
    create(gateway, VALVE, "closed", access_model="whitelist")
    first = change(VALVE_BARE, "subscribed") if node != "work" else ""
    assert as_owner(gateway, first, change(jid, state), node=node).error == error
    assert list_subscriptions(gateway, VALVE) == []


def test_a_request_of_an_owner_must_name_a_subscription(gateway: Gateway) -> None:
    content = element("subscriptions", node=NODE)
    assert refusal(gateway, VALVE, content, ns=OWNER) == BAD_REQUEST


@pytest.mark.parametrize(("affiliation", "remains"), [("none", False), ("member", True)])
def test_closing_a_node_ends_subscriptions_of_unaffiliated_accounts(
    gateway: Gateway, affiliation: str, remains: bool
) -> None:
    affiliate(gateway, VALVE, NODE, pump1=affiliation)
    subscribe(gateway, PUMP, NODE, PUMP)
    config = form("node_config", {"access_model": "whitelist"})
    content = element("configure", config, node=NODE)
    assert send_request(gateway, VALVE, content, ns=OWNER).type == "result"
    assert subscription_events(gateway, PUMP) == ([] if remains else [(NODE, "none")])
    assert len(list_subscriptions(gateway, PUMP)) == remains


# Sessions


def become_unavailable(gateway: Gateway, full: str) -> None:
    gateway.send(full, "<presence type='unavailable'/>")


@pytest.mark.parametrize("leave", [become_unavailable, Gateway.end])
def test_subscriptions_bound_to_presence_end_with_the_session(
    gateway: Gateway, leave: Callable[[Gateway, str], None]
) -> None:
    for node, jid in ((NODE, PUMP), ("plant/#", PUMP), ("a/#", BARE)):
        subscribe(gateway, PUMP, node, jid, expire="presence")
    subscribe(gateway, PUMP, NODE, BARE)
    subscribe(gateway, PUMP, "b/#", PUMP)
    gateway.send(PUMP, "<presence/>")
    leave(gateway, PUMP)
    assert [one["node"] for one in list_subscriptions(gateway, TWIN)] == [NODE, "b/#"]


@pytest.mark.parametrize(
    ("leave", "available"),
    [
        (become_unavailable, (PUMP, TWIN)),
        (Gateway.end, (PUMP, TWIN)),
        (Gateway.end, (PUMP,)),
        (Gateway.end, ()),
    ],
)
def test_a_bare_jids_subscription_ends_with_its_last_available_session(
    gateway: Gateway, leave: Callable[[Gateway, str], None], available: tuple[str, ...]
) -> None:
    """If none was available, it ends with the last session."""
    subscribe(gateway, PUMP, NODE, BARE, expire="presence")
    gateway.bind(TWIN)
    for full in available:
        gateway.send(full, "<presence/>")
    leave(gateway, PUMP)
    assert len(list_subscriptions(gateway, f"{BARE}/third")) == (available != (PUMP,))
    gateway.end(f"{BARE}/third")
    leave(gateway, TWIN)
    assert list_subscriptions(gateway, f"{BARE}/fourth") == []


@pytest.mark.parametrize(("to", "remain"), [(SERVICE, 1), (f"{SERVICE}/{NODE}", 2), (DOMAIN, 2)])
def test_presence_that_is_unavailable_to_the_service_ends_bound_subscriptions(
    gateway: Gateway, to: str, remain: int
) -> None:
    subscribe(gateway, PUMP, NODE, PUMP, expire="presence")
    subscribe(gateway, PUMP, "plant/#", PUMP)
    gateway.send(PUMP, f"<presence type='unavailable' to='{to}'/>")
    assert len(list_subscriptions(gateway, PUMP)) == remain
    assert count_notified(gateway) == remain


def test_subscriptions_end_if_no_session_returns_after_a_restart(gateway: Gateway) -> None:
    for full, node, jid in ((PUMP, NODE, PUMP), (TWIN, NODE, TWIN), (PUMP, "plant/#", BARE)):
        subscribe(gateway, full, node, jid, expire="presence")
    subscribe(gateway, VALVE, "meter/#", expire="presence")
    subscribe(gateway, VALVE, NODE)
    gateway.crash()
    gateway.run_timers()
    deadline = gateway.clock.service + gateway.limits.resume_time
    assert gateway.due == deadline
    gateway.bind(TWIN)
    gateway.clock.service = deadline
    gateway.run_timers()
    assert [one["jid"] for one in list_subscriptions(gateway, TWIN)] == [TWIN, BARE]
    assert [one["node"] for one in list_subscriptions(gateway, VALVE)] == [NODE]
    gateway.end(TWIN)
    gateway.run_timers()
    assert list_subscriptions(gateway, PUMP) == []


def test_many_subscriptions_end_in_batches_after_a_restart(gateway: Gateway) -> None:
    for number in range(70):
        subscribe(gateway, PUMP, f"a{number}/#", expire="presence")
    gateway.crash()
    for _ in range(3):
        gateway.run_timers()
        gateway.clock.service += gateway.limits.resume_time
    assert list_subscriptions(gateway, PUMP) == []
