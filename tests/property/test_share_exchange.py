"""Stateful test of a shared subscription at each QoS, whose members join, leave, fail and answer.

No member gets an item of another, and no item disappears without being counted. The gateway is
real, with SQLite; members are small models of the specification, of which some may speak another
protocol (`tests.toy`, or MQTT by `tests.helpers.mqtt_model`). Items are published by XMPP and MQTT.
A session that ends loses all stanzas in flight, in both directions.
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
from edge.features.pubsub.rules.subscription import DEFAULT_REQUESTS
from tests.helpers import mqtt_model
from tests.helpers.pubsub import create
from tests.helpers.pubsub_image import DryRunGateway
from tests.helpers.qos_devices import (
    CLIENT,
    DeviceRequest,
    bind_eligible,
    empty_result,
    error_result,
    make_eligible,
    received_result,
    take_requests,
)
from tests.helpers.shared_subscriptions import (
    NODE,
    SHARE,
    item_states,
    item_text,
    join,
    leave,
    publish,
)
from tests.helpers.store import DOMAIN, Sent, new_database
from tests.toy.model import add_toy, bind, line, words
from tests.toy.requests import IDS

NAMES: Final = ("ant", "bee", "cat")
CAPACITY: Final = 3
USER: Final = st.sampled_from(NAMES)
PUBLISHER: Final = f"queen@{DOMAIN}/fw"
XMPP: Final = "xmpp"
FOREVER: Final = 1_000_000.0
ANSWERS: Final = {0: "", 1: "acknowledged", 2: "received"}
"""The answers to what MQTT publishes, by its QoS."""


class Shares(RuleBasedStateMachine):
    """A publisher with a session of each protocol, and three members with an account each.

    Attributes:
        toys: the members that speak `protocol`.
        protocol: the toy, or a version of MQTT whose packets are read as lines of the toy.
    """

    qos = 1
    toys: frozenset[str] = frozenset()
    protocol = "toy"

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        limits = Limits(outbox_window=2)
        self.gateway = DryRunGateway(new_database(Path(self._folder.name)), limits)
        add_toy(self.gateway)
        mqtt_model.add_mqtt(self.gateway)
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

    def jid(self, user: str) -> str:
        """Return the address that is a member: that of the session of a toy, else the account's."""
        return self.full(user) if user in self.toys else f"{user}@{DOMAIN}"

    def capacity(self, user: str) -> int:
        return DEFAULT_REQUESTS if user in self.toys else CAPACITY

    def send(self, user: str, answer: str) -> None:
        self.gateway.commit(self.gateway.work(self.full(user), answer))

    def is_connected(self, user: str) -> bool:
        return self.gateway.is_bound(self.full(user))

    # Rules

    @rule(
        count=st.integers(1, 4),
        by=st.sampled_from([XMPP, *mqtt_model.VERSIONS]),
        qos=st.integers(0, 2),
        fails=st.sampled_from(["", "", "connection", "gateway"]),
    )
    def publish(self, count: int, by: str, qos: int, fails: str) -> None:
        for _ in range(count):
            item = f"i{len(self.published)}"
            self.published.append(item)
            if by == XMPP:
                publish(self.gateway, item, full=PUBLISHER)
            else:
                self.publish_by_mqtt(by, item, max(qos, self.qos), fails)
            if not self.members:
                self.received[item] += 1  # there is no shared subscription

    def publish_by_mqtt(self, protocol: str, item: str, qos: int, fails: str) -> None:
        """Publish an item, at no lower QoS than that of the members, because they would get it at
        the lower one. At QoS 2, each step is repeated if its answer is lost with the connection, or
        by a crash of the gateway."""
        full, id = f"queen@{DOMAIN}/{mqtt_model.VERSIONS[protocol]}", 1 + len(self.published) % IDS
        steps = [(line("publish", id, qos, f"{mqtt_model.SERVICE}/{NODE}", "", item), ANSWERS[qos])]
        if qos == 2:
            steps.append((line("release", id), "completed"))
        for step, answer in steps:
            for is_repeated in (False, True) if fails and qos == 2 else (False,):
                if is_repeated and fails == "gateway":
                    self.crash()
                if is_repeated or not self.gateway.is_bound(full):
                    mqtt_model.bind(self.gateway, full, FOREVER, protocol)
                found = self.gateway.commit(self.gateway.work(full, step))
                assert found.decode() == (line(answer, id) if answer else "")

    @rule(user=USER)
    def connect(self, user: str) -> None:
        if self.is_connected(user):
            return
        if user in self.toys and self.protocol in mqtt_model.VERSIONS:
            mqtt_model.bind(self.gateway, self.full(user), FOREVER, self.protocol)
        elif user in self.toys:
            bind(self.gateway, self.full(user), FOREVER)
            make_eligible(self.gateway, self.full(user))
        else:
            bind_eligible(self.gateway, self.full(user))

    @rule(user=USER)
    def join(self, user: str) -> None:
        if self.is_connected(user) and user not in self.members:
            if user in self.toys:
                self.send(user, line("subscribe", SHARE, self.qos))
            else:
                join(self.gateway, self.full(user), qos=str(self.qos), queue_requests=str(CAPACITY))
            self.members.add(user)

    @rule(user=USER)
    def leave(self, user: str) -> None:
        if self.is_connected(user) and user in self.members:
            if user in self.toys:
                self.send(user, line("unsubscribe", SHARE))
            else:
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
                refuses = error and user not in self.toys  # they have no such answer
                self.send(user, self.refuse(user, error) if refuses else self.receive(user))

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
        full = self.full(user)
        if self.qos:
            is_toy = user in self.toys
            found = (take_toy_requests if is_toy else take_requests)(self.gateway, full)
            self.pending[user] += found
            if self.qos == 2:
                self.bind(user, found)
        elif user in self.toys:
            sends = self.gateway.sends(full)
            self.gateway.acknowledge(full, *(one.receipt for one in sends if one.receipt))
            self.received.update(item_of(read_toy_request(one, full)) for one in sends)
        else:
            for element in self.gateway.elements(full):
                if element.tag == f"{CLIENT}message":
                    self.received[item_text(element)] += 1

    def bind(self, user: str, found: list[DeviceRequest]) -> None:
        """Check that an item offered to a member at QoS 2 is offered to no other."""
        for one in found:
            if one.step == "assured":
                item = item_of(one)
                assert self.bound.setdefault(item, user) == user, item

    def receive(self, user: str) -> str:
        """Receive the first stanza in flight and return the answer."""
        one = self.pending[user].popleft()
        key = user, one.msg_id or ""
        if one.step == "assured":
            self.held[key] = item_of(one)
            return line("received", one.id) if user in self.toys else received_result(one)
        if one.step == "acknowledged":
            self.received[item_of(one)] += 1
        elif key in self.held:
            self.received[self.held.pop(key)] += 1
        if user not in self.toys:
            return empty_result(one)
        return line("completed" if one.step == "deliver" else "acknowledged", one.id)

    # Invariants

    @invariant()
    def check_capacity(self) -> None:
        in_flight = self.in_flight()
        assert all(in_flight[self.jid(user)] <= self.capacity(user) for user in NAMES)

    @invariant()
    def check_no_duplicates_at_qos_0_and_2(self) -> None:
        assert set(self.received) <= set(self.published)
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
                assert in_flight[self.jid(user)] == self.capacity(user)

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
        bodies = self.gateway.connection.execute("SELECT body FROM queue_bodies").fetchall()
        kept = {text_of(bytes(body).decode()) for (body,) in bodies}
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
                    self.send(user, self.receive(user))
                    self.poll(user)
            self.gateway.clock.service += 4000
            self.gateway.run_timers()
            if all(state == "dead" for _item, state in item_states(self.gateway)):
                break
        assert all(state == "dead" for _item, state in item_states(self.gateway))
        assert self.gateway.count("SELECT count(*) FROM outbox") == 0
        for item, user in self.bound.items():  # also if it has left: it may know them by an id
            assert user not in self.toys or self.received[item] == 1, (item, user)


