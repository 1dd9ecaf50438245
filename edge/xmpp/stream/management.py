"""Stream management, one side of one stream (XEP-0198): what was sent and is not acknowledged, and
how much of what came has been handled.

The state outlives its connection: a session that is resumed goes on with it. Counters go round at
2**32. What is not acknowledged is held within two bounds; over either, the caller has to end the
session (`resource-constraint`), since to drop a stanza would be to lose it.

Nothing here writes to a socket, knows a session's id or decides how long a session waits: what is
asked for is read (`read_enable`, `read_resume`, `read_ack`), and answers are made, for the session
to send.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from edge.xmpp.errors import StanzaError, StreamError
from edge.xmpp.namespaces import SM, STANZA_ERRORS, clark
from edge.xmpp.serialize import tag
from edge.xmpp.stanza import Child

T = TypeVar("T")

ENABLE: Final = clark(SM, "enable")
RESUME: Final = clark(SM, "resume")
REQUEST: Final = clark(SM, "r")
ACK: Final = clark(SM, "a")

WRAP: Final = 2**32
"""Where counters begin again at zero (XEP-0198, section 4)."""
REQUEST_STANZAS: Final = 8
"""Stanzas sent since acknowledgement was asked for, and then it is again: an eighth of what a
session has in flight."""
REQUEST_BYTES: Final = 8 * 1024
"""The bytes of those, for large ones: some seconds of a slow radio."""
MAX_ID: Final = 128
"""Characters of the id of a session to be resumed; ours have fewer."""

_UNSIGNED = re.compile(r"[0-9]{1,10}", re.ASCII)
_BOOLEAN = {"true": True, "1": True, "false": False, "0": False}


class Unacknowledged(NamedTuple, Generic[T]):
    """A stanza that was sent, and what its sender wants to know it by."""

    stanza: bytes
    token: T


class EnableRequest(NamedTuple):
    """What a peer asks for by `<enable/>`: whether it may resume, and after how many seconds at
    most; None leaves that to us."""

    resume: bool
    max: int | None


class ResumeRequest(NamedTuple):
    """What a peer asks for by `<resume/>`: which session, and how many stanzas it has handled."""

    previd: str
    h: int


class Management(Generic[T]):
    """One side's state.

    Args:
        max_stanzas: stanzas that may wait to be acknowledged.
        max_bytes: the bytes of those.
        counts: tells by a stanza's token whether it counts in those bounds.
        start: where both counters begin, for tests of their end.

    Attributes:
        h: how many of the peer's stanzas have been handled, modulo 2**32.
        bytes: bytes of the stanzas that are not acknowledged.
    """

    __slots__ = (
        "_acknowledged", "_bounded", "_bounded_bytes", "_counts", "_max_bytes", "_max_stanzas",
        "_since", "_since_bytes", "_unacknowledged", "bytes", "h",
    )  # fmt: skip

    def __init__(
        self,
        max_stanzas: int,
        max_bytes: int,
        *,
        counts: Callable[[T], bool] = lambda _token: True,
        start: int = 0,
    ) -> None:
        self._max_stanzas = max_stanzas
        self._max_bytes = max_bytes
        self._counts = counts
        self._bounded = 0  # stanzas that count in the bounds
        self._bounded_bytes = 0
        self._acknowledged = start
        self._unacknowledged: deque[Unacknowledged[T]] = deque()
        self._since = 0  # stanzas sent since the last request
        self._since_bytes = 0
        self.bytes = 0
        self.h = start

    # What we send

    @property
    def sent(self) -> int:
        """How many stanzas have been sent, modulo 2**32."""
        return (self._acknowledged + len(self._unacknowledged)) % WRAP

    @property
    def bounded(self) -> int:
        """How many of what is not acknowledged count in the bound of stanzas."""
        return self._bounded

    @property
    def unacknowledged(self) -> tuple[Unacknowledged[T], ...]:
        """What was sent and not acknowledged, in order, each stanza with its token."""
        return tuple(self._unacknowledged)

    def send(self, stanza: bytes, token: T) -> bool:
        """Remember a stanza that is being sent, until it is acknowledged.

        Returns:
            Whether what is remembered, and counts, is within bounds. If not, the stanza is
            remembered all the same, and the caller ends the session.
        """
        self._unacknowledged.append(Unacknowledged(stanza, token))
        self.bytes += len(stanza)
        self._since += 1
        self._since_bytes += len(stanza)
        if self._counts(token):
            self._bounded += 1
            self._bounded_bytes += len(stanza)
        return self._bounded <= self._max_stanzas and self._bounded_bytes <= self._max_bytes

    def acknowledge(self, h: int) -> list[T]:
        """Forget what the peer has handled.

        Args:
            h: how many stanzas it has handled in all, as `read_ack` gives it.

        Returns:
            The tokens of those that it had not acknowledged before, in order.

        Raises:
            StreamError: `undefined-condition` with `<handled-count-too-high/>`: it acknowledges
                what was not sent, or takes an acknowledgement back (XEP-0198, section 6).
        """
        count = (h - self._acknowledged) % WRAP
        if count > len(self._unacknowledged):
            told = {"h": str(h), "send-count": str(self.sent)}
            raise StreamError(
                "undefined-condition",
                f"{h} stanzas acknowledged, {self.sent} sent",
                application=tag("handled-count-too-high", told, xmlns=SM),
            )
        done = [self._unacknowledged.popleft() for _ in range(count)]
        self._acknowledged = h
        for stanza, token in done:
            self.bytes -= len(stanza)
            if self._counts(token):
                self._bounded -= 1
                self._bounded_bytes -= len(stanza)
        return [item.token for item in done]

    def wants_request(self) -> bool:
        """Tell whether so much was sent since the last request that it is time for another."""
        return self._since >= REQUEST_STANZAS or self._since_bytes >= REQUEST_BYTES

    def request(self) -> bytes:
        """Make `<r/>`, which asks the peer to acknowledge, and count anew from here."""
        self._since = self._since_bytes = 0
        return tag("r", xmlns=SM)

    # What we receive

    def handled(self) -> None:
        """Count one stanza of the peer's: call it once what it asks for is committed."""
        self.h = (self.h + 1) % WRAP

    def answer(self) -> bytes:
        """Make `<a/>`, which tells the peer how many of its stanzas have been handled."""
        return ack(self.h)


