"""Stream management (XEP-0198): counts that go round, and elements with numbers in them.

An input that begins with `<` is an element of the peer's, read in each of the ways there are: the
one that it is says what is wrong by `StreamError` or `StanzaError`, and numbers are in range.

Any other is a history. Its first four bytes are where the counters begin; then each byte is a step:
up to 0x7f, a stanza of so many bytes is sent; 0x80, one of the peer's is handled; 0x81, the peer is
asked; 0x82, the next four bytes are an `h` that it sends, made up; above that, it acknowledges so
many less 0x83 more than before. A model that never goes round says what must come of it: each
stanza is acknowledged once, in order, or is still there, and what was not sent ends the stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from edge.xmpp.errors import StanzaError, StreamError
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stanza import Stanza
from edge.xmpp.stream import management
from edge.xmpp.stream.management import WRAP, Management
from tests.fuzz.oracle import one_element
from tests.helpers.wire_corpus import HEADER

MAX_BYTES: Final = 1024
MOST_STANZAS: Final = 8
MOST_BYTES: Final = 256


def check(data: bytes) -> None:
    """Read an element, or go through a history."""
    if data.startswith(b"<"):
        _check_element(data)
    else:
        _History(int.from_bytes(data[:4])).run(data[4:])


def _check_element(data: bytes) -> None:
    parser = StreamParser()
    try:
        items = parser.feed(HEADER + data)
    except ParseError as error:
        items = error.items
    parser.close()
    for item in items:
        if isinstance(item, Stanza):
            enable = _read(management.read_enable, item)
            assert enable is None or enable.max is None or 0 <= enable.max < WRAP
            resume = _read(management.read_resume, item)
            if resume is not None:
                assert 0 <= resume.h < WRAP
                assert 0 < len(resume.previd) <= management.MAX_ID
                told = one_element(management.resumed(resume.previd, resume.h))
                assert told.get("previd") == resume.previd
            h = _read(management.read_ack, item)
            assert h is None or 0 <= h < WRAP


def _read(reader: Callable[[Stanza], Any], item: Stanza) -> Any:
    try:
        return reader(item)
    except (StanzaError, StreamError):
        return None


class _History:
    """One side's state, and a model of it in numbers that never go round."""

    def __init__(self, start: int) -> None:
        self._side: Management[int] = Management(MOST_STANZAS, MOST_BYTES, start=start)
        self._start = start
        self._sent = 0
        self._handled = 0
        self._there: deque[tuple[int, int]] = deque()  # number and size, not acknowledged
        self._over = False

    def run(self, steps: bytes) -> None:
        """Go through all steps, or to the end of the stream."""
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
            made_up = bytes(queue.popleft() for _ in range(min(4, len(queue))))
            self._acknowledge(int.from_bytes(made_up))
        else:
            acknowledged = self._start + self._sent - len(self._there)
            self._acknowledge((acknowledged + step - 0x83) % WRAP)

    def _send(self, size: int) -> None:
        within = self._side.send(bytes(size), self._sent)
        self._there.append((self._sent, size))
        self._sent += 1
        held = sum(size for _number, size in self._there)
        assert within == (len(self._there) <= MOST_STANZAS and held <= MOST_BYTES)
        self._over = not within

    def _acknowledge(self, h: int) -> None:
        acknowledged = self._start + self._sent - len(self._there)
        more = (h - acknowledged) % WRAP
        try:
            tokens = self._side.acknowledge(h)
        except StreamError:
            assert more > len(self._there)
            self._over = True
            return
        assert more <= len(self._there)
        assert tokens == [self._there.popleft()[0] for _ in range(more)]

    def _compare(self) -> None:
        side = self._side
        there = [(item.token, len(item.stanza)) for item in side.unacknowledged]
        assert there == list(self._there)
        assert side.bytes == sum(size for _number, size in there)
        assert side.sent == (self._start + self._sent) % WRAP
        assert side.h == (self._start + self._handled) % WRAP
        assert one_element(side.answer()).get("h") == str(side.h)
