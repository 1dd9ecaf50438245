"""Stateful test of a queue node on a real database, with publishers, workers and crashes.

Each model worker knows which items were delivered to it and believes all notifications. After each
step the database, the workers and the counters of the gateway must agree.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edge.config.limits import Limits
from edge.engine.store.database import Transaction
from edge.features.pubsub.rules.node_config import QueuePolicy
from edge.features.queues.rules.assignment import slot_of
from edge.features.queues.store import queue_items
from tests.helpers import pubsub
from tests.helpers import queue_nodes as helper
from tests.helpers.pubsub import element, send_request
from tests.helpers.pubsub_image import DryRunGateway
from tests.helpers.queue_nodes import NODE, OWNER
from tests.helpers.store import DOMAIN, new_database

LONG: Final = os.environ.get("FIELDPOST_TEST_LONG") == "1"
PUBLISHERS: Final = tuple(f"{name}@{DOMAIN}/s" for name in ("sensor", "meter", "probe"))
ALONE: Final = tuple(f"{name}@{DOMAIN}/w" for name in ("one", "two", "three"))
PAIR: Final = (f"pair@{DOMAIN}/a", f"pair@{DOMAIN}/b")
WORKERS: Final = ALONE + PAIR
"""All workers; the last two are sessions of one subscription."""

LIMITS: Final = Limits(outbox_ttl=10_000_000)

_ITEMS: Final = """
SELECT id, item, publisher, state, priority, deliveries, subscription, holder FROM queue_items
ORDER BY id
"""


class Row:
    """An item in the database."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.place, self.item, self.publisher, self.state = row[:4]
        self.priority, self.deliveries, self.subscription, self.holder = row[4:]


