"""Rights to items: each combination of the table in docs/reference/item-rights.md."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from edge.config.limits import Limits
from edge.engine.store.database import Transaction
from edge.features.accounts.store import accounts
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.ops.devices import orphans
from edge.xmpp.namespaces import PUBSUB
from tests.helpers.pubsub import (
    affiliate,
    create,
    element,
    form,
    item,
    publish,
    reading,
    retract,
    send_request,
    subscribe,
)
from tests.helpers.store import DOMAIN, Gateway, MakeGateway, Reply

DOCUMENT: Final = Path(__file__).parents[4] / "docs" / "reference" / "item-rights.md"
HEADER: Final = "| request | place | item | whose | affiliation | publish model | reply | effect |"
MODELS: Final = ("publishers", "subscribers", "subscribed", "open")
STATES: Final = {
    "node": ["stored"],
    "share": ["stored"],
    "queue": ["waiting", "locked", "dead", "done"],
}
OWNER: Final = f"owner@{DOMAIN}/o"
ACTOR: Final = f"actor@{DOMAIN}/a"
OTHER: Final = f"other@{DOMAIN}/x"
BARE_ACTOR: Final = f"actor@{DOMAIN}"
BARE_OTHER: Final = f"other@{DOMAIN}"
STORED: Final = """
SELECT id, publisher, body FROM items
UNION ALL
SELECT q.id, q.publisher, b.body
FROM queue_items AS q JOIN queue_bodies AS b ON b.id = q.id JOIN queues ON queues.id = q.queue
WHERE queues.node IS NOT NULL
"""
OLD, NEW = reading(1), reading(2)


class Row(NamedTuple):
    """A row of the table: the values of each column that fit, the reply, and the effect."""

    columns: Sequence[frozenset[str]]
    reply: str
    effect: str

    def fits(self, values: Sequence[str]) -> bool:
        return all(
            "any" in allowed or value in allowed
            for value, allowed in zip(values, self.columns, strict=True)
        )


@cache
def table() -> list[Row]:
    """Return the rows of the table in the document."""
    text = DOCUMENT.read_text("utf-8").partition(HEADER)[2]
    rows = []
    for line in text.strip().splitlines()[1:]:
        if not line.startswith("|"):
            break
        *columns, reply, effect = (cell.strip() for cell in line.strip("|").split("|"))
        allowed = [frozenset(cell.split(", ")) for cell in columns]
        rows.append(Row(allowed, reply.strip("`"), effect))
    return rows


def combinations() -> list[tuple[str, ...]]:
    return [
        (request, place, state, whose, affiliation.value, model)
        for place, states in STATES.items()
        for request, state, whose, affiliation, model in product(
            ("publish", "repeat", "delete"), states, ("own", "other", "former"), Affiliation, MODELS
        )
    ]


def test_every_row_of_the_table_is_the_first_that_fits_a_combination() -> None:
    used = {next(i for i, row in enumerate(table()) if row.fits(one)) for one in combinations()}
    assert used == set(range(len(table())))


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    """A gateway with a member of a share of all nodes below `share/`, which gets no items."""
    gateway = make_gateway()
    for full in (OWNER, ACTOR, OTHER):
        gateway.add(full.partition("@")[0])
        gateway.bind(full)
    subscribe(gateway, OTHER, "$share:s:share/#", BARE_OTHER)
    return gateway


@pytest.mark.parametrize("place", STATES)
def test_each_combination_has_the_documented_reply_and_effect(gateway: Gateway, place: str) -> None:
    for one in combinations():
        if one[1] != place:
            continue
        row = next(row for row in table() if row.fits(one))
        node = "queue" if place == "queue" else f"{place}/n"
        _set_up(gateway, node, *one[2:])
        before = _stored(gateway)
        reply = _request(gateway, one[0], node)
        after = _stored(gateway)
        condition = "result" if reply.error is None else reply.error[1]
        assert (condition, _effect(before, after)) == (row.reply, row.effect), one
        copies = gateway.connection.execute("SELECT body FROM queue_bodies").fetchall()
        if place == "share":
            assert copies[0] == (OLD.encode(),), "what the share has got stays as it was"
        send_request(gateway, OWNER, element("delete", node=node), ns=f"{PUBSUB}#owner")
        gateway.tx(lambda tx: tx.run("DELETE FROM queue_items"))


def _set_up(
    gateway: Gateway, node: str, state: str, whose: str, affiliation: str, model: str
) -> None:
    queueing = "1" if node == "queue" else "0"
    create(gateway, OWNER, node, queueing=queueing, publish_model="open")
    published = publish(gateway, OTHER if whose == "other" else ACTOR, node, item("x", OLD))
    assert published.type == "result"
    if whose == "former":
        gateway.tx(_replace_actor)
        gateway.bind(ACTOR)
    if model == "subscribed":
        options = {"queue_requests": "1"} if node == "queue" else {}
        assert subscribe(gateway, ACTOR, node, BARE_ACTOR, **options).type == "result"
    if affiliation != "none":
        assert affiliate(gateway, OWNER, node, actor=affiliation).type == "result"
    publish_model = "subscribers" if model == "subscribed" else model
    config = element("configure", form("node_config", {"publish_model": publish_model}), node=node)
    assert send_request(gateway, OWNER, config, ns=f"{PUBSUB}#owner").type == "result"
    if state == "done":
        gateway.tx(lambda tx: tx.run("DELETE FROM queue_items"))
    elif node == "queue":
        stored = "ready" if state == "waiting" else state
        gateway.tx(lambda tx: tx.run("UPDATE queue_items SET state = ?", (stored,)))
    gateway.tx(lambda tx: tx.run("UPDATE items SET wall = 0"))


def _replace_actor(tx: Transaction) -> None:
    orphans.hand_over(tx, DOMAIN, Limits(), BARE_ACTOR)
    accounts.remove(tx, "actor")
    accounts.add(tx, "actor", (), trusted=True)


def _request(gateway: Gateway, request: str, node: str) -> Reply:
    if request == "delete":
        return retract(gateway, ACTOR, node, "x")
    return publish(gateway, ACTOR, node, item("x", NEW if request == "publish" else OLD))


def _stored(gateway: Gateway) -> tuple[object, ...] | None:
    """Return the node's item, from its table or its queue; `None` if there is none."""
    found = gateway.connection.execute(STORED).fetchall()
    assert len(found) < 2
    return found[0] if found else None


def _effect(before: tuple[object, ...] | None, after: tuple[object, ...] | None) -> str:
    if before == after:
        return "none"
    if after is None:
        return "deleted"
    assert after[1] == ACTOR
    return "added" if before is None else "replaced"
