"""Shared subscriptions deliver an item only to members that may subscribe to its node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.helpers.pubsub import OWNER, create, element, form, send_request, subscribe
from tests.helpers.store import DOMAIN, Gateway, new_database

BOSS: Final = f"boss@{DOMAIN}/fw"
IN: Final = f"in@{DOMAIN}/foo"
OUT: Final = f"out@{DOMAIN}/foo"
SHARE: Final = "$share:s:plant/#"
CLOSED: Final = "plant/closed"
OPEN: Final = "plant/open"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """Set up an open and a closed node; only `in` may subscribe to the closed one."""
    gateway = Gateway(new_database(tmp_path))
    for name in ("boss", "in", "out"):
        gateway.add(name)
    create(gateway, BOSS, CLOSED, access_model="whitelist")
    create(gateway, BOSS, OPEN)
    _affiliate(gateway, "member", IN)
    for full in (IN, OUT):
        gateway.bind(full)
    yield gateway
    gateway.close()


def _affiliate(gateway: Gateway, affiliation: str, full: str, node: str = CLOSED) -> None:
    change = element("affiliation", jid=full.partition("/")[0], affiliation=affiliation)
    reply = send_request(gateway, BOSS, element("affiliations", change, node=node), "set", OWNER)
    assert reply.type == "result", (reply.error, reply.text)


def _join(gateway: Gateway, *fulls: str, policy: str = "least-loaded", **values: str) -> None:
    for full in fulls:
        reply = subscribe(gateway, full, SHARE, full, qos="0", queue_policy=policy, **values)
        assert reply.type == "result", (reply.error, reply.text)


def _publish(gateway: Gateway, node: str, *ids: str) -> None:
    for id in ids:
        item = element("item", "<v xmlns='urn:v'/>", id=id)
        assert send_request(gateway, BOSS, element("publish", item, node=node)).type == "result"


def _got(gateway: Gateway, full: str) -> list[str]:
    name = "{http://jabber.org/protocol/pubsub#event}item"
    return [item.attrib["id"] for m in gateway.elements(full) for item in m.iter(name)]


def _states(gateway: Gateway) -> dict[str, str]:
    return dict(gateway.connection.execute("SELECT item, state FROM queue_items").fetchall())


@pytest.mark.parametrize("policy", ["least-loaded", "hash", "sticky"])
def test_only_authorized_members_get_an_item(gateway: Gateway, policy: str) -> None:
    _join(gateway, OUT, IN, policy=policy)
    _publish(gateway, CLOSED, *"abcdef")
    assert _got(gateway, OUT) == []
    assert _got(gateway, IN) == list("abcdef")


def test_items_without_an_authorized_member_are_held_and_block_nothing(gateway: Gateway) -> None:
    _join(gateway, OUT, IN)
    gateway.end(IN)
    _publish(gateway, CLOSED, "a", "b")
    _publish(gateway, OPEN, "c")
    assert _got(gateway, OUT) == ["c"]
    assert _states(gateway) == {"a": "delayed", "b": "delayed"}
    gateway.bind(IN)
    gateway.send(IN, "<presence/>")
    gateway.run_timers()
    assert _got(gateway, IN) == ["a", "b"]
    assert _states(gateway) == {}


def _grant_right(gateway: Gateway) -> None:
    _affiliate(gateway, "member", OUT)


def _open_node(gateway: Gateway) -> None:
    configure = element("configure", form("node_config", {"access_model": "open"}), node=CLOSED)
    assert send_request(gateway, BOSS, configure, "set", OWNER).type == "result"


def _join_again(gateway: Gateway) -> None:
    gateway.bind(IN)
    _join(gateway, IN)


@pytest.mark.parametrize(
    ("change", "receiver"), [(_grant_right, OUT), (_open_node, OUT), (_join_again, IN)]
)
def test_held_items_are_released_when_a_member_becomes_eligible(
    gateway: Gateway, change: Callable[[Gateway], None], receiver: str
) -> None:
    _join(gateway, OUT, IN)
    gateway.end(IN)
    _publish(gateway, CLOSED, "a")
    assert _got(gateway, OUT) == []
    change(gateway)
    assert _got(gateway, receiver) == ["a"]


def test_many_items_for_a_full_authorized_member_block_nothing(gateway: Gateway) -> None:
    subscribe(gateway, IN, SHARE, IN, qos="0", queue_requests="1")
    subscribe(gateway, OUT, SHARE, OUT, qos="0", queue_requests="1")
    ids = [f"c{number}" for number in range(12)]
    _publish(gateway, CLOSED, *ids)
    _publish(gateway, OPEN, "d", "e")
    assert _got(gateway, OUT) == ["d"]
    assert _got(gateway, OUT) == ["e"]
    assert [id for _each in ids for id in _got(gateway, IN)] == ids


def test_held_items_are_dead_when_their_node_is_deleted(gateway: Gateway) -> None:
    _join(gateway, OUT, IN)
    gateway.end(IN)
    _publish(gateway, CLOSED, "a")
    assert (
        send_request(gateway, BOSS, element("delete", node=CLOSED), "set", OWNER).type == "result"
    )
    gateway.run_timers()
    assert _got(gateway, OUT) == []
    assert _states(gateway) == {"a": "dead"}
    (event,) = gateway.events(name="share_items_dead")
    assert (event.topic, event.value) == (CLOSED, 1)


def test_other_items_survive_the_deletion_of_their_node(gateway: Gateway) -> None:
    _join(gateway, IN)
    gateway.end(IN)
    _publish(gateway, OPEN, "a")
    assert send_request(gateway, BOSS, element("delete", node=OPEN), "set", OWNER).type == "result"
    gateway.bind(IN)
    gateway.run_timers()
    assert _got(gateway, IN) == ["a"]
