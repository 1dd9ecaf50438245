"""Subscribing and unsubscribing: nodes, filters, options, owners, and the sessions that go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

from edge.config.limits import Limits
from edge.config.options import Pubsub
from tests.helpers.pubsub import (
    ERRORS,
    OWNER,
    PUBSUB,
    SERVICE,
    create,
    element,
    form,
    list_subscriptions,
    options,
    request_xml,
    send_request,
    subid,
    subscribe,
    subscription,
    subscription_events,
    values,
)
from tests.helpers.store import DOMAIN, STANZAS, Gateway, Reply, new_database, read_element

PUMP: Final = f"pump@{DOMAIN}/fw"
TWIN: Final = f"pump@{DOMAIN}/twin"
BARE: Final = f"pump@{DOMAIN}"
METER: Final = f"meter@{DOMAIN}/fw"
NODE: Final = "plant/boiler/temp"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = _gateway(tmp_path)
    yield gateway
    gateway.close()


def _gateway(folder: Path, limits: Limits | None = None, pubsub: Pubsub | None = None) -> Gateway:
    """Make a gateway with two devices; `meter` owns a node."""
    gateway = Gateway(new_database(folder), limits, pubsub=pubsub)
    for name in ("pump", "meter"):
        gateway.add(name)
    create(gateway, METER, NODE)
    gateway.sends(METER)
    return gateway


def publish(gateway: Gateway, node: str = NODE, full: str = METER) -> None:
    """Publish something to a node."""
    item = element("item", "<v xmlns='urn:v'>1</v>", id="i")
    reply = send_request(gateway, full, element("publish", item, node=node))
    assert reply.type == "result", (reply.error, reply.text)


def heard(gateway: Gateway, full: str) -> int:
    """Return how many items a session was notified of."""
    name = "{http://jabber.org/protocol/pubsub#event}items"
    return sum(1 for message in gateway.elements(full) for _items in message.iter(name))


def specific(gateway: Gateway, full: str, xml: str) -> tuple[str, str, str]:
    """Return the type, the condition and the condition of publish-subscribe of an error."""
    root = read_element(gateway.tx(gateway.work(full, xml)))
    error = root.find("{jabber:client}error")
    assert error is not None
    of_pubsub = [child.tag.removeprefix(f"{{{ERRORS}}}") for child in error if ERRORS in child.tag]
    condition = error[0].tag.removeprefix(f"{{{STANZAS}}}")
    return error.attrib["type"], condition, "".join(of_pubsub)


def refused(
    gateway: Gateway, content: str, type_: str = "set", full: str = PUMP, ns: str = PUBSUB
) -> tuple[str, str, str]:
    return specific(gateway, full, request_xml(content, type_, ns))


# Subscribing: XEP-0060, section 6.1


@pytest.mark.parametrize("jid", [BARE, PUMP])
def test_a_bare_and_a_full_jid_subscribe_and_are_notified(gateway: Gateway, jid: str) -> None:
    gateway.send(PUMP, "<presence/>")
    reply = subscribe(gateway, PUMP, NODE, jid)
    found = subscription(reply)
    assert found.attrib.items() >= {
        ("jid", jid),
        ("node", NODE),
        ("subscription", "subscribed"),
    }
    assert subid(reply)
    gateway.sends(PUMP)
    publish(gateway)
    assert heard(gateway, PUMP) == 1


def test_subscribing_again_tells_of_the_same_subscription(gateway: Gateway) -> None:
    first = subid(subscribe(gateway, PUMP, NODE))
    assert subid(subscribe(gateway, PUMP, NODE)) == first
    assert subid(subscribe(gateway, PUMP, NODE, PUMP)) != first
    assert len(list_subscriptions(gateway, PUMP)) == 2


def test_subscribing_again_with_options_sets_them(gateway: Gateway) -> None:
    assert values(subscribe(gateway, PUMP, NODE, qos="2").payload)["qos"] == "2"
    again = values(subscribe(gateway, PUMP, NODE, deliver="false").payload)
    assert (again["qos"], again["deliver"]) == ("2", "0")


@pytest.mark.parametrize(
    "jid", [f"meter@{DOMAIN}", f"{BARE}/other", "@", "", "pump@elsewhere.example"]
)
def test_only_ones_own_jid_is_subscribed(gateway: Gateway, jid: str) -> None:
    found = refused(gateway, element("subscribe", node=NODE, jid=jid))
    assert found == ("modify", "bad-request", "invalid-jid")
    assert list_subscriptions(gateway, PUMP) == []


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (element("subscribe", jid=BARE), ("modify", "bad-request", "nodeid-required")),
        (element("subscribe", node="x", jid=BARE), ("cancel", "item-not-found", "")),
        (element("subscribe", node="x/#/y", jid=BARE), ("modify", "bad-request", "")),
        (
            element("subscribe", node=NODE, jid=BARE) + "<other/>",
            ("modify", "bad-request", ""),
        ),
        (
            element("subscribe", node=NODE, jid=BARE) + element("options", node="x"),
            ("modify", "bad-request", ""),
        ),
        (
            element("subscribe", node=NODE, jid=BARE) + "<options/><options/>",
            ("modify", "bad-request", ""),
        ),
    ],
)
def test_a_wrong_request_changes_nothing(
    gateway: Gateway, content: str, error: tuple[str, str, str]
) -> None:
    assert refused(gateway, content) == error
    assert list_subscriptions(gateway, PUMP) == []


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({"access_model": "whitelist"}, ("cancel", "not-allowed", "closed-node")),
        (
            {"access_model": "presence"},
            ("auth", "not-authorized", "presence-subscription-required"),
        ),
        ({"access_model": "roster"}, ("auth", "not-authorized", "not-in-roster-group")),
    ],
)
def test_a_node_that_is_closed_refuses(
    gateway: Gateway, config: dict[str, str], error: tuple[str, str, str]
) -> None:
    create(gateway, METER, "closed", **config)
    assert refused(gateway, element("subscribe", node="closed", jid=BARE)) == error


def test_the_untrusted_are_refused(gateway: Gateway) -> None:
    gateway.add("guest", trusted=False)
    guest = f"guest@{DOMAIN}/x"
    found = refused(gateway, element("subscribe", node=NODE, jid=guest), full=guest)
    assert found == ("auth", "forbidden", "")


def test_too_many_subscriptions_of_an_account(tmp_path: Path) -> None:
    gateway = _gateway(tmp_path, Limits(subscriptions_per_account=2))
    subscribe(gateway, PUMP, NODE)
    subscribe(gateway, PUMP, "a/#")
    too_many = ("wait", "policy-violation", "too-many-subscriptions")
    assert refused(gateway, element("subscribe", node="b/#", jid=BARE)) == too_many
    subscribe(gateway, PUMP, "a/#", qos="1")  # it is there
    assert len(list_subscriptions(gateway, PUMP)) == 2
    assert subscribe(gateway, METER, NODE).type == "result"
    (event,) = gateway.events(name="subscriptions_per_account")
    assert (event.kind, event.source) == ("limit", BARE)
    gateway.close()


def test_too_many_subscriptions_of_all(tmp_path: Path) -> None:
    gateway = _gateway(tmp_path, Limits(subscriptions=1))
    subscribe(gateway, PUMP, NODE)
    found = refused(gateway, element("subscribe", node=NODE, jid=METER), full=METER)
    assert found == ("wait", "policy-violation", "too-many-subscriptions")
    gateway.close()


def test_the_last_item_comes_with_a_subscription_and_with_no_other(gateway: Gateway) -> None:
    publish(gateway)
    for full, jid, count in ((PUMP, PUMP, 1), (PUMP, PUMP, 0)):
        subscribe(gateway, full, NODE, jid)
        assert heard(gateway, full) == count
    subscribe(gateway, PUMP, "plant/#", PUMP)
    assert heard(gateway, PUMP) == 0


# Filters


def test_a_filter_and_a_name_are_both_told(gateway: Gateway) -> None:
    subscribe(gateway, PUMP, NODE, PUMP)
    subscribe(gateway, PUMP, "plant/+/temp", PUMP)
    subscribe(gateway, PUMP, "plant/+/steam", PUMP)
    gateway.sends(PUMP)
    publish(gateway)
    messages = gateway.elements(PUMP)
    headers = [m.findtext(".//{http://jabber.org/protocol/shim}header") for m in messages]
    assert sorted(h or "" for h in headers) == sorted(
        one["subid"]
        for one in list_subscriptions(gateway, PUMP)
        if not one["node"].endswith("steam")
    )


def test_a_filter_reaches_only_what_its_subscriber_may_subscribe_to(gateway: Gateway) -> None:
    create(gateway, METER, "plant/secret", access_model="whitelist")
    subscribe(gateway, PUMP, "#", PUMP)
    publish(gateway, "plant/secret")
    assert heard(gateway, PUMP) == 0
    _affiliate(gateway, "plant/secret", "member")
    publish(gateway, "plant/secret")
    assert heard(gateway, PUMP) == 1
    _affiliate(gateway, "plant/secret", "none")
    publish(gateway, "plant/secret")
    assert heard(gateway, PUMP) == 0


def test_an_outcast_is_told_nothing_by_a_filter(gateway: Gateway) -> None:
    subscribe(gateway, PUMP, "#", PUMP)
    _affiliate(gateway, NODE, "outcast")
    publish(gateway)
    assert heard(gateway, PUMP) == 0
    assert [one["node"] for one in list_subscriptions(gateway, PUMP)] == ["#"]


def test_a_filter_is_as_long_as_a_name_at_most(tmp_path: Path) -> None:
    gateway = _gateway(tmp_path, Limits(node_bytes=20))
    assert subscribe(gateway, PUMP, "é" * 9 + "/#").type == "result"
    for node in ("é" * 10 + "/#", "$share:n:" + "é" * 11, "$share:" + "é" * 11 + ":a"):
        reply = subscribe(gateway, PUMP, node)
        assert reply.error == ("modify", "bad-request")
        assert "20 bytes" in reply.text
    gateway.close()


def test_a_bad_filter_is_told_why(gateway: Gateway) -> None:
    assert "last level" in subscribe(gateway, PUMP, "a/#/b").text
    assert "NAME:FILTER" in subscribe(gateway, PUMP, "$share:a").text


def test_there_are_no_shares_where_they_are_switched_off(tmp_path: Path) -> None:
    gateway = _gateway(tmp_path, pubsub=Pubsub(shares=False))
    for node in ("$share:n:a/#", "$share/n/a/#", "$share:bad"):
        assert subscribe(gateway, PUMP, node).error == ("cancel", "feature-not-implemented")
    gateway.close()


# Unsubscribing: section 6.2


@pytest.mark.parametrize("node", [NODE, "plant/#"])
def test_who_unsubscribes_is_told_nothing_more(gateway: Gateway, node: str) -> None:
    found = subid(subscribe(gateway, PUMP, node, PUMP))
    reply = send_request(gateway, PUMP, element("unsubscribe", node=node, jid=PUMP, subid=found))
    assert reply.type == "result"
    gateway.sends(PUMP)
    publish(gateway)
    assert heard(gateway, PUMP) == 0
    assert list_subscriptions(gateway, PUMP) == []


def test_another_session_of_the_account_unsubscribes_it(gateway: Gateway) -> None:
    subscribe(gateway, PUMP, NODE, PUMP)
    assert send_request(gateway, TWIN, element("unsubscribe", node=NODE, jid=PUMP)).type == "result"
    assert list_subscriptions(gateway, PUMP) == []


WRONG: Final[list[tuple[dict[str, str], tuple[str, str, str]]]] = [
    ({"node": NODE}, ("modify", "bad-request", "jid-required")),
    ({"jid": BARE}, ("modify", "bad-request", "nodeid-required")),
    ({"node": NODE, "jid": PUMP}, ("cancel", "unexpected-request", "not-subscribed")),
    ({"node": "plant/+", "jid": BARE}, ("cancel", "unexpected-request", "not-subscribed")),
    ({"node": "$share:a:b", "jid": BARE}, ("cancel", "unexpected-request", "not-subscribed")),
    ({"node": NODE, "jid": f"meter@{DOMAIN}"}, ("auth", "forbidden", "")),
    ({"node": "x", "jid": BARE}, ("cancel", "item-not-found", "")),
    ({"node": NODE, "jid": BARE, "subid": "x"}, ("modify", "not-acceptable", "invalid-subid")),
    ({"node": NODE, "jid": "@"}, ("modify", "jid-malformed", "")),
]


@pytest.mark.parametrize(("attrs", "error"), WRONG)
@pytest.mark.parametrize(
    ("name", "type_"), [("unsubscribe", "set"), ("options", "get"), ("options", "set")]
)
def test_who_is_not_subscribed_is_told_why(
    gateway: Gateway,
    name: str,
    type_: str,
    attrs: dict[str, str],
    error: tuple[str, str, str],
) -> None:
    subscribe(gateway, PUMP, NODE)
    subscribe(gateway, METER, NODE)
    before = list_subscriptions(gateway, PUMP)
    assert refused(gateway, element(name, "", **attrs), type_) == error
    assert list_subscriptions(gateway, PUMP) == before


# Options: section 6.3


def test_options_are_shown_and_set(gateway: Gateway) -> None:
    found = subid(subscribe(gateway, PUMP, NODE, PUMP))
    about = {"node": NODE, "jid": PUMP, "subid": found}
    shown_ = send_request(gateway, PUMP, element("options", **about), "get").payload
    assert values(shown_) == {"deliver": "1", "qos": "0", "expire": ""}
    assert shown_ is not None
    assert dict(shown_[0].attrib) == about
    submitted = form("subscribe_options", {"deliver": "0", "expire": "presence"})
    assert send_request(gateway, PUMP, element("options", submitted, **about)).type == "result"
    shown_ = send_request(gateway, PUMP, element("options", **about), "get").payload
    assert values(shown_) == {"deliver": "0", "qos": "0", "expire": "presence"}
    publish(gateway)
    assert heard(gateway, PUMP) == 0


@pytest.mark.parametrize("node", [NODE, "plant/#"])
def test_who_wants_no_notifications_gets_none_until_it_does(gateway: Gateway, node: str) -> None:
    subscribe(gateway, PUMP, node, PUMP, deliver="0")
    publish(gateway)
    assert heard(gateway, PUMP) == 0
    subscribe(gateway, PUMP, node, PUMP, deliver="1")
    gateway.sends(PUMP)
    publish(gateway)
    assert heard(gateway, PUMP) == 1


INVALID: Final = [
    {"deliver": "maybe"},
    {"qos": "3"},
    {"qos": ""},
    {"expire": "2026-01-01T00:00:00Z"},
    {"queue_requests": "5"},
    {"queue_policy": "hash"},
    {"include_body": "1"},
    {"digest": "true"},
    {"subscription_type": "nodes"},
    {"other": "x"},
]


@pytest.mark.parametrize("given", INVALID)
def test_options_that_cannot_be_are_refused(gateway: Gateway, given: dict[str, str]) -> None:
    content = element("subscribe", node=NODE, jid=BARE) + options(**given)
    assert refused(gateway, content) == ("modify", "bad-request", "invalid-options")
    subscribe(gateway, PUMP, NODE)
    submitted = form("subscribe_options", given)
    content = element("options", submitted, node=NODE, jid=BARE)
    assert refused(gateway, content) == ("modify", "bad-request", "invalid-options")


@pytest.mark.parametrize(
    "content",
    [
        f"<options>{form('node_config', {'qos': '1'})}</options>",
        "<options><x xmlns='jabber:x:data' type='form'/></options>",
        "<options><y xmlns='urn:y'/></options>",
        f"<options>{form('subscribe_options', {})}{form('subscribe_options', {})}</options>",
        "<options><x xmlns='jabber:x:data' type='submit'><field var='pubsub#qos'>"
        "<value>1</value><value>2</value></field></x></options>",
        "<options><x xmlns='jabber:x:data' type='submit'><field var='queue_requests'/>"
        "<field var='pubsub#queue_requests'/></x></options>",
    ],
)
def test_a_wrong_form_of_options_is_refused(gateway: Gateway, content: str) -> None:
    found = refused(gateway, element("subscribe", node=NODE, jid=BARE) + content)
    assert found == ("modify", "bad-request", "invalid-options")


def test_usual_options_that_say_what_is_so_anyhow_are_taken(gateway: Gateway) -> None:
    usual = {"include_body": "false", "digest": "0", "subscription_type": "items"}
    assert subscribe(gateway, PUMP, NODE, **usual).type == "result"


def test_options_without_a_form_are_none(gateway: Gateway) -> None:
    content = element("subscribe", node=NODE, jid=BARE) + "<options/>"
    assert values(send_request(gateway, PUMP, content).payload)["qos"] == "0"


@pytest.mark.parametrize(
    ("node", "options_"),
    [
        (None, {"deliver": "1", "qos": "0", "expire": ""}),
        (NODE, {"deliver": "1", "qos": "0", "expire": ""}),
        ("plant/#", {"deliver": "1", "qos": "0", "expire": ""}),
        (
            "$share:n:plant/#",
            {"queue_requests": "10", "qos": "1", "expire": "", "queue_policy": "least-loaded"},
        ),
        ("work", {"queue_requests": ""}),
    ],
)
def test_default_options_are_told(
    gateway: Gateway, node: str | None, options_: dict[str, str]
) -> None:
    create(gateway, METER, "work", queueing="1")
    payload = send_request(gateway, PUMP, element("default", node=node), "get").payload
    assert values(payload) == options_


# Lists: section 5.6


def test_an_account_sees_its_own_subscriptions(gateway: Gateway) -> None:
    subscribe(gateway, PUMP, NODE)
    subscribe(gateway, PUMP, NODE, PUMP)
    subscribe(gateway, PUMP, "plant/#")
    subscribe(gateway, PUMP, "$share/n/plant/#")
    subscribe(gateway, METER, NODE)
    nodes = [(one["node"], one["jid"]) for one in list_subscriptions(gateway, TWIN)]
    assert nodes == [
        (NODE, BARE),
        (NODE, PUMP),
        ("plant/#", BARE),
        ("$share:n:plant/#", BARE),
    ]
    for node, count in ((NODE, 2), ("plant/#", 1), ("$share:n:plant/#", 1), ("x/#", 0)):
        assert len(list_subscriptions(gateway, PUMP, node)) == count
    assert refused(gateway, element("subscriptions", node="x"), "get")[1] == "item-not-found"


# Owners: section 8.8


def _owner(gateway: Gateway, *changes: str, node: str = NODE, full: str = METER) -> Reply:
    content = element("subscriptions", "".join(changes), node=node)
    return send_request(gateway, full, content, "set" if changes else "get", OWNER)


def _change(jid: str, state: str, subid: str | None = None) -> str:
    return element("subscription", jid=jid, subscription=state, subid=subid)


def test_an_owner_sees_who_is_subscribed(gateway: Gateway) -> None:
    found = subid(subscribe(gateway, PUMP, NODE))
    subscribe(gateway, PUMP, "plant/#")
    payload = _owner(gateway).payload
    assert payload is not None
    (one,) = payload[0]
    assert one.attrib == {"jid": BARE, "subid": found, "subscription": "subscribed"}


def test_an_owner_ends_a_subscription_and_its_subscriber_is_told(gateway: Gateway) -> None:
    found = subid(subscribe(gateway, PUMP, NODE, PUMP))
    assert _owner(gateway, _change(PUMP, "none", "x")).error == ("modify", "not-acceptable")
    assert _owner(gateway, _change(PUMP, "none", found)).type == "result"
    assert subscription_events(gateway, PUMP) == [(NODE, "none")]
    assert list_subscriptions(gateway, PUMP) == []


def test_an_owner_subscribes_another_who_is_told(gateway: Gateway) -> None:
    gateway.bind(PUMP)
    assert _owner(gateway, _change(PUMP, "subscribed"), _change(BARE, "subscribed")).error is None
    assert subscription_events(gateway, PUMP)[0] == (NODE, "subscribed")
    before = list_subscriptions(gateway, PUMP)
    assert [one["jid"] for one in before] == [PUMP, BARE]
    assert _owner(gateway, _change(PUMP, "subscribed")).type == "result"
    assert subscription_events(gateway, PUMP) == []
    assert list_subscriptions(gateway, PUMP) == before


@pytest.mark.parametrize(
    ("jid", "state", "error"),
    [
        (BARE, "pending", ("modify", "not-acceptable")),
        (f"nobody@{DOMAIN}", "subscribed", ("modify", "not-acceptable")),
        ("pump@elsewhere.example", "subscribed", ("modify", "not-acceptable")),
        (BARE, "none", ("cancel", "unexpected-request")),
        ("@", "none", ("modify", "jid-malformed")),
    ],
)
def test_an_owner_cannot_do_everything(
    gateway: Gateway, jid: str, state: str, error: tuple[str, str]
) -> None:
    reply = _owner(gateway, _change(f"meter@{DOMAIN}", "subscribed"), _change(jid, state))
    assert reply.error == error
    assert list_subscriptions(gateway, METER) == []  # all is done, or nothing


def test_an_owner_subscribes_nobody_to_a_queue_or_to_what_is_closed_to_them(
    gateway: Gateway,
) -> None:
    create(gateway, METER, "work", queueing="1")
    create(gateway, METER, "closed", access_model="whitelist")
    for node in ("work", "closed"):
        error = _owner(gateway, _change(BARE, "subscribed"), node=node).error
        assert error == ("modify", "not-acceptable")


def test_an_owner_subscribes_as_many_as_there_may_be(tmp_path: Path) -> None:
    gateway = _gateway(tmp_path, Limits(subscriptions_per_account=2))
    changes = [_change(jid, "subscribed") for jid in (BARE, PUMP, TWIN)]
    assert _owner(gateway, *changes).error == ("wait", "policy-violation")
    assert _owner(gateway, *changes[:2]).type == "result"
    gateway.close()


def test_only_an_owner_manages_subscriptions(gateway: Gateway) -> None:
    assert _owner(gateway, full=PUMP).error == ("auth", "forbidden")
    change = _change(BARE, "subscribed")
    assert _owner(gateway, change, full=PUMP).error == ("auth", "forbidden")
    assert _owner(gateway, change, node="x").error == ("cancel", "item-not-found")
    content = element("subscriptions", node=NODE)
    assert send_request(gateway, METER, content, "set", OWNER).error == ("modify", "bad-request")


# Rights that change


def _affiliate(gateway: Gateway, node: str, affiliation: str, jid: str = BARE) -> None:
    change = element("affiliation", jid=jid, affiliation=affiliation)
    reply = send_request(gateway, METER, element("affiliations", change, node=node), "set", OWNER)
    assert reply.type == "result", (reply.error, reply.text)


def test_an_outcast_loses_its_subscriptions_and_is_told(gateway: Gateway) -> None:
    subscribe(gateway, PUMP, NODE, PUMP)
    subscribe(gateway, METER, NODE)
    gateway.sends(PUMP)
    _affiliate(gateway, NODE, "outcast")
    assert subscription_events(gateway, PUMP) == [(NODE, "none")]
    assert list_subscriptions(gateway, PUMP) == []
    assert len(list_subscriptions(gateway, METER)) == 1


def test_who_has_no_access_any_more_loses_its_subscription(gateway: Gateway) -> None:
    subscribe(gateway, PUMP, NODE, PUMP)
    configure = element("configure", form("node_config", {"access_model": "whitelist"}), node=NODE)
    assert send_request(gateway, METER, configure, "set", OWNER).type == "result"
    assert subscription_events(gateway, PUMP) == [(NODE, "none")]
    assert list_subscriptions(gateway, PUMP) == []


def test_a_member_stays_subscribed_when_a_node_is_closed(gateway: Gateway) -> None:
    _affiliate(gateway, NODE, "member")
    subscribe(gateway, PUMP, NODE, PUMP)
    configure = element("configure", form("node_config", {"access_model": "whitelist"}), node=NODE)
    assert send_request(gateway, METER, configure, "set", OWNER).type == "result"
    assert subscription_events(gateway, PUMP) == []
    assert len(list_subscriptions(gateway, PUMP)) == 1


# Sessions that go


def _unavailable(gateway: Gateway, full: str) -> None:
    gateway.send(full, "<presence type='unavailable'/>")


def _leave(gateway: Gateway, full: str) -> None:
    gateway.leave(full)


@pytest.mark.parametrize("go", [_unavailable, _leave])
def test_what_was_to_end_with_the_session_does(
    gateway: Gateway, go: Callable[[Gateway, str], None]
) -> None:
    for node, jid in ((NODE, PUMP), ("plant/#", PUMP), ("a/#", BARE)):
        subscribe(gateway, PUMP, node, jid, expire="presence")
    subscribe(gateway, PUMP, NODE, BARE)
    subscribe(gateway, PUMP, "b/#", PUMP)
    gateway.send(PUMP, "<presence/>")
    go(gateway, PUMP)
    assert [one["node"] for one in list_subscriptions(gateway, TWIN)] == [NODE, "b/#"]


@pytest.mark.parametrize("go", [_unavailable, _leave])
def test_a_bare_jids_subscription_ends_with_its_last_session(
    gateway: Gateway, go: Callable[[Gateway, str], None]
) -> None:
    subscribe(gateway, PUMP, NODE, BARE, expire="presence")
    for full in (PUMP, TWIN):
        gateway.bind(full) if not gateway.is_bound(full) else None
        gateway.send(full, "<presence/>")
    go(gateway, PUMP)
    assert len(list_subscriptions(gateway, TWIN)) == 1
    go(gateway, TWIN)
    assert list_subscriptions(gateway, f"{BARE}/third") == []


def test_a_session_that_never_showed_itself_takes_a_bare_jids_along_if_it_is_the_last(
    gateway: Gateway,
) -> None:
    subscribe(gateway, PUMP, NODE, BARE, expire="presence")
    gateway.bind(TWIN)
    gateway.leave(TWIN)
    assert len(list_subscriptions(gateway, PUMP)) == 1
    gateway.leave(PUMP)
    assert list_subscriptions(gateway, PUMP) == []


def test_the_last_one_that_is_shown_takes_it_along_too(gateway: Gateway) -> None:
    subscribe(gateway, PUMP, NODE, BARE, expire="presence")
    gateway.bind(TWIN)
    gateway.send(PUMP, "<presence/>")
    gateway.leave(PUMP)
    assert list_subscriptions(gateway, TWIN) == []


def test_directed_unavailable_presence_ends_nothing(gateway: Gateway) -> None:
    subscribe(gateway, PUMP, NODE, PUMP, expire="presence")
    gateway.send(PUMP, f"<presence type='unavailable' to='{SERVICE}'/>")
    assert len(list_subscriptions(gateway, PUMP)) == 1


def test_a_restart_ends_nothing(gateway: Gateway) -> None:
    subscribe(gateway, PUMP, NODE, PUMP, expire="presence")
    subscribe(gateway, PUMP, "plant/#", PUMP)
    gateway.crash()
    assert len(list_subscriptions(gateway, PUMP)) == 2
    publish(gateway)
    assert heard(gateway, PUMP) == 2


def test_who_does_not_come_back_after_a_restart_is_gone(gateway: Gateway) -> None:
    for node, jid in ((NODE, PUMP), (NODE, TWIN), ("plant/#", BARE)):
        full = jid if "/" in jid else PUMP
        subscribe(gateway, full, node, jid, expire="presence")
    subscribe(gateway, METER, "meter/#", expire="presence")
    subscribe(gateway, METER, NODE)
    gateway.crash()
    gateway.ring()
    until = gateway.clock.service + gateway.limits.resume_time
    assert gateway.due == until
    gateway.bind(TWIN)
    gateway.clock.service = until
    gateway.ring()
    assert [one["jid"] for one in list_subscriptions(gateway, TWIN)] == [TWIN, BARE]
    assert [one["node"] for one in list_subscriptions(gateway, METER)] == [NODE]
    gateway.leave(TWIN)
    gateway.ring()
    assert list_subscriptions(gateway, PUMP) == []


def test_many_who_do_not_come_back_are_gone_step_by_step(tmp_path: Path) -> None:
    gateway = _gateway(tmp_path)
    for number in range(70):
        subscribe(gateway, PUMP, f"a{number}/#", expire="presence")
    gateway.crash()
    for _time in range(3):
        gateway.ring()
        gateway.clock.service += gateway.limits.resume_time
    assert list_subscriptions(gateway, PUMP) == []
    gateway.close()


def test_a_filter_reaches_what_an_owners_roster_allows(gateway: Gateway) -> None:
    create(gateway, METER, "plant/close", access_model="presence")
    subscribe(gateway, PUMP, "plant/#", PUMP)
    publish(gateway, "plant/close")
    assert heard(gateway, PUMP) == 0
    gateway.send(PUMP, f"<presence type='subscribe' to='meter@{DOMAIN}'/>")
    gateway.send(METER, f"<presence type='subscribed' to='{BARE}'/>")
    gateway.sends(PUMP)
    publish(gateway, "plant/close")
    assert heard(gateway, PUMP) == 1


def test_the_service_says_what_it_does(gateway: Gateway) -> None:
    query = "<query xmlns='http://jabber.org/protocol/disco#info'/>"
    reply = gateway.send(PUMP, f"<iq type='get' id='d' to='{SERVICE}'>{query}</iq>")
    assert reply is not None
    assert reply.payload is not None
    names = {feature.get("var") for feature in reply.payload}
    assert names >= {
        f"{PUBSUB}#{name}"
        for name in (
            "subscribe",
            "subscription-notifications",
            "subscription-options",
            "retrieve-subscriptions",
            "retrieve-default-sub",
            "manage-subscriptions",
        )
    }


def test_forms_to_fill_in_have_choices(gateway: Gateway) -> None:
    subscribe(gateway, PUMP, NODE)
    reply = send_request(gateway, PUMP, element("options", node=NODE, jid=BARE), "get")
    assert reply.payload is not None
    written = ElementTree.tostring(reply.payload, encoding="unicode")
    assert "exactly once" in written
    assert "presence" in written
