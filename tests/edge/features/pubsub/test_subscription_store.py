"""Subscriptions in the database, and their index of filters in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.engine.store import database
from edge.engine.store.database import Transaction
from edge.features.accounts.store import accounts
from edge.features.pubsub.rules.node_config import QueuePolicy
from edge.features.pubsub.rules.subscription import DeliveryOptions, SubscriptionOptions
from edge.features.pubsub.store import subscriptions
from edge.features.pubsub.store.subscriptions import Subscription
from edge.features.queues.store import queues
from edge.topics import matches
from tests.helpers.store import Clock, in_memory, new_database, opened

NAMES: Final = ("a", "a/b", "b/a", "$a/b", "a/b/c")
FILTERS: Final = ("a/#", "+/b", "#", "a/+/c", "a/b", "$a/+")
SHARES: Final = ("one", "two")


class IndexedDatabase:
    """A database with the caches of a running gateway."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.cache: dict[str, Any] = {}
        self.number = 0
        self.all: list[int] = []
        self.run(lambda tx: accounts.add(tx, "pump", (), trusted=True))

    def run(self, unit: Callable[[Transaction], Any]) -> Any:
        """Run a unit of work with the caches of earlier ones."""
        self.connection.execute("BEGIN")
        found = unit(Transaction(self.connection, Clock()(), self.cache))
        self.connection.execute("COMMIT")
        return found

    def matched(self, name: str) -> tuple[list[Subscription], list[int]]:
        """Return the subscriptions and shares that match a name, from the index."""
        found: tuple[list[Subscription], list[int]] = self.run(
            lambda tx: (
                subscriptions.plain_matching(tx, name),
                subscriptions.shares_matching(tx, name),
            )
        )
        return found

    def stored(self, name: str) -> tuple[list[Subscription], list[int]]:
        """Return the same by comparing the name with each row."""
        tx = Transaction(self.connection, Clock()())
        found = [one for id in self.all if (one := subscriptions.get(tx, id)) is not None]
        matching = [one for one in found if matches(one.filter or "", name)]
        plain = [one for one in matching if one.queue is None]
        return plain, sorted({one.queue for one in matching if one.queue is not None})

    def add(self, filter: str, share: str | None) -> None:
        """Subscribe a new JID to a filter or a share."""
        self.number += 1
        number = self.number

        def unit(tx: Transaction) -> None:
            queue = None
            if share is not None:
                existing = queues.of_share(tx, share, filter)
                queue = (existing or queues.add_for_share(tx, share, filter)).id
            jid = f"pump@gw.example/{number}"
            found = subscriptions.add(tx, "pump", jid, str(number), filter=filter, queue=queue)
            self.all.append(found.id)

        self.run(unit)

    def change(self, index: int, unit: Callable[[Transaction, Subscription], None]) -> None:
        """Run a unit of work with one of the subscriptions, if it still exists."""

        def change(tx: Transaction) -> None:
            found = subscriptions.get(tx, self.all[index % len(self.all)])
            if found is not None:
                unit(tx, found)

        if self.all:
            self.run(change)


def remove(tx: Transaction, subscription: Subscription) -> None:
    """Remove a subscription, and its share if it was the last member."""
    subscriptions.remove(tx, subscription)
    queue = subscription.queue
    if queue is not None and not subscriptions.has_members(tx, queue):
        queues.remove(tx, queue)


def set_options(tx: Transaction, subscription: Subscription) -> None:
    options = SubscriptionOptions(deliver=False, qos=2, presence=True, requests=3)
    subscriptions.save(tx, subscription._replace(options=options))


_ADD = st.tuples(st.just("add"), st.sampled_from(FILTERS), st.sampled_from((None, *SHARES)))
_REMOVE = st.tuples(st.just("remove"), st.integers(0, 20), st.none())
_SET = st.tuples(st.just("set"), st.integers(0, 20), st.none())
_COMPARE = st.tuples(st.just("compare"), st.sampled_from(NAMES), st.none())


@given(st.lists(_ADD | _REMOVE | _SET | _COMPARE, max_size=16))
def test_the_index_agrees_with_the_rows(steps: list[tuple[str, Any, str | None]]) -> None:
    with in_memory() as connection:
        indexed = IndexedDatabase(connection)
        for step, operand, share in steps:
            if step == "add":
                indexed.add(operand, share)
            elif step == "remove":
                indexed.change(operand, remove)
            elif step == "set":
                indexed.change(operand, set_options)
            else:
                assert indexed.matched(operand) == indexed.stored(operand)
        for name in NAMES:
            assert indexed.matched(name) == indexed.stored(name)


OPTIONS: Final = (
    SubscriptionOptions(),
    SubscriptionOptions(qos=1),
    SubscriptionOptions(qos=1, delivery=DeliveryOptions(only_items=True)),
    SubscriptionOptions(qos=2, delivery=DeliveryOptions(only_items=True)),
    SubscriptionOptions(qos=1, delivery=DeliveryOptions(only_items=True, identifier=7)),
)


