"""Ad-hoc commands (XEP-0050) for the owner of a queue node."""

from __future__ import annotations

import pytest

from edge.config.limits import Limits
from edge.engine.store.database import Transaction
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.store import affiliations
from edge.features.queues.store import queue_items, queues
from edge.features.queues.store.queue_items import NewQueuedItem
from edge.xmpp.commands import TABLE_CHARACTERS
from tests.helpers import queue_rows
from tests.helpers.adhoc_commands import (
    FORM,
    OLGA,
    OTHER,
    add_queue,
    begin,
    command,
    fields,
    form,
    note,
    rows,
)
from tests.helpers.people import make_available
from tests.helpers.queue_rows import FIRST
from tests.helpers.store import Gateway, MakeGateway, Reply


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    return add_queue(make_gateway())


def do(gateway: Gateway, name: str, **fields: str | list[str]) -> Reply:
    """Start a command of queues as olga and complete it with a form."""
    return do_as(OLGA, gateway, name, **fields)


def do_as(sender: str, gateway: Gateway, name: str, **fields: str | list[str]) -> Reply:
    """Start and complete a command as another account."""
    session = begin(gateway, f"{FORM}#{name}", sender)
    filled = form(FORM_TYPE=[FORM], **fields)
    return command(gateway, f"{FORM}#{name}", filled, sender=sender, sessionid=session)


def test_owner_sees_that_a_queue_is_full(make_gateway: MakeGateway) -> None:
    reply = do(add_queue(make_gateway(Limits(items_per_queue=5))), "show", node="work")
    text = "no more items are accepted: the limit items_per_queue = 5 is reached"
    assert note(reply) == ("info", f"5 items: 2 ready, 1 locked, 1 delayed, 1 dead; {text}")


def test_owner_sees_the_state_of_a_queue(gateway: Gateway) -> None:
    reply = do(gateway, "show", node="work")
    assert note(reply) == ("info", "5 items: 2 ready, 1 locked, 1 delayed, 1 dead")
    assert fields(reply) == {
        "FORM_TYPE": [FORM],
        "node": ["work"],
        "policy": ["least-loaded"],
        "items": ["5"],
        "bytes": [str(gateway.count("SELECT bytes FROM queues"))],
        "ready": ["2"],
        "locked": ["1"],
        "delayed": ["1"],
        "dead": ["1"],
        "members": ["0"],
        "attending": [],
    }
    assert [(row["item"], row["state"], row["why"], row["before"]) for row in rows(reply)] == [
        ("held", "locked", "locked", "0"),
        ("one", "ready", "no_member", "0"),
        ("two", "ready", "no_member", "1"),
        ("late", "delayed", "delayed", "0"),
        ("bad", "dead", "dead", "0"),
    ]
    assert [row["holder"] for row in rows(reply)] == [FIRST, "", "", "", ""]
    assert rows(reply)[2]["sentence"] == (
        "the queue has no subscribers; 1 ready item before it in the queue"
    )


def test_item_is_shown_with_connected_members(gateway: Gateway) -> None:
    def join(tx: Transaction) -> None:
        queue = queues.get(tx, 1)
        assert queue is not None
        for jid in ("worker@gw.example", "pump1@gw.example/fw"):
            queue_rows.join(tx, queue, jid, takes=3)

    gateway.tx(join)
    reply = do(gateway, "show", node="work", item="two")
    assert [row["sentence"] for row in rows(reply)] == [
        "no subscriber is connected: worker@gw.example, pump1@gw.example/fw;"
        " 1 ready item before it in the queue"
    ]
    make_available(gateway, OTHER)
    attending = fields(do(gateway, "show", node="work"))["attending"]
    assert attending[0].startswith("worker@gw.example: has ")
    assert attending[0].endswith(f" of 3 items; {OTHER}")
    assert attending[1] == "pump1@gw.example/fw: has 0 of 3 items; not connected"
    assert note(do(gateway, "show", node="work", item="nix")) == (
        "error",
        "there is no item 'nix' in work",
    )


