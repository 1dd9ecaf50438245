"""Two ends with stream management over a link that is cut: nothing is lost, nothing comes twice.

Each end sends numbered stanzas, handles what comes some time after it came (as a store that
commits), asks for acknowledgements and gives them. When the link is cut, all that is under way is
gone. What came and was not handled is gone too (a client that has crashed), or is handled in the
meantime (a gateway's store), and before the session is resumed.
"""

from __future__ import annotations

import os
from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from edge.xmpp.errors import StreamError
from edge.xmpp.stream.management import WRAP, Management

ENDS = st.sampled_from([0, 1])
BOUND = 12
EXAMPLES = 2000 if os.environ.get("FIELDPOST_TEST_LONG") == "1" else 60


class End:
    """One end, and what is on its way to it."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.management: Management[int] = Management(BOUND, 10_000, start=start)
        self.link: deque[tuple[str, int]] = deque()  # what comes to this end
        self.came: deque[int] = deque()  # stanzas that came and are not handled yet
        self.handled: list[int] = []
        self.sent = 0
        self.settled: list[int] = []  # its own stanzas, acknowledged

    def cut(self, *, forgets: bool) -> None:
        self.link.clear()
        if forgets:
            self.came.clear()


class Resumption(RuleBasedStateMachine):
    """A client and a server."""

    @initialize(starts=st.tuples(*[st.sampled_from([0, WRAP - 1, WRAP - 5])] * 2))
    def begin(self, starts: tuple[int, int]) -> None:
        """Each counts what the other sends, so the counters of a direction begin alike."""
        self.ends = [End(starts[0]), End(starts[1])]
        self.connected = True
        for own, other in ((0, 1), (1, 0)):
            self.ends[own].management.h = self.ends[other].start

    @precondition(lambda self: self.connected)
    @rule(own=ENDS)
    def send(self, own: int) -> None:
        self._send(own)

    @precondition(lambda self: not self.connected)
    @rule(own=ENDS)
    def send_while_away(self, own: int) -> None:
        """What is sent while there is no link waits for one."""
        self._send(own)

    def _send(self, own: int) -> None:
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
        """Take one thing from the link."""
        end, other = self.ends[own], self.ends[1 - own]
        if not end.link:
            return
        kind, number = end.link.popleft()
        if kind == "stanza":
            end.came.append(number)
        elif kind == "ack":
            end.settled += end.management.acknowledge(number)
        else:
            other.link.append(("ack", end.management.h))

    @precondition(lambda self: self.connected)
    @rule(own=ENDS)
    def ask(self, own: int) -> None:
        self.ends[own].management.request()
        self.ends[1 - own].link.append(("request", 0))

    @precondition(lambda self: self.connected)
    @rule(own=ENDS)
    def acknowledge_unasked(self, own: int) -> None:
        self.ends[1 - own].link.append(("ack", self.ends[own].management.h))

    @rule(own=ENDS)
    def handle(self, own: int) -> None:
        """Commit the work of one stanza that came."""
        end = self.ends[own]
        if end.came:
            end.handled.append(end.came.popleft())
            end.management.handled()

    @precondition(lambda self: self.connected)
    @rule(forgets=st.booleans())
    def cut(self, forgets: bool) -> None:
        self.connected = False
        for end in self.ends:
            end.cut(forgets=forgets)

    @precondition(lambda self: not self.connected and not any(end.came for end in self.ends))
    @rule()
    def resume(self) -> None:
        """Each tells how much it has handled; the rest is sent again."""
        self.connected = True
        for own, other in ((0, 1), (1, 0)):
            end = self.ends[own]
            end.settled += end.management.acknowledge(self.ends[other].management.h)
            for _, token in end.management.unacknowledged:
                self.ends[other].link.append(("stanza", token))

    @rule(own=ENDS, ahead=st.integers(1, WRAP // 2))
    def too_high(self, own: int, ahead: int) -> None:
        """What was not sent cannot be acknowledged, and the attempt changes nothing."""
        end = self.ends[own]
        before = end.management.unacknowledged
        with pytest.raises(StreamError):
            end.management.acknowledge((end.start + end.sent + ahead) % WRAP)
        assert end.management.unacknowledged == before

    @invariant()
    def nothing_is_lost_and_nothing_twice(self) -> None:
        for own, other in ((0, 1), (1, 0)):
            end, peer = self.ends[own], self.ends[other]
            waiting = [token for _, token in end.management.unacknowledged]
            assert end.settled + waiting == list(range(end.sent))
            assert peer.handled == list(range(len(peer.handled)))
            assert set(end.settled) <= set(peer.handled)

    @invariant()
    def what_is_counted_was_handled(self) -> None:
        for own, other in ((0, 1), (1, 0)):
            end = self.ends[own]
            assert 0 <= end.management.h < WRAP
            counted = (end.management.h - self.ends[other].start) % WRAP
            assert counted == len(end.handled)
            assert end.management.sent == (end.start + end.sent) % WRAP
            sizes = (len(stanza) for stanza, _ in end.management.unacknowledged)
            assert end.management.bytes == sum(sizes)

    def teardown(self) -> None:
        """Let the link stand long enough, and all has come."""
        if not hasattr(self, "ends"):
            return
        if self.connected:
            self.cut(forgets=True)
        for own in (0, 1):
            while self.ends[own].came:
                self.handle(own)
        self.resume()
        for own in (0, 1):
            end = self.ends[own]
            while end.link:
                self.receive(own)
            while end.came:
                self.handle(own)
        for own in (0, 1):
            assert self.ends[1 - own].handled == list(range(self.ends[own].sent))


TestResumption = Resumption.TestCase
TestResumption.settings = settings(max_examples=EXAMPLES, stateful_step_count=60, deadline=None)
