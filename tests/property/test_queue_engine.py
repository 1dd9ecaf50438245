"""A queue node on a real database, with publishers, workers, crashes and people, by chance.

Workers are scripted: each knows which items it was given, and believes the words that it is told.
After each step the database, what workers believe, and what the engine counts have to agree.
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
from edge.engine.database import Transaction
from edge.features.queues.rules.assignment import Policy, slot_of
from edge.features.queues.store import queue_items
from tests.helpers import queues as helper
from tests.helpers import subscribing
from tests.helpers.queues import NODE, OWNER, Word
from tests.helpers.store import DOMAIN, Gateway, new_database
from tests.helpers.subscribing import ask, element

LONG: Final = os.environ.get("FIELDPOST_TEST_LONG") == "1"
PUBLISHERS: Final = tuple(f"{name}@{DOMAIN}/s" for name in ("sensor", "meter", "probe"))
ALONE: Final = tuple(f"{name}@{DOMAIN}/w" for name in ("one", "two", "three"))
PAIR: Final = (f"pair@{DOMAIN}/a", f"pair@{DOMAIN}/b")
WORKERS: Final = ALONE + PAIR
"""The last two are sessions of one subscription."""

LIMITS: Final = Limits(outbox_ttl=10_000_000)

_ITEMS: Final = """
SELECT id, item, publisher, state, priority, deliveries, subscription, holder FROM queue_items
ORDER BY id
"""


class Row:
    """An item as the database has it."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.place, self.item, self.publisher, self.state = row[:4]
        self.priority, self.deliveries, self.subscription, self.holder = row[4:]