def test_long_answer_is_truncated(gateway: Gateway) -> None:
    def add_items(tx: Transaction) -> None:
        queue = queues.of_node(tx, 1)
        assert queue is not None
        for number in range(10):
            name = f"{number}{'x' * 3000}"
            queue_items.enqueue(
                tx, queue, NewQueuedItem("work", name, queue_rows.PUBLISHER, b"", priority=9)
            )

    gateway.tx(add_items)
    found = rows(do(gateway, "show", node="work"))
    assert 1 < len(found) < 10
    assert sum(len(row["item"]) for row in found) < TABLE_CHARACTERS


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("show", {"item": "held"}),
        ("unlock", {"item": "held"}),
        ("requeue", {"all": "1"}),
        ("purge", {"sure": "1"}),
    ],
)
def test_only_an_owner_may_use_commands(
    gateway: Gateway, name: str, fields: dict[str, str | list[str]]
) -> None:
    gateway.tx(lambda tx: affiliations.put(tx, 1, "worker@gw.example", Affiliation.PUBLISHER))
    gateway.bind(OTHER)
    filled = {"node": "work"} | fields
    assert do_as(OTHER, gateway, name, **filled).error == ("auth", "forbidden")
    missing = do(gateway, name, **(filled | {"node": "nix"}))
    assert missing.error == ("cancel", "item-not-found")
    assert gateway.tx(queue_rows.states)["held"] == "locked"


def test_node_without_a_queue_is_refused(gateway: Gateway) -> None:
    gateway.tx(lambda tx: tx.run("DELETE FROM queues"))
    assert do(gateway, "show", node="work").error == ("modify", "bad-request")


def test_owner_unlocks_an_item(gateway: Gateway) -> None:
    assert note(do(gateway, "unlock", node="work", item="held")) == ("info", "held is unlocked")
    assert gateway.due is not None
    assert gateway.due <= gateway.clock.service
    gateway.run_timers()
    assert gateway.tx(queue_rows.states)["held"] == "ready"
    (event,) = gateway.events("system", "unlocked")
    assert (event.kind, event.source, event.topic) == ("queue", "olga@gw.example", "work")
    assert event.tags == {"item": "held", "holder": FIRST}


@pytest.mark.parametrize(
    ("item", "text"),
    [("nix", "there is no item 'nix' in work"), ("one", "item 'one' is not locked, but ready")],
)
def test_unlocked_item_cannot_be_unlocked(gateway: Gateway, item: str, text: str) -> None:
    assert note(do(gateway, "unlock", node="work", item=item)) == ("error", text)
    assert gateway.events("system", "unlocked") == []


def test_unlock_needs_an_item(gateway: Gateway) -> None:
    assert do(gateway, "unlock", node="work").error == ("modify", "bad-request")


@pytest.mark.parametrize("selection", [{"items": ["bad", "bad"]}, {"all": "1"}, {"all": "true"}])
def test_owner_requeues_dead_items(gateway: Gateway, selection: dict[str, str | list[str]]) -> None:
    reply = do(gateway, "requeue", node="work", **selection)
    assert note(reply) == ("info", "1 requeued, 0 still dead")
    assert gateway.tx(queue_rows.states)["bad"] == "ready"
    (event,) = gateway.events("system", "requeued")
    assert (event.value, event.text) == (1.0, "by the owner")


@pytest.mark.parametrize("selection", [{}, {"items": ["bad"], "all": "1"}, {"all": "0"}])
def test_requeue_needs_a_selection(gateway: Gateway, selection: dict[str, str | list[str]]) -> None:
    assert do(gateway, "requeue", node="work", **selection).error == ("modify", "bad-request")
    assert gateway.tx(queue_rows.states)["bad"] == "dead"


def test_named_items_are_requeued_all_or_none(gateway: Gateway) -> None:
    reply = do(gateway, "requeue", node="work", items=["bad", "one"])
    assert note(reply) == ("error", "item 'one' is not dead, but ready")
    assert gateway.tx(queue_rows.states)["bad"] == "dead"
    assert gateway.events("system", "requeued") == []


def test_owner_purges_a_queue(gateway: Gateway) -> None:
    assert do(gateway, "purge", node="work").error == ("modify", "bad-request")
    assert do(gateway, "purge", node="work", sure="0").error == ("modify", "bad-request")
    assert len(gateway.tx(queue_rows.states)) == 5
    assert note(do(gateway, "purge", node="work", sure="1")) == ("info", "5 deleted, 0 left")
    assert gateway.tx(queue_rows.states) == {}
    (event,) = gateway.events("system", "purged")
    assert (event.value, event.level, event.source) == (5.0, "Warning", "olga@gw.example")
