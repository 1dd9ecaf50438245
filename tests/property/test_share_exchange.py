"""Stateful test of a shared subscription at each QoS, whose members join, leave, fail and answer.

No member gets an item of another, and no item disappears without being counted. The gateway is
real, with SQLite; members are small models of the specification. A session that ends loses all
stanzas in flight, in both directions.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter, deque
from pathlib import Path
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edge.config.limits import Limits
from tests.helpers.pubsub import create
from tests.helpers.pubsub_image import DryRunGateway
from tests.helpers.qos_devices import (
    DeviceRequest,
    bind_eligible,
    empty_result,
    error_result,
    received_result,
    take_requests,
)
from tests.helpers.shared_subscriptions import (
    NODE,
    item_id,
    item_states,
    join,
    leave,
    plain_items,
    publish,
)
from tests.helpers.store import DOMAIN, new_database

NAMES: Final = ("ant", "bee", "cat")
CAPACITY: Final = 3
USER: Final = st.sampled_from(NAMES)
PUBLISHER: Final = f"queen@{DOMAIN}/fw"


class Shares(RuleBasedStateMachine):
    """A publisher, and three members with an account each."""

    qos = 1

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        limits = Limits(outbox_window=2)
        self.gateway = DryRunGateway(new_database(Path(self._folder.name)), limits)
        for user in (*NAMES, "queen"):
            self.gateway.add(user)
        create(self.gateway, PUBLISHER, NODE)
        self.members: set[str] = set()
        self.pending: dict[str, deque[DeviceRequest]] = {user: deque() for user in NAMES}
        self.held: dict[tuple[str, str], str] = {}
        self.bound: dict[str, str] = {}
        self.published: list[str] = []
        self.received: Counter[str] = Counter()
        for user in NAMES:
            self.connect(user)
            self.join(user)

    def teardown(self) -> None:
        self.settle()
        self.gateway.close()
        self._folder.cleanup()

    def full(self, user: str) -> str:
        return f"{user}@{DOMAIN}/fw"

    def is_connected(self, user: str) -> bool:
        return self.gateway.is_bound(self.full(user))

    # Rules

    @rule(count=st.integers(1, 4))
    def publish(self, count: int) -> None:
        for _ in range(count):
            item = f"i{len(self.published)}"
            self.published.append(item)
            publish(self.gateway, item, full=PUBLISHER)
            if not self.members:
                self.received[item] += 1  # there is no shared subscription

    @rule(user=USER)
    def connect(self, user: str) -> None:
        if not self.is_connected(user):
            bind_eligible(self.gateway, self.full(user))

    @rule(user=USER)
    def join(self, user: str) -> None:
        if self.is_connected(user) and user not in self.members:
            join(self.gateway, self.full(user), qos=str(self.qos), queue_requests=str(CAPACITY))
            self.members.add(user)

    @rule(user=USER)
    def leave(self, user: str) -> None:
        if self.is_connected(user) and user in self.members:
            leave(self.gateway, self.full(user))
            self.members.remove(user)

    @rule(user=USER, answered=st.integers(0, 2), arrive=st.integers(0, 3))
    def lose_session(self, user: str, answered: int, arrive: int) -> None:
        """End a session; some stanzas in flight still arrive, but no answers come back."""
        if not self.is_connected(user):
            return
        if answered:
            self.answer(user, answered, "")
        self.poll(user)
        for _ in range(min(arrive, len(self.pending[user]))):
            self.receive(user)
        self.pending[user].clear()
        self.gateway.end(self.full(user))

    @rule(user=USER, count=st.integers(1, 4), error=st.sampled_from(["", "", "", "cancel", "wait"]))
    def answer(self, user: str, count: int, error: str) -> None:
        """Receive stanzas and answer them, with success or with an error of a type."""
        if not self.is_connected(user):
            return
        for _ in range(count):
            self.poll(user)
            if self.pending[user]:
                answer = self.refuse(user, error) if error else self.receive(user)
                self.gateway.send(self.full(user), answer)

    def refuse(self, user: str, error: str) -> str:
        condition = "resource-constraint" if error == "wait" else "not-allowed"
        return error_result(self.pending[user].popleft(), error, condition)

    @rule()
    def crash(self) -> None:
        for user in NAMES:
            self.pending[user].clear()
        self.gateway.crash()
        self.gateway.sent.clear()
        self.gateway.run_timers()

    @rule(seconds=st.sampled_from([1, 60, 4000]))
    def advance(self, seconds: float) -> None:
        self.gateway.clock.service += seconds
        self.gateway.run_timers()

    # A member by the specification

    def poll(self, user: str) -> None:
        if self.qos:
            found = take_requests(self.gateway, self.full(user))
            self.pending[user] += found
            if self.qos == 2:
                self.bind(user, found)
        else:
            self.received.update(item or "" for item in plain_items(self.gateway, self.full(user)))

    def bind(self, user: str, found: list[DeviceRequest]) -> None:
        """Check that an item offered to a member at QoS 2 is offered to no other."""
        for one in found:
            if one.step == "assured":
                item = item_id(one.message) or ""
                assert self.bound.setdefault(item, user) == user, item

    def receive(self, user: str) -> str:
        """Receive the first stanza in flight and return the answer."""
        one = self.pending[user].popleft()
        key = user, one.msg_id or ""
        if one.step == "assured":
            self.held[key] = item_id(one.message) or ""
            return received_result(one)
        if one.step == "acknowledged":
            self.received[item_id(one.message) or ""] += 1
        elif key in self.held:
            self.received[self.held.pop(key)] += 1
        return empty_result(one)

    # Invariants

    @invariant()
    def check_capacity(self) -> None:
        assert all(count <= CAPACITY for count in self.in_flight().values())

    @invariant()
    def check_no_duplicates_at_qos_0_and_2(self) -> None:
        if self.qos != 1:
            assert all(count == 1 for count in self.received.values()), self.received

    @invariant()
    def check_members_with_capacity_get_items(self) -> None:
        if self.qos == 0:
            return  # sent items are not locked
        in_flight = self.in_flight()
        sql = "SELECT count(*) FROM queue_items WHERE state = 'ready' AND holder IS NOT ?"
        for user in self.members:  # an item that it returned waits for another
            if self.is_connected(user) and self.gateway.count(sql, self.full(user)):
                assert in_flight[f"{user}@{DOMAIN}"] == CAPACITY

    def in_flight(self) -> Counter[str]:
        sql = """
        SELECT s.jid FROM queue_items AS i JOIN subscriptions AS s ON s.id = i.subscription
        WHERE i.state = 'locked'
        """
        return Counter(jid for (jid,) in self.gateway.connection.execute(sql))

    @invariant()
    def check_losses_are_counted(self) -> None:
        ends = [e for e in self.gateway.events() if e.name in ("share_ended", "share_lost")]
        lost = sum(round(event.value or 0) for event in ends)
        dead_letters = self.gateway.count("SELECT count(*) FROM dead")
        kept = {item for item, _state in item_states(self.gateway)}
        in_flight = self.gateway.count("SELECT count(*) FROM temp.in_flight WHERE kind = 'share'")
        known = kept | set(self.received)
        assert len(self.published) <= len(known) + lost + dead_letters + in_flight + self.crashed()

    def crashed(self) -> int:
        """Return how many items a crash may lose uncounted at QoS 0."""
        return len(self.published) if self.qos == 0 else 0

    @precondition(lambda self: bool(self.published))
    @rule()
    def settle(self) -> None:
        """Let all members connect and answer everything, and check that no item waits."""
        for user in NAMES:
            self.connect(user)
            self.join(user)
        for _ in range(100):
            for user in NAMES:
                self.poll(user)
                while self.pending[user]:
                    self.gateway.send(self.full(user), self.receive(user))
                    self.poll(user)
            self.gateway.clock.service += 4000
            self.gateway.run_timers()
            if all(state == "dead" for _item, state in item_states(self.gateway)):
                break
        assert all(state == "dead" for _item, state in item_states(self.gateway))
        assert self.gateway.count("SELECT count(*) FROM outbox") == 0


class AtQos0(Shares):
    qos = 0


class AtQos2(Shares):
    qos = 2


EXAMPLES: Final = 400 if os.environ.get("FIELDPOST_TEST_LONG") == "1" else 8

SETTINGS: Final = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)

TestAtQos0 = AtQos0.TestCase
TestAtQos0.settings = SETTINGS
TestAtQos1 = Shares.TestCase
TestAtQos1.settings = SETTINGS
TestAtQos2 = AtQos2.TestCase
TestAtQos2.settings = SETTINGS
