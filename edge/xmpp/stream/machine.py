"""What all rules of stream negotiation share: the state, the stream's own headers, and its end (RFC
6120, section 4).

The rules themselves stand in `wire.binding`, `wire.authentication` and `wire.negotiation`, each on
top of the one before; which of them is followed when is told by `wire.states`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from edge.xmpp import serialize
from edge.xmpp.errors import StreamError, UsageError
from edge.xmpp.stream.actions import Action, Close, Send
from edge.xmpp.stream.states import State


class Machine:
    """The stream's state, and how it ends; `wire.negotiation` tells what the arguments mean."""

    def __init__(
        self,
        domain: str,
        *,
        tls: bool = True,
        require_tls: bool = True,
        secure: bool = False,
        certificate: bool = False,
        limits: tuple[int, int] | None = None,
        features: bytes = b"",
        stream_id: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        if require_tls and not (tls or secure):
            raise UsageError("TLS is required, and cannot be started")
        self.domain = domain
        self.state = State.ENCRYPTED if secure else State.CONNECTED
        self.secure = secure
        self.username = ""
        self.mechanism = ""
        self.failures = 0
        self._tls = tls
        self._require_tls = require_tls
        self._certificate = certificate
        self._max_bytes = limits or (None, None)
        self._features = features
        self._stream_id = stream_id
        self._opened = False  # our header of this stream has been sent
        self._opener: str | None = None  # whom the peer says that it is
        self._more = False  # the peer has sent more than the present input

    @property
    def _account(self) -> str:
        return f"{self.username}@{self.domain}"

    def _fault(self, error: StreamError) -> list[Action]:
        return self._end(serialize.stream_error(error.condition, error.text, error.application))

    def _close(self, _item: object) -> list[Action]:
        return self._end(b"")

    def _end(self, last: bytes) -> list[Action]:
        """Say the last words, in a stream of ours; during a handshake nothing can be said."""
        mute = self.state is State.STARTING_TLS
        self.state = State.CLOSED
        if mute:
            return [Close()]
        header = b"" if self._opened else self._header(None)
        return [Send(header + last + serialize.STREAM_END), Close()]

    def _too_soon(self) -> list[Action]:
        return self._fault(StreamError("policy-violation", "sent ahead of the answer"))

    def _header(self, to: str | None) -> bytes:
        self._opened = True
        return serialize.stream_header(self.domain, self._stream_id(), to=to)
