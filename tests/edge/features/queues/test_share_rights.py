"""Shared subscriptions deliver an item only to members that may subscribe to its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from edge.config.options import AccessRule
from tests.helpers.pubsub import (
    OWNER,
    affiliate,
    change_access,
    create,
    element,
    form,
    send_request,
)
from tests.helpers.shared_subscriptions import SHARE, item_states, join, plain_items, publish
from tests.helpers.store import DOMAIN, Gateway, MakeGateway

BOSS: Final = f"boss@{DOMAIN}/fw"
MEMBER: Final = f"member@{DOMAIN}/foo"
OUTSIDER: Final = f"outsider@{DOMAIN}/foo"
CLOSED: Final = "plant/closed"
OPEN: Final = "plant/open"


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    """Set up an open and a closed node; only `member` may subscribe to the closed one."""
    gateway = make_gateway(accounts_of=("boss", "member", "outsider"))
    create(gateway, BOSS, CLOSED, access_model="whitelist")
    create(gateway, BOSS, OPEN)
    affiliate(gateway, BOSS, CLOSED, member="member")
    for full in (MEMBER, OUTSIDER):
        gateway.bind(full)
    return gateway


def _join(gateway: Gateway, *fulls: str, share: str = SHARE, **values: str) -> None:
    for full in fulls:
        join(gateway, full, share, jid=full, **{"qos": "0"} if share == SHARE else {}, **values)


def _request(gateway: Gateway, content: str) -> None:
    """Send a request of the nodes' owner."""
    assert send_request(gateway, BOSS, content, ns=OWNER).type == "result"


@pytest.mark.parametrize("policy", ["least-loaded", "hash", "sticky"])
def test_only_authorized_members_get_an_item(gateway: Gateway, policy: str) -> None:
    _join(gateway, OUTSIDER, MEMBER, queue_policy=policy)
    publish(gateway, *"abcdef", node=CLOSED, full=BOSS)
    assert plain_items(gateway, OUTSIDER) == []
    assert plain_items(gateway, MEMBER) == list("abcdef")


def test_items_without_an_authorized_member_are_held_and_block_nothing(gateway: Gateway) -> None:
    _join(gateway, OUTSIDER, MEMBER)
    gateway.end(MEMBER)
    publish(gateway, "a", "b", node=CLOSED, full=BOSS)
    publish(gateway, "c", node=OPEN, full=BOSS)
    assert plain_items(gateway, OUTSIDER) == ["c"]
    assert item_states(gateway) == [("a", "delayed"), ("b", "delayed")]
    gateway.bind(MEMBER)
    gateway.send(MEMBER, "<presence/>")
    gateway.run_timers()
    assert plain_items(gateway, MEMBER) == ["a", "b"]
    assert item_states(gateway) == []


def _open_node(gateway: Gateway) -> None:
    config = form("node_config", {"access_model": "open"})
    _request(gateway, element("configure", config, node=CLOSED))


@pytest.mark.parametrize(
    ("change", "receiver"),
    [
        (lambda gateway: affiliate(gateway, BOSS, CLOSED, outsider="member"), OUTSIDER),
        (_open_node, OUTSIDER),
        (lambda gateway: _join(gateway, MEMBER), MEMBER),
    ],
    ids=["right", "open node", "joins again"],
)
def test_held_items_are_released_when_a_member_becomes_eligible(
    gateway: Gateway, change: Callable[[Gateway], None], receiver: str
) -> None:
    _join(gateway, OUTSIDER, MEMBER)
    gateway.end(MEMBER)
    publish(gateway, "a", node=CLOSED, full=BOSS)
    assert plain_items(gateway, OUTSIDER) == []
    change(gateway)
    assert plain_items(gateway, receiver) == ["a"]


def test_many_items_for_a_full_authorized_member_block_nothing(gateway: Gateway) -> None:
    _join(gateway, MEMBER, OUTSIDER, queue_requests="1")
    ids = [f"c{number}" for number in range(12)]
    publish(gateway, *ids, node=CLOSED, full=BOSS)
    publish(gateway, "d", "e", node=OPEN, full=BOSS)
    assert plain_items(gateway, OUTSIDER) == ["d"]
    assert plain_items(gateway, OUTSIDER) == ["e"]
    assert [id for _each in ids for id in plain_items(gateway, MEMBER)] == ids


def test_held_items_are_dead_when_their_node_is_deleted(gateway: Gateway) -> None:
    _join(gateway, OUTSIDER, MEMBER)
    gateway.end(MEMBER)
    publish(gateway, "a", node=CLOSED, full=BOSS)
    _request(gateway, element("delete", node=CLOSED))
    gateway.run_timers()
    assert plain_items(gateway, OUTSIDER) == []
    assert item_states(gateway) == [("a", "dead")]
    (event,) = gateway.events(name="share_items_dead")
    assert (event.topic, event.value) == (CLOSED, 1)


def test_other_items_survive_the_deletion_of_their_node(gateway: Gateway) -> None:
    _join(gateway, MEMBER)
    gateway.end(MEMBER)
    publish(gateway, "a", node=OPEN, full=BOSS)
    _request(gateway, element("delete", node=OPEN))
    gateway.bind(MEMBER)
    gateway.run_timers()
    assert plain_items(gateway, MEMBER) == ["a"]


def test_changed_rules_apply_to_members_of_a_share(gateway: Gateway) -> None:
    _join(gateway, OUTSIDER, MEMBER)
    boss = AccessRule(device="boss", publish=["plant/#"])
    change_access(gateway, boss, AccessRule(device="member", subscribe=["plant/#"]))
    publish(gateway, "a", "b", node=OPEN, full=BOSS)
    assert plain_items(gateway, OUTSIDER) == []
    assert plain_items(gateway, MEMBER) == ["a", "b"]
    gateway.end(MEMBER)
    publish(gateway, "c", node=OPEN, full=BOSS)
    assert item_states(gateway) == [("c", "delayed")]
    change_access(gateway)
    assert plain_items(gateway, OUTSIDER) == ["c"]


@pytest.mark.parametrize("waits", [False, True], ids=["assigned at once", "waits in the queue"])
def test_changed_rules_apply_to_workers_of_a_queue_node(gateway: Gateway, waits: bool) -> None:
    create(gateway, BOSS, "plant/jobs", queueing="1")
    boss = AccessRule(device="boss", publish=["plant/#"])
    may = AccessRule(device="*", subscribe=["plant/jobs"])
    if not waits:
        _join(gateway, OUTSIDER, share="plant/jobs", queue_requests="2")
    change_access(gateway, boss, may)
    publish(gateway, "a", node="plant/jobs", full=BOSS)
    if waits:
        _join(gateway, OUTSIDER, share="plant/jobs", queue_requests="2")
    assert plain_items(gateway, OUTSIDER) == ["a"]
    change_access(gateway, boss)
    publish(gateway, "b", node="plant/jobs", full=BOSS)
    assert plain_items(gateway, OUTSIDER) == []
    change_access(gateway, boss, may)
    assert plain_items(gateway, OUTSIDER) == ["b"]
