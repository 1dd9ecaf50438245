"""Stream management of one session (XEP-0198): unacknowledged stanzas, counters, and the XML.

The state outlives the connection, so that a resumed session continues with it. Unacknowledged
stanzas are limited in number and bytes; above a limit the caller must end the session
(`resource-constraint`), because a dropped stanza would be lost.
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
RESUME: Final[str] = clark(SM, "resume")
REQUEST: Final = clark(SM, "r")
ACK: Final = clark(SM, "a")

WRAP: Final = 2**32
"""The counters wrap around at this value (XEP-0198, section 4)."""
REQUEST_STANZAS: Final = 8
"""Number of stanzas after which the next request for acknowledgement is due: half of the lowest
possible `limits.unacknowledged_stanzas`."""
REQUEST_BYTES: Final = 8 * 1024
"""Number of bytes after which the next request for acknowledgement is due: some seconds of a slow
radio link."""
MAX_ID: Final = 128
"""Maximum characters of the id in a request to resume; the gateway's ids have fewer."""

_UNSIGNED = re.compile(r"[0-9]{1,10}", re.ASCII)
_BOOLEAN = {"true": True, "1": True, "false": False, "0": False}


class Unacknowledged(NamedTuple, Generic[T]):
    """A stanza that was sent and not acknowledged, with the caller's token for it."""

    stanza: bytes
    token: T


class EnableRequest(NamedTuple):
    """The contents of `<enable/>`: whether to allow resumption, and for at most how many seconds;
    None leaves that to the server."""

    resume: bool
    max: int | None


class ResumeRequest(NamedTuple):
    """The contents of `<resume/>`: the session's id, and how many of the gateway's stanzas the peer
    has handled."""

    previd: str
    h: int


