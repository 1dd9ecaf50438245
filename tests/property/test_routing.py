"""Messages to a device whose sessions come, end and acknowledge at random: none is lost.

One sender has stream management, one has not; they address the account or one of its sessions.
Sessions are connected, detached or slow, and the gateway crashes. Each message that stream
management acknowledged to its sender arrives, or is in the database, or its sender got an error;
other messages may be lost in a crash. Messages of one sender to one address arrive in order in each
session, except that one to the full JID of a session overtakes those that wait for the account, and
nothing that a session acknowledged arrives again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from itertools import count
from pathlib import Path
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edge.config.limits import Limits
from edge.features.messages import store
from edge.features.messages.service import RETURNED_QUOTA_FACTOR
from tests.helpers.people import PUMP, VALVE_BARE, provision
from tests.helpers.store import Gateway, Sent, new_database, read_element

LONG: Final = os.environ.get("FIELDPOST_TEST_LONG") == "1"

RESOURCES = ("fw", "second")
LIMITS = Limits(offline_messages=6, unacknowledged_stanzas=16, unacknowledged_bytes=64 * 1024)
LAMP: Final = "lamp@gw.example/fw"


class Messages(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.gateway = Gateway(new_database(Path(self.folder)), LIMITS)
        provision(self.gateway)
        self.sessions: dict[str, list[Sent]] = {}
        """The sessions of the valve: stanzas in flight to each."""
        self.detached: set[str] = set()
        self.numbers = count()
        self.accepted: list[str] = []
        """The messages that were not refused; each text names the sender, the address, a number."""
        self.refused: set[str] = set()
        self.arrived: list[str] = []
        self.possibly_received: set[str] = set()
        self.gateway.managed.add(PUMP)
        self.gateway.add(LAMP.partition("@")[0])
        self.gateway.bind(LAMP)

    def teardown(self) -> None:
        self.gateway.close()
        shutil.rmtree(self.folder)

    # Steps

    @rule(
        sender=st.sampled_from([PUMP, PUMP, LAMP]),
        type_=st.sampled_from(["normal", "chat"]),
        resource=st.sampled_from(["", "", *RESOURCES]),
        padding=st.sampled_from([0, 30_000]),
    )
    def send_message(self, sender: str, type_: str, resource: str, padding: int) -> None:
        """Send, to the account or to the full JID of a session; `PUMP` has stream management."""
        to = f"{VALVE_BARE}/{resource}" if resource else VALVE_BARE
        body = f"{sender} {to} {next(self.numbers)}"
        content = f"<body>{body}</body><x xmlns='urn:x'>{'x' * padding}</x>"
        attrs = f"id='{body}' type='{type_}' to='{to}'"
        reply = self.gateway.send(sender, f"<message {attrs}>{content}</message>")
        if reply is None:
            self.accepted.append(body)
        else:
            assert reply.type == "error"
            self.refused.add(body)
        self._collect()

    @rule(resource=st.sampled_from(RESOURCES), priority=st.integers(-1, 2))
    def become_available(self, resource: str, priority: int) -> None:
        full = f"{VALVE_BARE}/{resource}"
        if resource not in self.sessions:
            self.gateway.bind(full)
            self.sessions[resource] = []
        self.gateway.send(full, f"<presence><priority>{priority}</priority></presence>")
        self._collect()

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), count=st.integers(1, 5))
    def acknowledge(self, data: st.DataObject, count: int) -> None:
        resource = data.draw(st.sampled_from(sorted(self.sessions)))
        confirmed = self.sessions[resource][:count]
        del self.sessions[resource][:count]
        self.arrived += [_body(send) for send in confirmed]
        receipts = [send.receipt for send in confirmed if send.receipt is not None]
        self.gateway.acknowledge(f"{VALVE_BARE}/{resource}", *receipts)
        self._collect()

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), received=st.integers(0, 3))
    def end(self, data: st.DataObject, received: int) -> None:
        """End a session whose device has some of the unacknowledged stanzas."""
        resource = data.draw(st.sampled_from(sorted(self.sessions)))
        in_flight = self.sessions.pop(resource)
        self.possibly_received |= {_body(send) for send in in_flight[:received]}
        self.detached.discard(resource)
        unconfirmed = [send.message for send in in_flight if send.receipt is None]
        self.gateway.end(f"{VALVE_BARE}/{resource}", *unconfirmed)
        self._collect()

    @rule()
    def crash(self) -> None:
        """Kill the gateway: stanzas in flight are lost, stored ones stay."""
        in_flight = {_body(send) for sends in self.sessions.values() for send in sends}
        self.accepted = [
            body for body in self.accepted if body not in in_flight or body.startswith(PUMP)
        ]
        self.sessions.clear()
        self.detached.clear()
        self.gateway.crash()
        self.gateway.sent.clear()
        for sender in (PUMP, LAMP):
            self.gateway.bind(sender)

    @precondition(lambda self: set(self.sessions) - self.detached)
    @rule(data=st.data())
    def detach(self, data: st.DataObject) -> None:
        """A session loses its connection, and waits to be resumed."""
        resource = data.draw(st.sampled_from(sorted(set(self.sessions) - self.detached)))
        self.detached.add(resource)
        self.gateway.detach(f"{VALVE_BARE}/{resource}")
        self._collect()

    @precondition(lambda self: self.detached)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        resource = data.draw(st.sampled_from(sorted(self.detached)))
        self.detached.remove(resource)
        assert self.gateway.resume(f"{VALVE_BARE}/{resource}")
        self._collect()

    # Bookkeeping

    def _collect(self) -> None:
        for resource, in_flight in self.sessions.items():
            sends = self.gateway.sends(f"{VALVE_BARE}/{resource}")
            in_flight += [one for one in sends if one.stanza.startswith(b"<message")]
            _check_order(in_flight)
        for error in [*self.gateway.elements(PUMP), *self.gateway.elements(LAMP)]:
            body = error.get("id", "")
            assert error.get("type") == "error"
            self.accepted.remove(body)
            self.refused.add(body)

    # Invariants

    @invariant()
    def nothing_acknowledged_is_only_in_memory(self) -> None:
        safe = {_text(stanza) for *_, stanza in self.gateway.offline()} | set(self.arrived)
        for body in self.accepted:
            assert not body.startswith(PUMP) or body in safe, body

    @invariant()
    def nothing_is_lost(self) -> None:
        rows = self.gateway.offline()
        stored = {_text(stanza) for *_, stanza in rows}
        # Messages that an ended session returns may exceed the limit by this factor.
        assert len(stored) == len(rows) <= LIMITS.offline_messages * RETURNED_QUOTA_FACTOR
        in_flight = {_body(send) for sends in self.sessions.values() for send in sends}
        for body in self.accepted:
            assert body in stored | in_flight | set(self.arrived) | self.possibly_received, body

    @invariant()
    def nothing_is_acknowledged_twice(self) -> None:
        twice = {body for body in self.arrived if self.arrived.count(body) > 1}
        assert not twice

    @invariant()
    def nothing_waits_while_a_session_is_available(self) -> None:
        count = self.gateway.count("SELECT count(*) FROM offline")
        available = self.gateway.count(
            "SELECT count(*) FROM temp.sessions WHERE bare = ? AND accepts",
            VALVE_BARE,
        )
        in_flight = self.gateway.count("SELECT count(*) FROM temp.in_flight")
        assert not (count and available) or in_flight


def _body(send: Sent) -> str:
    return _text(send.stanza)


def _check_order(sends: list[Sent]) -> None:
    """Check that messages of each sender to each address are in the order of their numbers."""
    last: dict[str, int] = {}
    for send in sends:
        way, _, number = _body(send).rpartition(" ")
        if send.receipt is not None and send.receipt.kind == store.RECEIPT:
            way += " by the account"
        assert last.get(way, -1) < int(number), [_body(one) for one in sends]
        last[way] = int(number)


def _text(stanza: bytes) -> str:
    return read_element(stanza).findtext("{jabber:client}body", "")


def test_a_message_to_a_session_stays_behind_the_stored_ones_of_its_sender() -> None:
    """The session was sent both and acknowledges none."""
    messages = Messages()
    try:
        for type_ in ("chat", "normal"):
            messages.send_message(sender=LAMP, type_=type_, resource="second", padding=0)
            messages.become_available(resource="second", priority=0)
        messages.gateway.end(f"{VALVE_BARE}/second")
        messages.sessions.clear()
        messages.become_available(resource="fw", priority=0)
        assert len(messages.sessions["fw"]) == 2
    finally:
        messages.teardown()


TestMessages: Any = Messages.TestCase
TestMessages.settings = settings(
    max_examples=200 if LONG else 8, stateful_step_count=30, deadline=None
)
