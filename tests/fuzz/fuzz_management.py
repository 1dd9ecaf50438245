"""Target: stream management (XEP-0198), its wrapping counters and its elements.

An input that begins with `<` is an element of the peer, read by all readers: they raise only
`StreamError` or `StanzaError`, and numbers are in range.

Any other input is a history. Its first four bytes are the start of the counters; each further byte
is a step: up to 0x7f, send a stanza of so many bytes; 0x80, handle a stanza; 0x81, request an
acknowledgement; 0x82, receive an acknowledgement with the next four bytes as `h`; above that,
receive an acknowledgement of so many stanzas minus 0x83 more than before. A model with counters
that do not wrap gives the expected result: each stanza is acknowledged once, in order, or is still
kept, and an acknowledgement of unsent stanzas ends the stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from edge.xmpp.errors import StanzaError, StreamError
from edge.xmpp.stanza import Stanza
from edge.xmpp.stream import management
from edge.xmpp.stream.management import WRAP, Management
from tests.fuzz.oracle import one_element, parse_stanzas

MAX_BYTES: Final = 1024
MAX_STANZAS: Final = 8
MAX_HELD_BYTES: Final = 256


def check(data: bytes) -> None:
    """Read an element, or run a history."""
    if data.startswith(b"<"):
        _check_element(data)
    else:
        _History(int.from_bytes(data[:4])).run(data[4:])


def _check_element(data: bytes) -> None:
    for item in parse_stanzas(data):
        enable = _read(management.read_enable, item)
        assert enable is None or enable.max is None or 0 <= enable.max < WRAP
        resume = _read(management.read_resume, item)
        if resume is not None:
            assert 0 <= resume.h < WRAP
            assert 0 < len(resume.previd) <= management.MAX_ID
            answer = one_element(management.resumed(resume.previd, resume.h))
            assert answer.get("previd") == resume.previd
        h = _read(management.read_ack, item)
        assert h is None or 0 <= h < WRAP


def _read(reader: Callable[[Stanza], Any], item: Stanza) -> Any:
    try:
        return reader(item)
    except (StanzaError, StreamError):
        return None


class _History:
    """The state, and a model of it with counters that do not wrap."""

    def __init__(self, start: int) -> None:
        self._side: Management[int] = Management(MAX_STANZAS, MAX_HELD_BYTES, start=start)
        self._start = start
        self._sent = 0
        self._handled = 0
        self._unacknowledged: deque[tuple[int, int]] = deque()  # number and size
        self._over = False

    def run(self, steps: bytes) -> None:
        """Run all steps, or until the stream ends."""
        queue = deque(steps)
        while queue and not self._over:
            self._step(queue.popleft(), queue)
            self._compare()

    def _step(self, step: int, queue: deque[int]) -> None:
        if step < 0x80:
            self._send(step)
        elif step == 0x80:
            self._side.handled()
            self._handled += 1
        elif step == 0x81:
            assert one_element(self._side.request()).tag == management.REQUEST
            assert not self._side.wants_request()
        elif step == 0x82:
            received = bytes(queue.popleft() for _ in range(min(4, len(queue))))
            self._acknowledge(int.from_bytes(received))
        else:
            acknowledged = self._start + self._sent - len(self._unacknowledged)
            self._acknowledge((acknowledged + step - 0x83) % WRAP)

    def _send(self, size: int) -> None:
        within = self._side.send(bytes(size), self._sent)
        self._unacknowledged.append((self._sent, size))
        self._sent += 1
        held = sum(size for _number, size in self._unacknowledged)
        assert within == (len(self._unacknowledged) <= MAX_STANZAS and held <= MAX_HELD_BYTES)
        self._over = not within

    def _acknowledge(self, h: int) -> None:
        acknowledged = self._start + self._sent - len(self._unacknowledged)
        more = (h - acknowledged) % WRAP
        try:
            tokens = self._side.acknowledge(h)
        except StreamError:
            assert more > len(self._unacknowledged)
            self._over = True
            return
        assert more <= len(self._unacknowledged)
        assert tokens == [self._unacknowledged.popleft()[0] for _ in range(more)]

    def _compare(self) -> None:
        side = self._side
        kept = [(item.token, len(item.stanza)) for item in side.unacknowledged]
        assert kept == list(self._unacknowledged)
        assert side.bytes == sum(size for _number, size in kept)
        assert side.sent == (self._start + self._sent) % WRAP
        assert side.h == (self._start + self._handled) % WRAP
        assert one_element(side.answer()).get("h") == str(side.h)