class Management(Generic[T]):
    """The counters and unacknowledged stanzas of one session.

    Args:
        max_stanzas: maximum number of unacknowledged stanzas.
        max_bytes: maximum bytes of unacknowledged stanzas.
        counts: returns whether a stanza with this token counts towards these limits.
        start: first value of both counters, for tests.

    Attributes:
        h: number of the peer's stanzas that have been handled, modulo 2**32.
        bounded: number of unacknowledged stanzas that count towards the limits.
        bytes: bytes of all unacknowledged stanzas.
    """

    __slots__ = (
        "_acknowledged", "_bounded_bytes", "_counts", "_max_bytes", "_max_stanzas",
        "_since", "_since_bytes", "_unacknowledged", "bounded", "bytes", "h",
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
        self._bounded_bytes = 0
        self._acknowledged = start
        self._unacknowledged: deque[Unacknowledged[T]] = deque()
        self._since = 0  # stanzas sent since the last request
        self._since_bytes = 0
        self.bounded = 0
        self.bytes = 0
        self.h = start

    # Sending

    @property
    def sent(self) -> int:
        """Number of stanzas sent, modulo 2**32."""
        return (self._acknowledged + len(self._unacknowledged)) % WRAP

    @property
    def unacknowledged(self) -> tuple[Unacknowledged[T], ...]:
        """The unacknowledged stanzas in the order of `send`, each with the token given to it."""
        return tuple(self._unacknowledged)

    def send(self, stanza: bytes, token: T) -> bool:
        """Keep a stanza until it is acknowledged; return whether the limits are still respected.

        The stanza is kept in any case; above a limit, the caller must end the session.
        """
        self._unacknowledged.append(Unacknowledged(stanza, token))
        self.bytes += len(stanza)
        self._since += 1
        self._since_bytes += len(stanza)
        if self._counts(token):
            self.bounded += 1
            self._bounded_bytes += len(stanza)
        return self.bounded <= self._max_stanzas and self._bounded_bytes <= self._max_bytes

    def acknowledge(self, h: int) -> list[T]:
        """Drop the stanzas that the peer has handled, and return their tokens in order.

        Args:
            h: number of stanzas that the peer has handled in all, as `read_ack` returns it.

        Raises:
            StreamError: `undefined-condition` with `<handled-count-too-high/>`: the peer
                acknowledges more than was sent, or less than before (XEP-0198, section 6).
        """
        count = (h - self._acknowledged) % WRAP
        if count > len(self._unacknowledged):
            attrs = {"h": str(h), "send-count": str(self.sent)}
            raise StreamError(
                "undefined-condition",
                f"{h} stanzas acknowledged, {self.sent} sent",
                application=tag("handled-count-too-high", attrs, xmlns=SM),
            )
        done = [self._unacknowledged.popleft() for _ in range(count)]
        self._acknowledged = h
        for stanza, token in done:
            self.bytes -= len(stanza)
            if self._counts(token):
                self.bounded -= 1
                self._bounded_bytes -= len(stanza)
        return [item.token for item in done]

    def wants_request(self) -> bool:
        """Return whether a request for acknowledgement is due."""
        return self._since >= REQUEST_STANZAS or self._since_bytes >= REQUEST_BYTES

    def request(self) -> bytes:
        """Return `<r/>`, which requests an acknowledgement, and note that it was sent."""
        self._since = self._since_bytes = 0
        return tag("r", xmlns=SM)

    # Receiving

    def handled(self) -> None:
        """Count a stanza of the peer; call this after its unit of work is committed."""
        self.h = (self.h + 1) % WRAP

    def answer(self) -> bytes:
        """Build `<a/>`, which acknowledges the peer's stanzas (XEP-0198, section 4)."""
        return tag("a", {"h": str(self.h)}, xmlns=SM)


# Building


def enabled(id: str | None = None, max: int | None = None) -> bytes:
    """Build the successful answer to `<enable/>` (XEP-0198, section 3).

    Args:
        id: the id by which the session can be resumed; None if it cannot.
        max: seconds for which it can be resumed; only with an id.
    """
    if id is None:
        return tag("enabled", xmlns=SM)
    seconds = None if max is None else str(max)
    return tag("enabled", {"id": id, "resume": "true", "max": seconds}, xmlns=SM)


def resumed(previd: str, h: int) -> bytes:
    """Build the successful answer to `<resume/>`: the session's id, and the number of the peer's
    stanzas that were handled (XEP-0198, section 5)."""
    return tag("resumed", {"previd": previd, "h": str(h)}, xmlns=SM)


def failed(condition: str, h: int | None = None) -> bytes:
    """Build the refusal of `<enable/>` or `<resume/>` (XEP-0198, section 6).

    Args:
        condition: a stanza error condition, such as `item-not-found`.
        h: number of the peer's stanzas that were handled before the session ended, if known.
    """
    count = None if h is None else str(h)
    return tag("failed", {"h": count}, tag(condition, xmlns=STANZA_ERRORS), xmlns=SM)


# Reading


def read_enable(item: Child) -> EnableRequest:
    """Read `<enable/>`; raises `StanzaError` (`bad-request`), to be answered with `failed`."""
    text = item.attrs.get("resume", "false")
    if text not in _BOOLEAN:
        raise StanzaError("bad-request", "`resume` must be a boolean")
    seconds = item.attrs.get("max")
    return EnableRequest(_BOOLEAN[text], None if seconds is None else _number(seconds, "max"))


def read_resume(item: Child) -> ResumeRequest:
    """Read `<resume/>`; raises `StanzaError` (`bad-request`), to be answered with `failed`."""
    previd = item.attrs.get("previd", "")
    if not 0 < len(previd) <= MAX_ID:
        raise StanzaError("bad-request", "`previd` must be the id of a session")
    return ResumeRequest(previd, _number(item.attrs.get("h", ""), "h"))


def read_ack(item: Child) -> int:
    """Read `<a/>`: the number of stanzas that the peer has handled.

    Raises:
        StreamError: `bad-format`: the element has no valid count.
    """
    count = _unsigned(item.attrs.get("h", ""))
    if count is None:
        raise StreamError("bad-format", "`h` must be a count of stanzas")
    return count


def _number(text: str, name: str) -> int:
    number = _unsigned(text)
    if number is None:
        raise StanzaError("bad-request", f"`{name}` must be a number below 2**32")
    return number


def _unsigned(text: str) -> int | None:
    """Parse an `unsignedInt` of XML Schema; None if it is not one."""
    number = int(text) if _UNSIGNED.fullmatch(text) else WRAP
    return number if number < WRAP else None
