"""Affiliations: requests about them (XEP-0060, 5.7 and 8.9), and the rights that they give."""

from __future__ import annotations

from itertools import product
from typing import Final, get_args

import pytest

from edge.features.pubsub.rules import affiliation as rules
from edge.features.pubsub.rules.affiliation import AccessModel, Affiliation, PublishModel
from edge.features.pubsub.store import affiliations
from tests.helpers.people import PUMP, UNTRUSTED, VALVE, VALVE_BARE
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
LAMP_BARE: Final = "lamp@gw.example"
FORBIDDEN: Final = ("auth", "forbidden")
READERS: Final = (Affiliation.OWNER, Affiliation.PUBLISHER, Affiliation.MEMBER)
WRITERS: Final = (Affiliation.OWNER, Affiliation.PUBLISHER, Affiliation.PUBLISH_ONLY)
ADMITTED: Final = [("open", False), ("open", True), ("presence", True), ("roster", True)]
"""Access models, each with `in_roster`, that admit accounts without an affiliation."""


# Rights


@pytest.mark.parametrize("affiliation", Affiliation)
def test_affiliation_and_model_permit_subscribing_and_discovery(affiliation: Affiliation) -> None:
    for model, in_roster in product(get_args(AccessModel), (False, True)):
        expected = affiliation in READERS
        if affiliation is Affiliation.NONE:
            expected = (model, in_roster) in ADMITTED
        assert rules.may_subscribe(affiliation, model, in_roster=in_roster) is expected
        discovers = expected or affiliation is Affiliation.PUBLISH_ONLY
        assert rules.may_discover(affiliation, model, in_roster=in_roster) is discovers


@pytest.mark.parametrize("affiliation", Affiliation)
def test_affiliation_and_model_permit_publishing(affiliation: Affiliation) -> None:
    for model, subscribed in product(get_args(PublishModel), (False, True)):
        expected = affiliation in WRITERS
        if affiliation in (Affiliation.MEMBER, Affiliation.NONE):
            expected = model == "open" or (model == "subscribers" and subscribed)
        assert rules.may_publish(affiliation, model, subscribed=subscribed) is expected


@pytest.mark.parametrize("affiliation", Affiliation)
def test_affiliation_permits_deleting_items_and_configuring(affiliation: Affiliation) -> None:
    is_owner = affiliation is Affiliation.OWNER
    may_delete = affiliation in (Affiliation.OWNER, Affiliation.PUBLISHER)
    assert rules.may_delete_item(affiliation, own=False) is may_delete
    assert rules.may_delete_item(affiliation, own=True) is (affiliation is not Affiliation.OUTCAST)
    assert rules.may_configure(affiliation) is is_owner


# Requests


@pytest.fixture
def gateway(gateway: Gateway) -> Gateway:
    """A gateway on which the pump owns the node `a`."""
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
    missing = element("affiliations", node="c")
    assert refusal(gateway, PUMP, missing, "get") == ("cancel", "item-not-found", "")
    assert refusal(gateway, UNTRUSTED, "<affiliations/>", "get") == (*FORBIDDEN, "")


def test_an_owner_changes_affiliations(gateway: Gateway) -> None:
    assert of_node(gateway) == {PUMP_BARE: "owner"}
    assert affiliate(gateway, PUMP, "a", valve="publisher", lamp="member").payload is None
    assert of_node(gateway) == {PUMP_BARE: "owner", VALVE_BARE: "publisher", LAMP_BARE: "member"}
    affiliate(gateway, PUMP, "a", valve="none")
    assert of_node(gateway) == {PUMP_BARE: "owner", LAMP_BARE: "member"}
    assert change(gateway, (LAMP_BARE, None), (VALVE_BARE, "outcast")).type == "result"
    assert of_node(gateway)[LAMP_BARE] == "member", "an entry without an affiliation changes none"
    assert affiliate(gateway, PUMP, "a", pump1="none", valve="owner").type == "result"
    assert of_node(gateway, VALVE) == {VALVE_BARE: "owner", LAMP_BARE: "member"}


@pytest.mark.parametrize(
    ("changes", "condition"),
    [
        ([], "bad-request"),
        ([(VALVE_BARE, "member"), ("VALVE@gw.example", "none")], "bad-request"),
        ([(VALVE_BARE, "king")], "not-acceptable"),
        ([(VALVE, "member")], "not-acceptable"),
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
        reply = change(gateway, (LAMP_BARE, "member"), *changes)
        assert error_of(reply) == ("modify", condition)
    assert of_node(gateway) == {PUMP_BARE: "owner"}


def test_other_elements_are_refused(gateway: Gateway) -> None:
    content = element("affiliations", "<subscription/>", node="a")
    assert refusal(gateway, PUMP, content, ns=OWNER) == ("modify", "bad-request", "")


def test_a_refusal_lists_the_current_affiliations(gateway: Gateway) -> None:
    affiliate(gateway, PUMP, "a", valve="member")
    reply = affiliate(gateway, PUMP, "a", pump1="none", valve="none", lamp="publisher")
    assert error_of(reply) == ("modify", "not-acceptable")
    current = {PUMP_BARE: "owner", VALVE_BARE: "member", LAMP_BARE: "none"}
    assert parse(reply, OWNER, "jid") == current


def test_affiliations_are_limited_and_a_refusal_is_logged(build_empty: MakeGateway) -> None:
    gateway = build_empty(affiliations=2)
    create(gateway, PUMP, "a")
    assert change(gateway, (VALVE_BARE, "member")).type == "result"
    assert error_of(change(gateway, (LAMP_BARE, "member"))) == ("wait", "resource-constraint")
    assert change(gateway, (LAMP_BARE, "none")).type == "result"
    assert change(gateway, (VALVE_BARE, "none"), (LAMP_BARE, "member")).type == "result"
    (limit,) = gateway.events("system", "affiliations")
    assert (limit.kind, limit.source, limit.tags) == ("limit", PUMP_BARE, {"limit": "2"})


@pytest.mark.parametrize(
    ("affiliation", "publishes", "subscribes"),
    [("publish-only", True, False), ("member", False, True), ("outcast", False, False)],
)
def test_an_affiliation_admits_to_a_closed_node(
    gateway: Gateway, affiliation: str, publishes: bool, subscribes: bool
) -> None:
    create(gateway, PUMP, "b", access_model="whitelist")
    affiliate(gateway, PUMP, "b", valve=affiliation)
    assert publish(gateway, VALVE, "b", item()).error == (None if publishes else FORBIDDEN)
    assert subscribe(gateway, VALVE, "b").error == (None if subscribes else FORBIDDEN)


def test_a_removed_account_leaves_the_nodes_that_it_alone_owns_to_another(
    gateway: Gateway,
) -> None:
    create(gateway, VALVE, "b")
    affiliate(gateway, PUMP, "a", valve="owner")
    create(gateway, PUMP, "c")
    affiliate(gateway, PUMP, "c", valve="outcast")
    gateway.tx(lambda tx: affiliations.transfer(tx, VALVE_BARE, DOMAIN, all_rights=False))
    assert own(gateway, VALVE) == {}
    assert gateway.tx(lambda tx: affiliations.only_owned(tx, DOMAIN)) == ["b"]
    assert of_node(gateway) == {PUMP_BARE: "owner"}
