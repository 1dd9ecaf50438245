"""Requests about affiliations, and the rights that affiliations give (XEP-0060, 5.7 and 8.9)."""

from __future__ import annotations

from typing import Final

import pytest

from edge.config.limits import Limits
from edge.features.pubsub.store import affiliations
from tests.helpers.people import PUMP, UNTRUSTED, VALVE, make_available, provision
from tests.helpers.pubsub import (
    OWNER,
    PUBSUB,
    affiliate,
    create,
    element,
    error_of,
    item,
    publish,
    refusal,
    send_request,
    subscribe,
)
from tests.helpers.store import DOMAIN, Gateway, MakeGateway, Reply

PUMP_BARE: Final = "pump1@gw.example"
VALVE_BARE: Final = "valve@gw.example"
LAMP_BARE: Final = "lamp@gw.example"


@pytest.fixture
def gateway(gateway: Gateway) -> Gateway:
    """A gateway on which the pump owns the node `a` and the valve is available."""
    make_available(gateway, VALVE)
    create(gateway, PUMP, "a")
    return gateway


def parse(reply: Reply, ns: str, key: str) -> dict[str | None, str | None]:
    (found,) = reply.content
    assert (reply.content.tag, found.tag) == (f"{{{ns}}}pubsub", f"{{{ns}}}affiliations")
    return {one.get(key): one.get("affiliation") for one in found}


def own(gateway: Gateway, full: str, node: str | None = None) -> dict[str | None, str | None]:
    reply = send_request(gateway, full, element("affiliations", node=node), "get")
    return parse(reply, PUBSUB, "node")


def of_node(gateway: Gateway, full: str = PUMP) -> dict[str | None, str | None]:
    reply = send_request(gateway, full, element("affiliations", node="a"), "get", OWNER)
    return parse(reply, OWNER, "jid")


def change(gateway: Gateway, *changes: tuple[str, str | None]) -> Reply:
    content = "".join(element("affiliation", jid=jid, affiliation=a) for jid, a in changes)
    return send_request(gateway, PUMP, element("affiliations", content, node="a"), ns=OWNER)


def test_an_account_sees_its_own_affiliations(gateway: Gateway) -> None:
    create(gateway, PUMP, "b")
    assert own(gateway, PUMP) == {"a": "owner", "b": "owner"}
    assert own(gateway, VALVE) == {}
    affiliate(gateway, PUMP, "b", valve="publish-only")
    affiliate(gateway, PUMP, "a", valve="outcast")
    assert own(gateway, VALVE) == {"a": "outcast", "b": "publish-only"}
    assert own(gateway, VALVE, "b") == {"b": "publish-only"}
    assert own(gateway, PUMP, "b") == {"b": "owner"}


def test_own_affiliations_need_an_existing_node_and_a_trusted_account(gateway: Gateway) -> None:
    missing = element("affiliations", node="c")
    assert refusal(gateway, PUMP, missing, "get") == ("cancel", "item-not-found", "")
    assert refusal(gateway, UNTRUSTED, "<affiliations/>", "get") == ("auth", "forbidden", "")


def test_an_owner_changes_affiliations(gateway: Gateway) -> None:
    assert of_node(gateway) == {PUMP_BARE: "owner"}
    assert affiliate(gateway, PUMP, "a", valve="publisher", lamp="member").payload is None
    assert of_node(gateway) == {PUMP_BARE: "owner", VALVE_BARE: "publisher", LAMP_BARE: "member"}
    affiliate(gateway, PUMP, "a", valve="none")
    assert of_node(gateway) == {PUMP_BARE: "owner", LAMP_BARE: "member"}


@pytest.mark.parametrize("type_", ["get", "set"])
def test_only_owners_see_and_change_affiliations(gateway: Gateway, type_: str) -> None:
    content = ""
    if type_ == "set":
        content = element("affiliation", jid=f"valve@{DOMAIN}", affiliation="owner")

    def refuse(node: str | None, full: str = PUMP) -> tuple[str, str, str]:
        xml = element("affiliations", content, node=node)
        return refusal(gateway, full, xml, type_, OWNER)

    assert refuse(None) == ("modify", "bad-request", "nodeid-required")
    assert refuse("c") == ("cancel", "item-not-found", "")
    assert refuse("a", VALVE) == ("auth", "forbidden", "")
    affiliate(gateway, PUMP, "a", valve="publisher")
    assert refuse("a", VALVE) == ("auth", "forbidden", "")


