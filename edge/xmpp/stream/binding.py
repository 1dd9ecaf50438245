"""From an authenticated stream to a bound one: a resource is bound, or a session resumed (RFC 6120,
section 7; XEP-0198, section 5), on request or inline with SASL2 (XEP-0386).

Inline, both may have been asked for: a session is resumed, or else a resource bound, and success is
told when that is done. Which sessions there are is not known here.
"""

from __future__ import annotations

import secrets

from edge.xmpp import serialize
from edge.xmpp.errors import StanzaError, StreamError, UsageError
from edge.xmpp.stanza import Stanza
from edge.xmpp.stream import management, requests, sasl2
from edge.xmpp.stream.actions import Action, Bind, Resume, Send
from edge.xmpp.stream.machine import Machine
from edge.xmpp.stream.states import State

MAX_BIND_FAILURES = 5
"""Refused requests to bind or to resume on one stream; RFC 6120, section 7.7.2.2 recommends 5 to
10."""


class Binding(Machine):
    """The rules from authentication to a session."""

    _wanted: sasl2.Request | None = None  # what SASL2 shall lead to, until it has
    _verifier = b""  # what success shall tell then,
    _inline = b""  # and what came of resuming
    _request: Stanza  # to bind
    _bind_failures = 0

    def _offer_binding(self) -> bytes:
        return serialize.features(
            bind=True, session=True, sm=True, max_bytes=self._max_bytes[1], extra=self._features
        )

    # On request

    def _bind(self, item: Stanza) -> list[Action]:
        self._request = item
        try:
            resource = requests.resource(item)
        except StanzaError as error:
            return self._unbound(error)
        self.state = State.BINDING
        return [Bind(resource)]

    def _bound(self, result: tuple[str, bytes]) -> list[Action]:
        self.state = State.BOUND
        if self._wanted is not None:
            return self._bound2(self._wanted, *result)
        return [Send(serialize.bind_result(self._request.attrs["id"], result[0]))]

    def _unbound(self, error: StanzaError) -> list[Action]:
        if self._wanted is not None:  # who has authenticated is told so, and may bind as of old
            return self._welcome(self._account)
        return self._retry(serialize.iq_error(self._request, error))

    def _resume(self, item: Stanza) -> list[Action]:
        try:
            wanted = management.read_resume(item)
        except StanzaError as error:
            return self._retry(management.failed(error.condition))
        self.state = State.RESUMING
        return [Resume(*wanted)]

    def _resumed(self, result: tuple[str, bytes]) -> list[Action]:
        full_jid, resumed = result
        self.state = State.BOUND
        return [Send(resumed if self._wanted is None else self._success(full_jid, resumed))]

    def _anew(self, failed: bytes) -> list[Action]:
        if self._wanted is None:
            return self._retry(failed)
        self._inline = failed
        return self._want_binding(self._wanted)

    def _unmanaged(self, _item: Stanza) -> list[Action]:
        return self._retry(management.failed("unexpected-request"))

    def _retry(self, refusal: bytes) -> list[Action]:
        """Refuse a request to bind or to resume; the peer may try again, a few times."""
        self._bind_failures += 1
        self.state = State.UNBOUND
        if self._bind_failures < MAX_BIND_FAILURES:
            return [Send(refusal)]
        error = StreamError("policy-violation", "too many requests to bind or to resume")
        return [Send(refusal), *self._fault(error)]

    # Inline with SASL2

    def _want(self, wanted: sasl2.Request) -> list[Action]:
        """Resume if that is asked for; else bind if that is."""
        if isinstance(wanted.resume, StanzaError):
            self._inline = management.failed(wanted.resume.condition)
        elif wanted.resume is not None:
            self.state = State.RESUMING
            return [Resume(*wanted.resume)]
        return self._want_binding(wanted)

    def _want_binding(self, wanted: sasl2.Request) -> list[Action]:
        if not wanted.bind:
            return self._welcome(self._account)
        self.state = State.BINDING
        resource = requests.bind2_resource(wanted.label, wanted.agent or secrets.token_hex(16))
        enable = None if isinstance(wanted.enable, StanzaError) else wanted.enable
        return [Bind(resource, enable)]

    def _welcome(self, identity: str) -> list[Action]:
        """Tell success where no resource is bound, and what may be done now."""
        self.state = State.UNBOUND
        return [Send(self._success(identity) + self._offer_binding())]

    def _success(self, identity: str, inline: bytes = b"") -> bytes:
        told = sasl2.success(self._verifier, identity, self._inline + inline)
        self._wanted = None
        return told

    def _bound2(self, wanted: sasl2.Request, full_jid: str, enabled: bytes) -> list[Action]:
        if isinstance(wanted.enable, StanzaError):
            enabled = management.failed(wanted.enable.condition)
        elif wanted.enable is not None and not enabled:
            raise UsageError("stream management was asked for, and not answered")
        offer = serialize.features(
            sm=not enabled, max_bytes=self._max_bytes[1], extra=self._features
        )
        return [Send(self._success(full_jid, sasl2.bound(enabled)) + offer)]