class QueueMachine(RuleBasedStateMachine):
    """Everything that can happen to a queue node."""

    @initialize(
        policy=st.sampled_from(QueuePolicy),
        deliveries=st.integers(2, 6),
        requests=st.tuples(*[st.integers(1, 3)] * 4),
    )
    def begin(self, policy: QueuePolicy, deliveries: int, requests: tuple[int, ...]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.gateway = DryRunGateway(new_database(Path(self.folder.name)), LIMITS)
        self.policy = policy
        for full in (OWNER, *PUBLISHERS, *ALONE, PAIR[0]):
            self.gateway.add(full.partition("@")[0])
        for full in (OWNER, *PUBLISHERS):
            self.gateway.bind(full)
        config = {"queueing": "1", "publish_model": "open", "queue_lock_timeout": "60"}
        config |= {"queue_policy": policy.value, "queue_max_deliveries": str(deliveries)}
        pubsub.create(self.gateway, OWNER, NODE, **config)
        self.max_deliveries = deliveries
        self.requests = dict(zip((*ALONE, f"pair@{DOMAIN}"), requests, strict=True))
        self.believes: dict[str, set[str]] = {full: set() for full in WORKERS}
        self.detached: set[str] = set()
        self.published: set[str] = set()
        self.deleted: set[str] = set()
        self.before: dict[str, Row] = {}

    def teardown(self) -> None:
        if hasattr(self, "gateway"):
            self.drain()
            self.gateway.close()
            self.folder.cleanup()

    # Rules

    @rule(by=st.sampled_from(PUBLISHERS), priority=st.sampled_from([0, 0, 0, 1]))
    def publish(self, by: str, priority: int) -> None:
        id = f"i{len(self.published)}"
        options = {"queue_priority": str(priority)} if priority else {}
        helper.publish(self.gateway, id, by=by, **options)
        self.published.add(id)

    @rule(by=st.sampled_from(PUBLISHERS), delay=st.integers(1, 90))
    def publish_delayed(self, by: str, delay: int) -> None:
        id = f"i{len(self.published)}"
        helper.publish(self.gateway, id, by=by, queue_delay=str(delay))
        self.published.add(id)

    @rule(full=st.sampled_from(WORKERS))
    def subscribe(self, full: str) -> None:
        if not self.gateway.is_bound(full):
            self.gateway.bind(full)
            self.gateway.run_timers()
            self.receive()
        if full in PAIR:
            self.gateway.send(full, "<presence/>")
        jid = self.subscribed_jid(full)
        helper.subscribe_worker(self.gateway, full, self.requests[jid], jid)

    @rule(full=st.sampled_from(WORKERS))
    def bind(self, full: str) -> None:
        if not self.gateway.is_bound(full):
            self.gateway.bind(full)
            self.gateway.run_timers()

    @rule(full=st.sampled_from(WORKERS), number=st.integers(0, 5))
    def delete(self, full: str, number: int) -> None:
        held = sorted(self.believes[full])
        if held and self.is_attached(full):
            id = held[number % len(held)]
            assert helper.retract(self.gateway, full, id).type == "result"
            self.deleted.add(id)

    @rule(full=st.sampled_from(WORKERS), number=st.integers(0, 5))
    def unlock(self, full: str, number: int) -> None:
        held = sorted(self.believes[full])
        if held and self.is_attached(full):
            assert helper.unlock(self.gateway, full, held[number % len(held)]).type == "result"

    @rule(full=st.sampled_from(WORKERS))
    def delete_foreign_item(self, full: str) -> None:
        """Request an item that another session has locked."""
        held = {r.item for r in self.rows() if r.state == "locked" and r.holder != full}
        if held and self.is_attached(full):
            assert helper.retract(self.gateway, full, min(held)).type == "error"

    @rule(full=st.sampled_from(WORKERS))
    def leave(self, full: str) -> None:
        if self.gateway.is_bound(full):
            self.gateway.end(full)
            self.believes[full].clear()
            self.detached.discard(full)

    @rule(full=st.sampled_from(WORKERS))
    def lose_connection(self, full: str) -> None:
        if self.is_attached(full):
            self.gateway.detach(full)
            self.detached.add(full)

    @rule()
    def resume(self) -> None:
        for full in sorted(self.detached):
            self.gateway.resume(full)
        self.detached.clear()

    @rule(full=st.sampled_from(WORKERS))
    def become_unavailable(self, full: str) -> None:
        if self.is_attached(full):
            self.gateway.send(full, "<presence type='unavailable'/>")

    @rule(full=st.sampled_from(WORKERS))
    def unsubscribe(self, full: str) -> None:
        if self.is_attached(full):
            jid = self.subscribed_jid(full)
            send_request(self.gateway, full, element("unsubscribe", node=NODE, jid=jid))

    @rule(seconds=st.integers(1, 70))
    def wait(self, seconds: int) -> None:
        helper.advance(self.gateway, seconds)
        while self.gateway.due is not None and self.gateway.due <= self.gateway.clock.service:
            self.gateway.run_timers()

    @rule()
    def crash(self) -> None:
        self.gateway.crash()
        self.detached.clear()
        self.gateway.run_timers()
        for full in (OWNER, *PUBLISHERS):
            self.gateway.bind(full)

    @precondition(lambda self: any(row.state == "dead" for row in self.rows()))
    @rule()
    def requeue(self) -> None:
        def unit(tx: Transaction) -> None:
            for row in self.rows():
                if row.state == "dead":
                    assert queue_items.requeue(tx, row.place)

        self.gateway.tx(unit)
        self.gateway.tx(self.gateway.router.context.run_external_change)

    # Invariants

    @invariant()
    def check(self) -> None:
        if not hasattr(self, "gateway"):
            return
        self.receive()
        rows = self.rows()
        self.check_no_item_lost_or_duplicated(rows)
        self.check_workers_know_their_items(rows)
        self.check_requests_not_exceeded(rows)
        self.check_order(rows)
        if self.policy is QueuePolicy.HASH:
            self.check_one_member_per_slot(rows)
        elif self.policy is QueuePolicy.LEAST_LOADED:
            self.check_members_with_capacity_get_items(rows)
        self.check_progress(rows)
        self.before = {row.item: row for row in rows}

    def check_no_item_lost_or_duplicated(self, rows: list[Row]) -> None:
        assert Counter(row.item for row in rows) == Counter(self.published - self.deleted)
        of_queue, of_all, actual = (
            self.gateway.connection.execute(sql).fetchone()
            for sql in (
                "SELECT items, bytes FROM queues",
                "SELECT items, bytes FROM queues_total",
                "SELECT count(*), coalesce(sum(bytes), 0) FROM queue_items",
            )
        )
        assert actual == of_queue == of_all
        for row in rows:
            assert row.state != "dead" or row.deliveries >= self.max_deliveries

    def check_workers_know_their_items(self, rows: list[Row]) -> None:
        for full in WORKERS:
            if self.is_attached(full):  # a detached session has not received everything
                has = {row.item for row in rows if row.state == "locked" and row.holder == full}
                assert self.believes[full] == has, full

    def check_requests_not_exceeded(self, rows: list[Row]) -> None:
        locked = Counter(row.subscription for row in rows if row.state == "locked")
        pairs = self.gateway.connection.execute("SELECT id, requests FROM subscriptions").fetchall()
        for subscription, requests in pairs:
            assert locked[subscription] <= requests
        for subscription, count in self.gateway.connection.execute(
            "SELECT subscription, in_flight FROM temp.queue_members"
        ).fetchall():
            assert count == locked[subscription]

    def check_order(self, rows: list[Row]) -> None:
        """Items delivered for the first time go before all waiting ones, or those of their slot."""
        fresh = [row for row in rows if row.state == "locked" and self.is_first_delivery(row)]
        waits = [row for row in rows if row.state == "ready" and not row.deliveries]
        for delivered in fresh:
            for row in waits:
                if self.policy is not QueuePolicy.HASH or slot_of(row.publisher) == slot_of(
                    delivered.publisher
                ):
                    assert (-delivered.priority, delivered.place) < (-row.priority, row.place)

    def is_first_delivery(self, row: Row) -> bool:
        before = self.before.get(row.item)
        return row.deliveries == 1 and (before is None or before.deliveries == 0)

    def check_one_member_per_slot(self, rows: list[Row]) -> None:
        members: dict[int, set[int]] = {}
        for row in rows:
            if row.state == "locked":
                members.setdefault(slot_of(row.publisher), set()).add(row.subscription)
        assert all(len(found) == 1 for found in members.values())

    def check_members_with_capacity_get_items(self, rows: list[Row]) -> None:
        """No item is ready while a member has capacity, except one that the member returned while
        another is connected."""
        connected = self.connected()
        free = {full for full, has_capacity in connected if has_capacity}
        for row in rows:
            if row.state == "ready" and free:
                assert free == {row.holder}, (row.item, free)
                assert len({full for full, _has_capacity in connected}) > 1

    def check_progress(self, rows: list[Row]) -> None:
        """Under any policy, an item is locked if items are ready and a member is connected."""
        found = {row.state for row in rows}
        assert "ready" not in found or "locked" in found or not self.connected()

    def connected(self) -> list[tuple[str, bool]]:
        """Return the connected sessions by the specification, and whether they have capacity."""
        found = self.gateway.connection.execute("""
            SELECT t.full, s.requests > (
                SELECT count(*) FROM queue_items AS i
                WHERE i.subscription = s.id AND i.state = 'locked'
            ) FROM subscriptions AS s JOIN temp.sessions AS t ON t.full = s.jid
                OR (t.bare = s.jid AND t.accepts)
            WHERE t.detached = 0
        """).fetchall()
        return [(full, bool(has_capacity)) for full, has_capacity in found]

    # Helpers

    def rows(self) -> list[Row]:
        return [Row(row) for row in self.gateway.connection.execute(_ITEMS).fetchall()]

    def is_attached(self, full: str) -> bool:
        return self.gateway.is_bound(full) and full not in self.detached

    def subscribed_jid(self, full: str) -> str:
        return full.partition("/")[0] if full in PAIR else full

    def receive(self) -> None:
        """Let workers receive their messages; detached ones receive them later."""
        for full in WORKERS:
            if self.is_attached(full):
                for message in helper.messages(self.gateway, full):
                    if message.kind == "item":
                        assert message.id not in self.believes[full]
                        self.believes[full].add(message.id)
                    else:
                        self.believes[full].discard(message.id)

    def drain(self) -> None:
        """Let the workers complete all items, and check that none is stuck."""
        self.resume()
        self.wait(600)
        for full in ALONE:
            self.subscribe(full)
        self.check()
        for _round in range(500):
            self.wait(1)
            if any(row.state == "dead" for row in self.rows()):
                self.requeue()
            self.check()
            for full in WORKERS:
                while self.believes[full] and self.is_attached(full):
                    self.delete(full, 0)
                    self.check()
            if not self.rows():
                return
        raise AssertionError(f"{len(self.rows())} items are stuck")


TestQueues = QueueMachine.TestCase
TestQueues.settings = settings(
    max_examples=300 if LONG else 8, stateful_step_count=60 if LONG else 35, deadline=None
)