@pytest.mark.parametrize(
    ("changes", "condition"),
    [
        ([], "bad-request"),
        ([(VALVE_BARE, "member"), ("VALVE@gw.example", "none")], "bad-request"),
        ([(VALVE_BARE, "king")], "not-acceptable"),
        ([("valve@gw.example/fw", "member")], "not-acceptable"),
        ([("valve@elsewhere.example", "member")], "not-acceptable"),
        ([("gw.example", "member")], "not-acceptable"),
        ([("@", "member")], "not-acceptable"),
        ([(PUMP_BARE, "none")], "not-acceptable"),
        ([(PUMP_BARE, "publisher")], "not-acceptable"),
    ],
)
def test_an_invalid_change_changes_nothing(
    gateway: Gateway, changes: list[tuple[str, str | None]], condition: str
) -> None:
    assert error_of(change(gateway, *changes)) == ("modify", condition)
    if changes:
        others = change(gateway, (LAMP_BARE, "member"), *changes)
        assert error_of(others) == ("modify", condition)
    assert of_node(gateway) == {PUMP_BARE: "owner"}


def test_other_elements_are_refused(gateway: Gateway) -> None:
    content = element("affiliations", "<subscription/>", node="a")
    assert refusal(gateway, PUMP, content, ns=OWNER) == ("modify", "bad-request", "")


def test_an_entry_without_an_affiliation_changes_nothing(gateway: Gateway) -> None:
    affiliate(gateway, PUMP, "a", valve="member")
    assert change(gateway, (VALVE_BARE, None), (LAMP_BARE, "outcast")).type == "result"
    assert of_node(gateway)[VALVE_BARE] == "member"


def test_a_refusal_lists_the_current_affiliations(gateway: Gateway) -> None:
    affiliate(gateway, PUMP, "a", valve="member")
    reply = affiliate(gateway, PUMP, "a", pump1="none", valve="none", lamp="publisher")
    assert error_of(reply) == ("modify", "not-acceptable")
    current = {PUMP_BARE: "owner", VALVE_BARE: "member", LAMP_BARE: "none"}
    assert parse(reply, OWNER, "jid") == current


def test_an_owner_may_resign_if_there_is_another(gateway: Gateway) -> None:
    assert affiliate(gateway, PUMP, "a", pump1="none", valve="owner").type == "result"
    assert of_node(gateway, VALVE) == {VALVE_BARE: "owner"}


def test_affiliations_are_limited_and_a_refusal_is_logged(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(Limits(affiliations=2))
    provision(gateway)
    create(gateway, PUMP, "a")
    assert change(gateway, (VALVE_BARE, "member")).type == "result"
    assert error_of(change(gateway, (LAMP_BARE, "member"))) == ("wait", "resource-constraint")
    assert change(gateway, (LAMP_BARE, "none")).type == "result"
    assert change(gateway, (VALVE_BARE, "none"), (LAMP_BARE, "member")).type == "result"
    (limit,) = gateway.events("system", "affiliations")
    assert (limit.kind, limit.source, limit.tags) == ("limit", PUMP_BARE, {"limit": "2"})


@pytest.mark.parametrize(
    ("affiliation", "model", "allowed"),
    [("publish-only", "publishers", True), ("member", "publishers", False), ("none", "open", True)],
)
def test_who_may_publish(gateway: Gateway, affiliation: str, model: str, allowed: bool) -> None:
    create(gateway, PUMP, "b", publish_model=model)
    affiliate(gateway, PUMP, "b", valve=affiliation)
    reply = publish(gateway, VALVE, "b", item())
    assert reply.error == (None if allowed else ("auth", "forbidden"))


@pytest.mark.parametrize(("affiliation", "allowed"), [("member", True), ("outcast", False)])
def test_who_may_subscribe_to_a_closed_node(
    gateway: Gateway, affiliation: str, allowed: bool
) -> None:
    create(gateway, PUMP, "b", access_model="whitelist")
    affiliate(gateway, PUMP, "b", valve=affiliation)
    reply = subscribe(gateway, VALVE, "b", VALVE)
    assert reply.error == (None if allowed else ("auth", "forbidden"))


def test_a_removed_account_keeps_only_the_nodes_that_it_alone_owns(gateway: Gateway) -> None:
    create(gateway, VALVE, "b")
    affiliate(gateway, PUMP, "a", valve="owner")
    create(gateway, PUMP, "c")
    affiliate(gateway, PUMP, "c", valve="outcast")
    gateway.tx(lambda tx: affiliations.remove_account(tx, VALVE_BARE))
    assert own(gateway, VALVE) == {"b": "owner"}
    assert of_node(gateway) == {PUMP_BARE: "owner"}