@given(
    st.lists(
        st.tuples(st.sampled_from(FILTERS), st.integers(1, 2), st.integers(0, len(OPTIONS) - 1)),
        max_size=16,
        unique_by=lambda one: one[:2],
    ),
    st.lists(st.tuples(st.integers(0, 15), st.integers(0, len(OPTIONS) - 1)), max_size=4),
)
def test_the_first_of_several_subscriptions_stands_for_all(
    wanted: list[tuple[str, int, int]], changes: list[tuple[int, int]]
) -> None:
    """Those that are left out get an item together with an earlier one of the same JID."""

    def add(tx: Transaction) -> list[Subscription]:
        return [
            subscriptions.add(
                tx,
                "pump",
                f"pump@gw.example/{jid}",
                str(number),
                filter=filter,
                options=OPTIONS[options],
            )
            for number, (filter, jid, options) in enumerate(wanted)
        ]

    def change(tx: Transaction) -> None:
        for number, options in changes:
            if number < len(added):
                found = subscriptions.get(tx, added[number].id)
                assert found is not None
                subscriptions.save(tx, found._replace(options=OPTIONS[options]))

    with in_memory() as connection:
        indexed = IndexedDatabase(connection)
        indexed.run(lambda tx: subscriptions.bundles_matching(tx, "a"))  # there is an index
        added = indexed.run(add)
        indexed.run(change)
        for name in NAMES:
            everything, _shares = indexed.matched(name)
            found = indexed.run(partial(subscriptions.bundles_matching, name=name))
            first: dict[object, Subscription] = {}
            for one in everything:
                delivery = one.options.delivery
                is_alone = delivery.identifier or not delivery.only_items
                first.setdefault(one.id if is_alone else (one.jid, one.options), one)
            assert found.subscriptions == list(first.values())
            assert found.total == len(everything)


def test_members_of_queues_are_no_plain_subscriptions(db: sqlite3.Connection) -> None:
    def unit(tx: Transaction) -> None:
        queue = queues.add_for_share(tx, "s", "a/#").id
        tx.run("INSERT INTO nodes (id, name, owner, config) VALUES (7, 'n', 'o', '{}')")
        work = queues.add_for_node(tx, 7).id
        bare, full, add = "pump@gw.example", "pump@gw.example/fw", subscriptions.add
        node = add(tx, "pump", bare, "1", node=7, options=SubscriptionOptions(deliver=False))
        filter = add(tx, "pump", full, "2", filter="a/#")
        share = add(tx, "pump", full, "3", filter="a/#", queue=queue)
        worker = add(tx, "pump", full, "4", node=7, queue=work)
        policies = [one.options.policy for one in (node, filter, share, worker)]
        assert policies == [None, None, QueuePolicy.LEAST_LOADED, None]
        assert tx.row("SELECT options FROM subscriptions") == ('{"pubsub#deliver":"0"}',)
        assert subscriptions.all_of_node(tx, 7) == [node, worker]
        assert subscriptions.plain_of_node(tx, 7) == [node]
        assert subscriptions.plain_matching(tx, "a") == [filter]
        assert subscriptions.members(tx, queue) == [share]
        assert subscriptions.count(tx) == 4

    IndexedDatabase(db).run(unit)


async def test_the_index_notices_an_account_removed_by_another_process(tmp_path: Path) -> None:
    path = new_database(tmp_path)
    async with opened(path) as store:

        def begin(tx: Transaction) -> None:
            accounts.add(tx, "pump", (), trusted=True)
            subscriptions.add(tx, "pump", "pump@gw.example", "1", filter="#")
            queue = queues.add_for_share(tx, "s", "#").id
            subscriptions.add(tx, "pump", "pump@gw.example", "2", filter="#", queue=queue)

        def count_matches(tx: Transaction) -> tuple[int, int, int]:
            found = subscriptions.plain_matching(tx, "a"), subscriptions.shares_matching(tx, "a")
            return len(found[0]), len(found[1]), len(queues.shares_without_members(tx))

        await store.run(begin)
        assert await store.run(count_matches) == (1, 1, 0)
        with (
            closing(database.connect(path)) as connection,
            database.transaction(connection, Clock()()) as tx,
        ):
            accounts.remove(tx, "pump")
        assert await store.run(count_matches) == (0, 1, 1)


async def test_a_rollback_is_not_indexed(tmp_path: Path) -> None:
    async with opened(new_database(tmp_path)) as store:
        await store.run(lambda tx: accounts.add(tx, "pump", (), trusted=True))
        await store.run(lambda tx: subscriptions.plain_matching(tx, "a"))

        def fail(tx: Transaction) -> None:
            subscriptions.add(tx, "pump", "pump@gw.example", "1", filter="#")
            assert len(subscriptions.plain_matching(tx, "a")) == 1
            tx.run("SELECT no_such_function()")

        with pytest.raises(Exception, match="no_such_function"):
            await store.run(fail)
        assert await store.run(lambda tx: subscriptions.plain_matching(tx, "a")) == []
