"""Stateful test of two ends with stream management over a link that is cut: no stanza is lost or
repeated.

Each end sends numbered stanzas, handles received ones some time later (like a store that commits),
requests acknowledgements and sends them. A cut drops everything on the link. Received and unhandled
stanzas are dropped too (a crashed client), or are handled before the session is resumed (a
gateway).
"""

from __future__ import annotations

import os
from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edge.xmpp.errors import StreamError
from edge.xmpp.stream.management import WRAP, Management

ENDS = st.sampled_from([0, 1])
BOUND = 12
EXAMPLES = 2000 if os.environ.get("FIELDPOST_TEST_LONG") == "1" else 15


class End:
    """One end, and the elements in transit to it."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.management: Management[int] = Management(BOUND, 10_000, start=start)
        self.link: deque[tuple[str, int]] = deque()  # elements in transit to this end
        self.received: deque[int] = deque()  # received stanzas that are not handled yet
        self.handled: list[int] = []
        self.sent = 0
        self.settled: list[int] = []  # its own stanzas, acknowledged

    def cut(self, *, forgets: bool) -> None:
        self.link.clear()
        if forgets:
            self.received.clear()


class Resumption(RuleBasedStateMachine):
    """A client and a server."""

    @initialize(starts=st.tuples(*[st.sampled_from([0, WRAP - 1, WRAP - 5])] * 2))
    def begin(self, starts: tuple[int, int]) -> None:
        """Begin the counters of each direction with the same value."""
        self.ends = [End(starts[0]), End(starts[1])]
        self.connected = True
        for own, other in ((0, 1), (1, 0)):
            self.ends[own].management.h = self.ends[other].start

    @rule(own=ENDS)
    def send(self, own: int) -> None:
        """Send, with or without a link."""
        end, other = self.ends[own], self.ends[1 - own]
        if len(end.management.unacknowledged) == BOUND:
            return
        assert end.management.send(b"<m id='%d'/>" % end.sent, end.sent)
        if self.connected:
            other.link.append(("stanza", end.sent))
        end.sent += 1

    @precondition(lambda self: self.connected)
    @rule(own=ENDS)
    def receive(self, own: int) -> None:
        """Receive an element from the link."""
        end, other = self.ends[own], self.ends[1 - own]
        if not end.link:
            return
        kind, number = end.link.popleft()
        if kind == "stanza":
            end.received.append(number)
        elif kind == "ack":
            end.settled += end.management.acknowledge(number)
        else:
            other.link.append(("ack", end.management.h))

    @precondition(lambda self: self.connected)
    @rule(own=ENDS)
    def request(self, own: int) -> None:
        self.ends[own].management.request()
        self.ends[1 - own].link.append(("request", 0))

    @precondition(lambda self: self.connected)
    @rule(own=ENDS)
    def acknowledge_unrequested(self, own: int) -> None:
        self.ends[1 - own].link.append(("ack", self.ends[own].management.h))

    @rule(own=ENDS)
    def handle(self, own: int) -> None:
        """Commit the unit of work of a received stanza."""
        end = self.ends[own]
        if end.received:
            end.handled.append(end.received.popleft())
            end.management.handled()

    @precondition(lambda self: self.connected)
    @rule(forgets=st.booleans())
    def cut(self, forgets: bool) -> None:
        self.connected = False
        for end in self.ends:
            end.cut(forgets=forgets)

    @precondition(lambda self: not self.connected and not any(end.received for end in self.ends))
    @rule()
    def resume(self) -> None:
        """Exchange the numbers of handled stanzas, and send the others again."""
        self.connected = True
        for own, other in ((0, 1), (1, 0)):
            end = self.ends[own]
            end.settled += end.management.acknowledge(self.ends[other].management.h)
            for _, token in end.management.unacknowledged:
                self.ends[other].link.append(("stanza", token))

    @rule(own=ENDS, ahead=st.integers(1, WRAP // 2))
    def acknowledge_unsent(self, own: int, ahead: int) -> None:
        """An acknowledgement of unsent stanzas fails and changes nothing."""
        end = self.ends[own]
        before = end.management.unacknowledged
        with pytest.raises(StreamError):
            end.management.acknowledge((end.start + end.sent + ahead) % WRAP)
        assert end.management.unacknowledged == before

    @invariant()
    def no_stanza_is_lost_or_repeated(self) -> None:
        for own, other in ((0, 1), (1, 0)):
            end, peer = self.ends[own], self.ends[other]
            waiting = [token for _, token in end.management.unacknowledged]
            assert end.settled + waiting == list(range(end.sent))
            assert peer.handled == list(range(len(peer.handled)))
            assert set(end.settled) <= set(peer.handled)

    @invariant()
    def counters_match_the_handled_stanzas(self) -> None:
        for own, other in ((0, 1), (1, 0)):
            end = self.ends[own]
            assert 0 <= end.management.h < WRAP
            counted = (end.management.h - self.ends[other].start) % WRAP
            assert counted == len(end.handled)
            assert end.management.sent == (end.start + end.sent) % WRAP
            sizes = (len(stanza) for stanza, _ in end.management.unacknowledged)
            assert end.management.bytes == sum(sizes)

    def teardown(self) -> None:
        """Keep the link up until everything has arrived."""
        if not hasattr(self, "ends"):
            return
        if self.connected:
            self.cut(forgets=True)
        for own in (0, 1):
            while self.ends[own].received:
                self.handle(own)
        self.resume()
        for own in (0, 1):
            end = self.ends[own]
            while end.link:
                self.receive(own)
            while end.received:
                self.handle(own)
        for own in (0, 1):
            assert self.ends[1 - own].handled == list(range(self.ends[own].sent))


TestResumption = Resumption.TestCase
TestResumption.settings = settings(max_examples=EXAMPLES, stateful_step_count=60)