# Elements made


def ack(h: int) -> bytes:
    """Make `<a/>` (XEP-0198, section 4)."""
    return tag("a", {"h": str(h)}, xmlns=SM)


def enabled(id: str | None = None, max: int | None = None) -> bytes:
    """Answer `<enable/>` with success (XEP-0198, section 3).

    Args:
        id: by which the session can be resumed; None if it cannot be.
        max: for how many seconds; only with an id.
    """
    if id is None:
        return tag("enabled", xmlns=SM)
    seconds = None if max is None else str(max)
    return tag("enabled", {"id": id, "resume": "true", "max": seconds}, xmlns=SM)


def resumed(previd: str, h: int) -> bytes:
    """Answer `<resume/>` with success (XEP-0198, section 5)."""
    return tag("resumed", {"previd": previd, "h": str(h)}, xmlns=SM)


def failed(condition: str, h: int | None = None) -> bytes:
    """Refuse `<enable/>` or `<resume/>` (XEP-0198, section 6).

    Args:
        condition: a stanza error's, such as `item-not-found`.
        h: how many stanzas were handled in the session that is no more, if that is known.
    """
    count = None if h is None else str(h)
    return tag("failed", {"h": count}, tag(condition, xmlns=STANZA_ERRORS), xmlns=SM)


# Elements read


def read_enable(item: Child) -> EnableRequest:
    """Read `<enable/>`.

    Raises:
        StanzaError: `bad-request`, to be told by `failed`.
    """
    text = item.attrs.get("resume", "false")
    if text not in _BOOLEAN:
        raise StanzaError("bad-request", "`resume` must be a boolean")
    seconds = item.attrs.get("max")
    return EnableRequest(_BOOLEAN[text], None if seconds is None else _request(seconds, "max"))


def read_resume(item: Child) -> ResumeRequest:
    """Read `<resume/>`.

    Raises:
        StanzaError: `bad-request`, to be told by `failed`.
    """
    previd = item.attrs.get("previd", "")
    if not 0 < len(previd) <= MAX_ID:
        raise StanzaError("bad-request", "`previd` must name a session")
    return ResumeRequest(previd, _request(item.attrs.get("h", ""), "h"))


def read_ack(item: Child) -> int:
    """Read `<a/>`: how many stanzas the peer has handled.

    Raises:
        StreamError: `bad-format`: it is no count.
    """
    count = _unsigned(item.attrs.get("h", ""))
    if count is None:
        raise StreamError("bad-format", "`h` must be a count of stanzas")
    return count


def _request(text: str, name: str) -> int:
    number = _unsigned(text)
    if number is None:
        raise StanzaError("bad-request", f"`{name}` must be a number below 2**32")
    return number


def _unsigned(text: str) -> int | None:
    """Read an `unsignedInt` of XML Schema; None if it is not one."""
    number = int(text) if _UNSIGNED.fullmatch(text) else WRAP
    return number if number < WRAP else None