def take_toy_requests(gateway: DryRunGateway, full: str) -> list[DeviceRequest]:
    """Return the requests sent to a session of the toy since the last call."""
    return [read_toy_request(one, full) for one in gateway.sends(full)]


def read_toy_request(sent: Sent, full: str) -> DeviceRequest:
    """Read a line as the request of XMPP that has the same meaning; its text is the item's."""
    name, id, *rest = words(sent.stanza)
    if name == "release":
        return DeviceRequest(id, "", full, "deliver", "", id, None, None)
    level, sender, _type, payload = rest
    step = "assured" if level == "2" else "acknowledged"
    return DeviceRequest(id, sender, full, step, "", id, text_of(payload), None)


def item_of(one: DeviceRequest) -> str:
    """Return the text of an item, which is its name here: MQTT has no ItemIDs."""
    return one.text or item_text(one.message)


def text_of(payload: str) -> str:
    """Return the text of a payload, which may be in the XML of XMPP."""
    return payload.partition(">")[2].partition("<")[0] or payload


class AtQos0(Shares):
    qos = 0
    toys = frozenset({"bee"})


class AtQos2(Shares):
    qos = 2


class AtQos1WithToys(Shares):
    toys = frozenset({"bee", "cat"})


class AtQos2WithToys(AtQos2):
    toys = frozenset({"bee", "cat"})


class AtQos0WithMqtt(AtQos0):
    protocol = "mqtt 5.0"


class AtQos1WithMqtt(AtQos1WithToys):
    protocol = "mqtt 3.1.1"


class AtQos2WithMqtt(AtQos2WithToys):
    """A member by XMPP beside members by MQTT."""

    protocol = "mqtt 5.0"


class AtQos2WithOldMqtt(AtQos2WithToys):
    protocol = "mqtt 3.1.1"


EXAMPLES: Final = 400 if os.environ.get("FIELDPOST_TEST_LONG") == "1" else 8

SETTINGS: Final = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)

TestAtQos0 = AtQos0.TestCase
TestAtQos0.settings = SETTINGS
TestAtQos1 = Shares.TestCase
TestAtQos1.settings = SETTINGS
TestAtQos1WithToys = AtQos1WithToys.TestCase
TestAtQos1WithToys.settings = SETTINGS
TestAtQos2 = AtQos2.TestCase
TestAtQos2.settings = SETTINGS
TestAtQos2WithToys = AtQos2WithToys.TestCase
TestAtQos2WithToys.settings = SETTINGS
TestAtQos0WithMqtt = AtQos0WithMqtt.TestCase
TestAtQos0WithMqtt.settings = SETTINGS
TestAtQos1WithMqtt = AtQos1WithMqtt.TestCase
TestAtQos1WithMqtt.settings = SETTINGS
TestAtQos2WithMqtt = AtQos2WithMqtt.TestCase
TestAtQos2WithMqtt.settings = SETTINGS
TestAtQos2WithOldMqtt = AtQos2WithOldMqtt.TestCase
TestAtQos2WithOldMqtt.settings = SETTINGS