class QueueMachine(RuleBasedStateMachine):
    """What may happen to a queue node."""

    @initialize(
        policy=st.sampled_from(Policy),
        deliveries=st.integers(2, 6),
        requests=st.tuples(*[st.integers(1, 3)] * 4),
    )
    def begin(self, policy: Policy, deliveries: int, requests: tuple[int, ...]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.gateway = Gateway(new_database(Path(self.folder.name)), LIMITS)
        self.policy = policy
        for full in (OWNER, *PUBLISHERS, ALONE[0], ALONE[1], ALONE[2], PAIR[0]):
            self.gateway.add(full.partition("@")[0])
        config = {"queue_policy": policy.value, "queue_max_deliveries": str(deliveries)}
        for full in (OWNER, *PUBLISHERS):
            self.gateway.bind(full)
        subscribing.create(
            self.gateway, OWNER, NODE, queueing="1", publish_model="open",
            queue_lock_timeout="60", **config,
        )  # fmt: skip
        self.most = deliveries
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

    # What happens

    @rule(by=st.sampled_from(PUBLISHERS), priority=st.sampled_from([0, 0, 0, 1]))
    def publish(self, by: str, priority: int) -> None:
        id = f"i{len(self.published)}"
        options = {"queue_priority": str(priority)} if priority else {}
        helper.publish(self.gateway, id, by=by, **options)
        self.published.add(id)

    @rule(by=st.sampled_from(PUBLISHERS), delay=st.integers(1, 90))
    def publish_for_later(self, by: str, delay: int) -> None:
        id = f"i{len(self.published)}"
        helper.publish(self.gateway, id, by=by, queue_delay=str(delay))
        self.published.add(id)

    @rule(full=st.sampled_from(WORKERS))
    def come(self, full: str) -> None:
        if not self.gateway.is_bound(full):
            self.gateway.bind(full)
            self.gateway.ring()
            self.listen()
        if full in PAIR:
            self.gateway.send(full, "<presence/>")
        helper.work(self.gateway, full, self.requests[self.named(full)], self.named(full))

    @rule(full=st.sampled_from(WORKERS))
    def bind_alone(self, full: str) -> None:
        if not self.gateway.is_bound(full):
            self.gateway.bind(full)
            self.gateway.ring()

    @rule(full=st.sampled_from(WORKERS), number=st.integers(0, 5))
    def delete(self, full: str, number: int) -> None:
        held = sorted(self.believes[full])
        if held and self.able(full):
            id = held[number % len(held)]
            assert helper.retract(self.gateway, full, id).type == "result"
            self.deleted.add(id)

    @rule(full=st.sampled_from(WORKERS), number=st.integers(0, 5))
    def unlock(self, full: str, number: int) -> None:
        held = sorted(self.believes[full])
        if held and self.able(full):
            assert helper.unlock(self.gateway, full, held[number % len(held)]).type == "result"

    @rule(full=st.sampled_from(WORKERS))
    def meddle(self, full: str) -> None:
        """Ask for what another has."""
        held = {r.item for r in self.rows() if r.state == "locked" and r.holder != full}
        if held and self.able(full):
            assert helper.retract(self.gateway, full, min(held)).type == "error"

    @rule(full=st.sampled_from(WORKERS))
    def leave(self, full: str) -> None:
        if self.gateway.is_bound(full):
            self.gateway.leave(full)
            self.believes[full].clear()
            self.detached.discard(full)

    @rule(full=st.sampled_from(WORKERS))
    def lose_the_connection(self, full: str) -> None:
        if self.able(full):
            generation = self.gateway.generation(full)
            self.gateway.tx(lambda tx: self.gateway.lifecycle.detach(tx, generation))
            self.detached.add(full)

    @rule()
    def resume(self) -> None:
        for full in sorted(self.detached):
            self._resume(self.gateway.generation(full))
        self.detached.clear()

    def _resume(self, generation: int) -> None:
        self.gateway.tx(lambda tx: self.gateway.lifecycle.resume(tx, generation))

    @rule(full=st.sampled_from(WORKERS))
    def say_goodbye(self, full: str) -> None:
        if self.able(full):
            self.gateway.send(full, "<presence type='unavailable'/>")

    @rule(full=st.sampled_from(WORKERS))
    def unsubscribe(self, full: str) -> None:
        if self.able(full):
            ask(self.gateway, full, element("unsubscribe", node=NODE, jid=self.named(full)))

    @rule(seconds=st.integers(1, 70))
    def wait(self, seconds: int) -> None:
        helper.wait(self.gateway, seconds)
        while self.gateway.due is not None and self.gateway.due <= self.gateway.clock.service:
            self.gateway.ring()

    @rule()
    def crash(self) -> None:
        self.gateway.crash()
        self.detached.clear()
        self.gateway.ring()
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
        self.gateway.tx(self.gateway.router.run_external_change)

    # What is true at all times

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "gateway"):
            return
        self.listen()
        rows = self.rows()
        self.nothing_is_lost_or_twice(rows)
        self.who_believes_to_have_an_item_has_it(rows)
        self.nobody_has_too_many(rows)
        self.order_is_kept(rows)
        if self.policy is Policy.HASH:
            self.a_publisher_has_one_member(rows)
        elif self.policy is Policy.LEAST_LOADED:
            self.nothing_waits_for_who_is_there(rows)
        self.somebody_works_if_somebody_is_there(rows)
        self.before = {row.item: row for row in rows}

    def nothing_is_lost_or_twice(self, rows: list[Row]) -> None:
        assert Counter(row.item for row in rows) == Counter(self.published - self.deleted)
        (items, size), (all_items, all_bytes), really = (
            self.gateway.connection.execute(sql).fetchone()
            for sql in (
                "SELECT items, bytes FROM queues",
                "SELECT items, bytes FROM queues_total",
                "SELECT count(*), coalesce(sum(bytes), 0) FROM queue_items",
            )
        )
        assert really == (items, size) == (all_items, all_bytes)
        for row in rows:
            assert row.state != "dead" or row.deliveries >= self.most

    def who_believes_to_have_an_item_has_it(self, rows: list[Row]) -> None:
        for full in WORKERS:
            if self.able(full):  # who waits to be resumed has not heard all yet
                has = {row.item for row in rows if row.state == "locked" and row.holder == full}
                assert self.believes[full] == has, full

    def nobody_has_too_many(self, rows: list[Row]) -> None:
        locked = Counter(row.subscription for row in rows if row.state == "locked")
        asked = self.gateway.connection.execute("SELECT id, requests FROM subscriptions").fetchall()
        for subscription, requests in asked:
            assert locked[subscription] <= requests
        for subscription, count in self.gateway.connection.execute(
            "SELECT subscription, in_flight FROM temp.queue_members"
        ).fetchall():
            assert count == locked[subscription]

    def order_is_kept(self, rows: list[Row]) -> None:
        """What is given for the first time is the first of what waits: for all, or for its slot."""
        fresh = [row for row in rows if row.state == "locked" and self.was_fresh(row)]
        waits = [row for row in rows if row.state == "ready" and not row.deliveries]
        for given in fresh:
            for row in waits:
                if self.policy is not Policy.HASH or slot_of(row.publisher) == slot_of(
                    given.publisher
                ):
                    assert (-given.priority, given.place) < (-row.priority, row.place)

    def was_fresh(self, row: Row) -> bool:
        before = self.before.get(row.item)
        return row.deliveries == 1 and (before is None or before.deliveries == 0)

    def a_publisher_has_one_member(self, rows: list[Row]) -> None:
        members: dict[int, set[int]] = {}
        for row in rows:
            if row.state == "locked":
                members.setdefault(slot_of(row.publisher), set()).add(row.subscription)
        assert all(len(found) == 1 for found in members.values())

    def nothing_waits_for_who_is_there(self, rows: list[Row]) -> None:
        """No item is ready while a member has room, but for one that it gave back, if another is
        there."""
        there = self.there()
        room = {full for full, has_room in there if has_room}
        for row in rows:
            if row.state == "ready" and room:
                assert room == {row.holder}, (row.item, room)
                assert len({full for full, _room in there}) > 1

    def somebody_works_if_somebody_is_there(self, rows: list[Row]) -> None:
        """Whomever a policy chooses: nobody stands by while items wait and nothing is worked on."""
        found = {row.state for row in rows}
        assert "ready" not in found or "locked" in found or not self.there()

    def there(self) -> list[tuple[str, bool]]:
        """Tell which sessions are there, as the specification counts them, and whether they have
        room."""
        found = self.gateway.connection.execute("""
            SELECT t.full, s.requests > (
                SELECT count(*) FROM queue_items AS i
                WHERE i.subscription = s.id AND i.state = 'locked'
            ) FROM subscriptions AS s JOIN temp.sessions AS t ON t.full = s.jid
                OR (t.bare = s.jid AND t.available = 1 AND t.priority >= 0)
            WHERE t.detached = 0
        """).fetchall()
        return [(full, bool(room)) for full, room in found]

    # Helpers

    def rows(self) -> list[Row]:
        return [Row(row) for row in self.gateway.connection.execute(_ITEMS).fetchall()]

    def able(self, full: str) -> bool:
        return self.gateway.is_bound(full) and full not in self.detached

    def named(self, full: str) -> str:
        return full.partition("/")[0] if full in PAIR else full

    def listen(self) -> None:
        """Let workers hear what they are told; who waits to be resumed hears it then."""
        for full in WORKERS:
            if self.able(full):
                for word in self.words(full):
                    if word.what == "item":
                        assert word.id not in self.believes[full], "it was given twice"
                        self.believes[full].add(word.id)
                    else:
                        self.believes[full].discard(word.id)

    def words(self, full: str) -> list[Word]:
        found = helper.told(self.gateway, full)
        return [word for word in found if word.what in ("item", "retract", "unlock")]

    def drain(self) -> None:
        """Let all workers do all there is: nothing is left, and nothing is stuck."""
        self.resume()
        self.wait(600)
        for full in ALONE:
            self.come(full)
        self.agrees()
        for _round in range(500):
            self.wait(1)
            if any(row.state == "dead" for row in self.rows()):
                self.requeue()
            self.agrees()
            for full in WORKERS:
                while self.believes[full] and self.able(full):
                    self.delete(full, 0)
                    self.agrees()
            if not self.rows():
                return
        raise AssertionError(f"{len(self.rows())} items are stuck")


TestQueues = QueueMachine.TestCase
TestQueues.settings = settings(
    max_examples=300 if LONG else 25, stateful_step_count=60 if LONG else 35, deadline=None
)
