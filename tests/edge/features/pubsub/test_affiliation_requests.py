"""Affiliations: each sees its own, owners see and change those of their nodes (XEP-0060, 5.7 and
8.9); what becomes of them with an account."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.config.limits import Limits
from edge.engine.database import Transaction
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.store import affiliations, nodes
from edge.xmpp.namespaces import PUBSUB, PUBSUB_OWNER
from tests.helpers.nodes import (
    EVENT,
    OWNER,
    affiliate,
    create,
    form,
    refused,
    request,
    specific,
)
from tests.helpers.people import APART, PUMP, VALVE, appear, provision
from tests.helpers.store import DOMAIN, Gateway, Reply, new_database

ITEM = "<item><value xmlns='urn:x'/></item>"


@pytest.fixture
def two(gateway: Gateway) -> Gateway:
    """A gateway with a node of the pump, and the valve there."""
    appear(gateway, VALVE)
    create(gateway, "a")
    return gateway


def listed(reply: Reply, ns: str, key: str) -> dict[str | None, str | None]:
    assert reply.payload is not None, reply
    (found,) = reply.payload
    assert (reply.payload.tag, found.tag) == (f"{{{ns}}}pubsub", f"{{{ns}}}affiliations")
    return {one.get(key): one.get("affiliation") for one in found}


def own(gateway: Gateway, sender: str, node: str = "") -> dict[str | None, str | None]:
    asked = f" node='{node}'" if node else ""
    reply = request(gateway, f"<affiliations{asked}/>", type="get", sender=sender)
    return listed(reply, PUBSUB, "node")


def of_node(gateway: Gateway, node: str = "a") -> dict[str | None, str | None]:
    reply = request(gateway, f"<affiliations node='{node}'/>", ns=OWNER, type="get")
    return listed(reply, PUBSUB_OWNER, "jid")


# Own: section 5.7


def test_everybody_sees_what_they_are(two: Gateway) -> None:
    create(two, "b")
    assert own(two, PUMP) == {"a": "owner", "b": "owner"}
    assert own(two, VALVE) == {}
    affiliate(two, "b", valve="publish-only")
    affiliate(two, "a", valve="outcast")
    assert own(two, VALVE) == {"a": "outcast", "b": "publish-only"}
    assert own(two, VALVE, "b") == {"b": "publish-only"}
    assert own(two, PUMP, "b") == {"b": "owner"}


def test_nobody_is_anything_to_a_node_that_is_not_there(two: Gateway) -> None:
    error = specific(two, "<affiliations node='c'/>", type="get")
    assert error == ("cancel/item-not-found", "")


def test_who_may_not_use_services_is_not_told(two: Gateway) -> None:
    assert refused(request(two, "<affiliations/>", type="get", sender=APART)) == "auth/forbidden"


# An owner's: section 8.9


def test_an_owner_changes_affiliations(two: Gateway) -> None:
    assert of_node(two) == {"pump1@gw.example": "owner"}
    assert affiliate(two, "a", valve="publisher", lamp="member").payload is None
    assert of_node(two) == {
        "pump1@gw.example": "owner",
        "valve@gw.example": "publisher",
        "lamp@gw.example": "member",
    }
    affiliate(two, "a", valve="none")
    assert of_node(two) == {"pump1@gw.example": "owner", "lamp@gw.example": "member"}


@pytest.mark.parametrize("type", ["get", "set"])
def test_affiliations_are_their_owners(two: Gateway, type: str) -> None:
    change = f"<affiliation jid='valve@{DOMAIN}' affiliation='owner'/>" if type == "set" else ""

    def ask(attrs: str, sender: str = PUMP) -> tuple[str, str]:
        content = f"<affiliations{attrs}>{change}</affiliations>"
        return specific(two, content, ns=OWNER, type=type, sender=sender)

    assert ask("") == ("modify/bad-request", "nodeid-required")
    assert ask(" node='c'") == ("cancel/item-not-found", "")
    assert ask(" node='a'", VALVE) == ("auth/forbidden", "")
    affiliate(two, "a", valve="publisher")
    assert ask(" node='a'", VALVE) == ("auth/forbidden", "")


def change(gateway: Gateway, *affiliations: tuple[str, str | None]) -> str:
    content = "".join(
        f"<affiliation jid='{jid}'" + (f" affiliation='{what}'/>" if what is not None else "/>")
        for jid, what in affiliations
    )
    reply = request(gateway, f"<affiliations node='a'>{content}</affiliations>", ns=OWNER)
    return reply.type if reply.error is None else refused(reply)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ([], "modify/bad-request"),
        ([("valve@gw.example", "member"), ("VALVE@gw.example", "none")], "modify/bad-request"),
        ([("valve@gw.example", "king")], "modify/not-acceptable"),
        ([("valve@gw.example/fw", "member")], "modify/not-acceptable"),
        ([("valve@elsewhere.example", "member")], "modify/not-acceptable"),
        ([("gw.example", "member")], "modify/not-acceptable"),
        ([("@", "member")], "modify/not-acceptable"),
        ([("pump1@gw.example", "none")], "modify/not-acceptable"),
        ([("pump1@gw.example", "publisher")], "modify/not-acceptable"),
    ],
)
def test_changes_that_cannot_be(
    two: Gateway, changes: list[tuple[str, str | None]], error: str
) -> None:
    assert change(two, *changes) == error
    if changes:
        assert change(two, ("lamp@gw.example", "member"), *changes) == error
    assert of_node(two) == {"pump1@gw.example": "owner"}


def test_nothing_else_is_changed_by_such_a_request(two: Gateway) -> None:
    content = "<affiliations node='a'><subscription/></affiliations>"
    assert refused(request(two, content, ns=OWNER)) == "modify/bad-request"


def test_who_is_named_without_an_affiliation_keeps_theirs(two: Gateway) -> None:
    affiliate(two, "a", valve="member")
    assert change(two, ("valve@gw.example", None), ("lamp@gw.example", "outcast")) == "result"
    assert of_node(two)["valve@gw.example"] == "member"


def test_an_error_shows_what_all_still_are(two: Gateway) -> None:
    affiliate(two, "a", valve="member")
    reply = affiliate(two, "a", pump1="none", valve="none", lamp="publisher")
    assert refused(reply) == "modify/not-acceptable"
    assert listed(reply, PUBSUB_OWNER, "jid") == {
        "pump1@gw.example": "owner",
        "valve@gw.example": "member",
        "lamp@gw.example": "none",
    }


def test_an_owner_may_go_when_another_is_there(two: Gateway) -> None:
    assert affiliate(two, "a", pump1="none", valve="owner").type == "result"
    reply = request(two, "<affiliations node='a'/>", ns=OWNER, type="get", sender=VALVE)
    assert listed(reply, PUBSUB_OWNER, "jid") == {"valve@gw.example": "owner"}


def test_affiliations_are_bounded_and_that_is_logged(tmp_path: Path) -> None:
    gateway = Gateway(new_database(tmp_path), Limits(affiliations=2))
    provision(gateway)
    create(gateway, "a")
    assert change(gateway, ("valve@gw.example", "member")) == "result"
    assert change(gateway, ("lamp@gw.example", "member")) == "wait/resource-constraint"
    assert change(gateway, ("lamp@gw.example", "none")) == "result"
    swapped = ("valve@gw.example", "none"), ("lamp@gw.example", "member")
    assert change(gateway, *swapped) == "result"
    (limit,) = gateway.events("system", "affiliations")
    assert (limit.kind, limit.source, limit.tags) == ("limit", "pump1@gw.example", {"limit": "2"})
    gateway.close()


# What they are good for


@pytest.mark.parametrize(
    ("what", "model", "may"),
    [
        ("publisher", "publishers", True),
        ("publish-only", "publishers", True),
        ("member", "publishers", False),
        ("none", "publishers", False),
        ("none", "open", True),
        ("outcast", "open", False),
    ],
)
def test_who_publishes(two: Gateway, what: str, model: str, may: bool) -> None:
    create(two, "b", publish_model=model)
    affiliate(two, "b", valve=what)
    reply = request(two, f"<publish node='b'>{ITEM}</publish>", sender=VALVE)
    assert (reply.error is None) is may
    if not may:
        assert refused(reply) == "auth/forbidden"


def test_subscribers_publish_where_the_node_says_so(two: Gateway) -> None:
    create(two, "b", publish_model="subscribers")
    publication = f"<publish node='b'>{ITEM}</publish>"
    assert refused(request(two, publication, sender=VALVE)) == "auth/forbidden"
    request(two, f"<subscribe node='b' jid='{VALVE}'/>", sender=VALVE)
    assert request(two, publication, sender=VALVE).type == "result"


@pytest.mark.parametrize(
    ("what", "may"), [("member", True), ("publish-only", False), ("outcast", False)]
)
def test_who_subscribes_to_a_closed_node(two: Gateway, what: str, may: bool) -> None:
    create(two, "b", access_model="whitelist")
    affiliate(two, "b", valve=what)
    reply = request(two, f"<subscribe node='b' jid='{VALVE}'/>", sender=VALVE)
    assert (reply.error is None) is may
    if not may:
        assert refused(reply) == "auth/forbidden"


def test_an_outcast_loses_the_subscription_and_is_told(two: Gateway) -> None:
    request(two, f"<subscribe node='a' jid='{VALVE}'/>", sender=VALVE)
    two.elements(VALVE)
    affiliate(two, "a", valve="outcast")
    (message,) = two.elements(VALVE)
    subscription = message.find(f"{EVENT}event/{EVENT}subscription")
    assert subscription is not None
    assert subscription.get("subscription") == "none"
    assert request(two, f"<publish node='a'>{ITEM}</publish>").type == "result"
    assert two.elements(VALVE) == []


# Accounts that go


def test_who_gets_the_name_of_a_removed_account_gets_what_it_alone_owned(two: Gateway) -> None:
    create(two, "b", sender=VALVE)
    affiliate(two, "a", valve="owner")
    create(two, "c")
    affiliate(two, "c", valve="outcast")
    two.tx(lambda tx: affiliations.remove_account(tx, "valve@gw.example"))
    assert own(two, VALVE) == {"b": "owner"}
    assert of_node(two) == {"pump1@gw.example": "owner"}


def test_nodes_are_found_by_number_and_in_pages(two: Gateway) -> None:
    create(two, "c")
    create(two, "b")

    def unit(tx: Transaction) -> list[str]:
        found = nodes.get(tx, "b")
        assert found is not None
        assert nodes.by_id(tx, found.id) == found
        assert nodes.by_id(tx, 99) is None
        assert affiliations.get(tx, found.id, "valve@gw.example") is Affiliation.NONE
        return [node.name for node in nodes.page(tx, "a", 5)]

    assert two.tx(unit) == ["b", "c"]


def test_a_form_for_something_else_is_no_configuration(two: Gateway) -> None:
    content = f"<configure node='a'>{form('subscribe_options')}</configure>"
    assert refused(request(two, content, ns=OWNER)) == "modify/bad-request"
