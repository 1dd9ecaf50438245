"""From a stream to an authenticated one, by either profile of SASL (RFC 6120, section 6; XEP-0388).

How an attempt goes is told by `wire.attempt`; here is what it leads to, and how many there may be.
Whom credentials and certificates belong to is found out by the session.
"""

from __future__ import annotations

from edge.credentials import Credentials
from edge.xmpp import serialize
from edge.xmpp.errors import StreamError
from edge.xmpp.stanza import Stanza
from edge.xmpp.stream import attempt, requests, sasl, sasl2
from edge.xmpp.stream.actions import Action, Authenticated, Denied, LookUp, Restart, Send, Verify
from edge.xmpp.stream.attempt import Attempt, Profile
from edge.xmpp.stream.binding import Binding
from edge.xmpp.stream.states import State

MAX_SASL_FAILURES = 3
"""Failed attempts to authenticate on one stream; RFC 6120, section 6.4.5 recommends 2 to 5."""


class Authentication(Binding):
    """The rules of authentication."""

    _attempt: Attempt  # the present one, or the last
    _condition = ""  # why it failed

    def _mechanisms(self) -> tuple[str, ...]:
        return attempt.offered(
            secure=self.secure, certificate=self._certificate, require_tls=self._require_tls
        )

    def _begin(self, item: Stanza) -> list[Action]:
        self._try(attempt.FIRST, item)
        return self._prompt(requests.message(item))

    def _begin2(self, item: Stanza) -> list[Action]:
        self._try(attempt.SECOND, item)
        self._wanted = sasl2.read(item)
        return self._prompt(self._wanted.initial)

    def _try(self, profile: Profile, item: Stanza) -> None:
        self.mechanism = item.attrs.get("mechanism", "")
        self._wanted = None
        opener = self._opener if profile is attempt.SECOND else None
        self._attempt = Attempt(profile, self.mechanism, self.domain, opener)
        self._attempt.choose(self._mechanisms())

    def _prompt(self, initial: bytes | None) -> list[Action]:
        if initial is not None:
            return self._take(initial)
        self.state = self._attempt.profile.prompted
        return [Send(self._attempt.profile.challenge(b""))]

    def _first(self, item: Stanza) -> list[Action]:
        return self._take(self._attempt.profile.message(item) or b"")

    def _take(self, initial: bytes) -> list[Action]:
        action = self._attempt.first(initial)
        self.state = State.LOOKING_UP if isinstance(action, LookUp) else State.IDENTIFYING
        return [action]

    def _challenge(self, credentials: Credentials) -> list[Action]:
        challenge = self._attempt.challenge(credentials)
        if isinstance(challenge, Verify):
            self.state = State.VERIFYING
            return [challenge]
        profile = self._attempt.profile
        self.state = profile.challenged
        return [Send(profile.challenge(sasl.encode(challenge)))]

    def _prove(self, item: Stanza) -> list[Action]:
        return self._succeed(self._attempt.prove(self._attempt.profile.message(item) or b""))

    def _accept(self, _nothing: None) -> list[Action]:
        return self._succeed(b"")

    def _identify(self, name: str) -> list[Action]:
        self._attempt.identified(name)
        return self._succeed(b"")

    def _succeed(self, verifier: bytes) -> list[Action]:
        if self._more:
            return self._too_soon()
        self.username = self._attempt.username
        known = Authenticated(self.username)
        if self._wanted is not None:
            self._verifier = verifier
            return [known, *self._want(self._wanted)]
        self._opened = False
        self.state = State.AUTHENTICATED
        success = serialize.sasl_success(sasl.encode(verifier) if verifier else b"")
        return [Send(success), known, Restart()]

    def _reject(self, _nothing: None) -> list[Action]:
        return self._deny("not-authorized")

    def _abort(self, _item: Stanza) -> list[Action]:
        return self._deny("aborted")

    def _unavailable(self, _nothing: None) -> list[Action]:
        return self._deny("temporary-auth-failure")

    def _deny(self, condition: str) -> list[Action]:
        """This attempt has failed; the peer hears of it when the session thinks fit."""
        self._condition = condition
        self.failures += 1
        self.state = State.DENIED
        return [Denied(self._attempt.username, condition)]

    def _tell(self, _nothing: None) -> list[Action]:
        """Tell that this attempt failed; the peer may try again, a few times."""
        self.state = State.SECURE if self.secure else State.CLEAR
        told = Send(self._attempt.profile.failure(self._condition))
        if self.failures < MAX_SASL_FAILURES:
            return [told]
        return [told, *self._fault(StreamError("policy-violation", "too many failures"))]
