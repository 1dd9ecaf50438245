from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from edge.config.limits import Limits
from edge.config.options import Xmpp
from edge.engine.dispatch.item_attributes import ItemAttributes
from edge.features.accounts.store import accounts
from edge.ops import component_mode
from edge.ops.gateway import operator
from edge.ops.gateway.operator_requests import (
    Answer,
    ConfigureNode,
    CreateNode,
    DeleteNode,
    FinishItem,
    Listen,
    RequestRefused,
    SendMessage,
    TakeItem,
    Work,
)
from edge.xmpp.payloads import message
from tests.helpers.pubsub import publish_content
from tests.helpers.store import DOMAIN, QOS, Gateway, new_database

VALVE: Final = f"valve1@{DOMAIN}/fw"
TEXT: Final = message("open", "text")
ERROR: Final = TEXT.replace("<message", "<message type='error'")
QUEUEING: Final = {"pubsub#queueing": ["1"]}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway whose devices may send to their contacts only; it may send to all devices."""
    gateway = Gateway(new_database(tmp_path), Limits(stanza_bytes=1000), xmpp=Xmpp(trust="roster"))
    gateway.add("valve1")
    gateway.add("gone")
    gateway.tx(lambda tx: accounts.revoke(tx, "gone"))
    gateway.bind(VALVE)
    gateway.send(VALVE, "<presence/>")
    yield gateway
    gateway.close()


def perform(gateway: Gateway, request: Work) -> Answer:
    context = gateway.router.context
    return gateway.commit(lambda tx: operator.perform(context, tx, request))


@pytest.mark.parametrize(
    ("request_", "command"),
    [
        (CreateNode("plant/a"), "node"),
        (ConfigureNode("plant/a", {}), "node"),
        (DeleteNode("plant/a"), "node"),
        (TakeItem("jobs"), "queue"),
        (FinishItem("jobs", "r1"), "queue"),
        (SendMessage(f"pubsub.{DOMAIN}/plant/a", TEXT, 1), "send --node"),
        (SendMessage(f"pubsub.{DOMAIN}/jobs", TEXT, 1, {"pubsub#queue_ttl": "5"}), "send --node"),
        (SendMessage("pump1@users.example", TEXT, 0), "send --to"),
        (SendMessage(f"valve1@{DOMAIN}", TEXT, 2), "send --to"),
    ],
)
def test_a_component_refuses_what_it_does_not_offer(
    tmp_path: Path, request_: Work, command: str
) -> None:
    """Also for a command of another version, or another program at the control socket."""
    gateway = Gateway(new_database(tmp_path), accounts=False)
    with closing(gateway):
        answer = perform(gateway, request_)
        assert answer.error == component_mode.refusal(command)
        assert gateway.count("SELECT count(*) FROM nodes") == 0
        with pytest.raises(RequestRefused, match="`fieldpost listen` is not offered"):
            operator.check_listen(gateway.router.context, Listen(["#"]))


def perform_successfully(gateway: Gateway, request: Work) -> Answer:
    answer = perform(gateway, request)
    assert answer.error == ""
    return answer


def to_node(node: str, text: str = TEXT, **options: str) -> SendMessage:
    form_fields = {f"pubsub#queue_{name}": value for name, value in options.items()}
    return SendMessage(f"pubsub.{DOMAIN}/{node}", text, 1, form_fields)


def finish(gateway: Gateway) -> str:
    """Take and delete an item of the queue; return its payload, or "" if the queue is empty."""
    item = perform_successfully(gateway, TakeItem("jobs")).item
    if item is None:
        return ""
    assert item.publisher == DOMAIN
    perform_successfully(gateway, FinishItem("jobs", item.item))
    return item.payload.decode()


def test_a_message_reaches_a_device_at_each_level(gateway: Gateway) -> None:
    gateway.elements(VALVE)
    for qos in (0, 1, 2):
        perform_successfully(gateway, SendMessage(f"valve1@{DOMAIN}", TEXT, qos))
    assert gateway.count("SELECT count(*) FROM offline") == 1, "a crash does not lose it"
    plain, probe = gateway.elements(VALVE)
    assert gateway.count("SELECT count(*) FROM offline") == 0
    assert (plain.get("from"), plain[0].text) == (DOMAIN, "open")
    query = "http://jabber.org/protocol/disco#info"
    assert probe[0].tag == f"{{{query}}}query"  # levels 1 and 2 need its features
    features = f"<query xmlns='{query}'><feature var='{QOS}'/></query>"
    gateway.send(VALVE, f"<iq type='result' id='{probe.get('id')}' to='{DOMAIN}'>{features}</iq>")
    (acknowledged,) = gateway.elements(VALVE)
    assert acknowledged[0].tag == f"{{{QOS}}}acknowledged"
    gateway.send(VALVE, f"<iq type='result' id='{acknowledged.get('id')}' to='{DOMAIN}'/>")
    (assured,) = gateway.elements(VALVE)
    assert assured[0].tag == f"{{{QOS}}}assured"


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (SendMessage(f"valve1@{DOMAIN}", TEXT, 3), "3 is not a level"),
        (SendMessage(f"valve1@{DOMAIN}", "x" * 1001, 1), "limits.stanza_bytes is 1000"),
        (SendMessage(f"valve1@{DOMAIN}", "<message", 1), "not well-formed"),
        (SendMessage(f"valve1@{DOMAIN}", "<presence/>", 1), "is not a <message/>"),
        (SendMessage(f"valve1@{DOMAIN}", TEXT, 1, protocol="smtp"), "of the protocol smtp"),
        (SendMessage(f"nobody@{DOMAIN}", TEXT, 1), "no such account"),
        (SendMessage(f"nobody@{DOMAIN}", TEXT, 0), "cannot be reached: there is no such account"),
        (
            SendMessage("a@other.example", TEXT, 0),
            "serves only its own domain, gw.example, and not other.example",
        ),
        (SendMessage("a@other.example", TEXT, 1), "serves only its own domain"),
        (SendMessage(f"valve1@{DOMAIN}", ERROR, 0), "of type error"),
        (SendMessage(f"valve1@{DOMAIN}", TEXT, 1, {"pubsub#queue_ttl": "1"}), "a queue node"),
        (SendMessage(f"gone@{DOMAIN}", TEXT, 1), "the account is revoked"),
        (SendMessage(f"gone@{DOMAIN}", TEXT, 0), "cannot be reached: the account is revoked"),
        (to_node("missing"), "does not exist"),
        (to_node("jobs", "<message xmlns='jabber:client'/>"), "one element"),
        (to_node("jobs", "<message xmlns='jabber:client'/>", ttl="1"), "one element"),
        (to_node("jobs", priority="1001"), "from -1000 to 1000"),
        (to_node("jobs", ttl="-1"), "from 0 to "),
        (to_node("plain", ttl="1"), "require a queue node"),
        (TakeItem("plain"), "no queue node plain"),
        (FinishItem("jobs", "missing"), "no item"),
        (CreateNode("jobs"), "exists already"),
        (CreateNode("new", options={"pubsub#colour": ["red"]}), "unknown"),
        (CreateNode("new", owner=f"nobody@{DOMAIN}"), "owner nobody@gw.example: there is no such"),
        (CreateNode("new", owner="valve1@other.example"), "serves only its own domain"),
        (CreateNode("new", owner=f"valve1@{DOMAIN}/fw"), "is not the address of a device"),
        (ConfigureNode("missing", {}), "does not exist"),
        (DeleteNode("missing"), "does not exist"),
    ],
)
def test_a_request_is_refused_with_a_reason(gateway: Gateway, request_: Work, problem: str) -> None:
    perform_successfully(gateway, CreateNode("jobs", options=QUEUEING))
    perform_successfully(gateway, CreateNode("plain"))
    assert problem in perform(gateway, request_).error


def test_nodes_are_created_configured_and_deleted(gateway: Gateway) -> None:
    perform_successfully(gateway, CreateNode("plant/a", owner=f"valve1@{DOMAIN}"))
    (event,) = gateway.events(name="created")
    assert event.topic == "plant/a"
    perform_successfully(gateway, ConfigureNode("plant/a", {"pubsub#title": ["Boiler"]}))
    perform_successfully(gateway, DeleteNode("plant/a"))
    assert "does not exist" in perform(gateway, DeleteNode("plant/a")).error


def test_items_are_taken_once_and_in_the_order_of_their_options(gateway: Gateway) -> None:
    perform_successfully(gateway, CreateNode("jobs", options=QUEUEING))
    perform_successfully(gateway, to_node("jobs", message("low", "text")))
    perform_successfully(gateway, to_node("jobs", message("high", "text"), priority="5"))
    perform_successfully(gateway, to_node("jobs", message("later", "text"), delay="60"))
    perform_successfully(gateway, to_node("jobs", message("old", "text"), ttl="0"))
    assert ["high" in finish(gateway), "low" in finish(gateway)] == [True, True]
    for seconds, text in ((59.0, ""), (1.0, "<body xmlns='jabber:client'>later</body>")):
        gateway.clock.service += seconds
        gateway.run_timers()
        assert finish(gateway) == text


def test_an_item_that_is_no_xml_is_taken_with_its_content_type(gateway: Gateway) -> None:
    options = {**QUEUEING, "pubsub#publish_model": ["open"]}
    perform_successfully(gateway, CreateNode("jobs", options=options))
    publish_content(gateway, VALVE, "jobs", b"\x00\xff", ItemAttributes("a/b"))
    item = perform_successfully(gateway, TakeItem("jobs")).item
    assert item is not None
    assert (item.payload, item.content_type) == (b"\x00\xff", "a/b")


def test_filters_are_checked(gateway: Gateway) -> None:
    context = gateway.router.context
    assert operator.check_listen(context, Listen(["plant/#", "+"])) == ("plant/#", "+")
    with pytest.raises(RequestRefused, match="a/#/b"):
        operator.check_listen(context, Listen(["a/#/b"]))
