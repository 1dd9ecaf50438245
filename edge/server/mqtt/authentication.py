"""Log-in by SCRAM in AUTH packets (MQTT 5.0, section 4.12; RFC 5802 and 7677).

The client's first message is in CONNECT or, in a session, in the AUTH that begins it anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edge.credentials import Credentials
from edge.mqtt.packets import Properties, Property
from edge.sasl import SaslFailure, ScramExchange
from edge.server.login import Login
from edge.server.mqtt import terms


class Authentication:
    """One exchange of SCRAM.

    Args:
        method: a name in `sasl.SCRAM`.
        domain: the gateway's domain.
        challenge: called with the properties of the AUTH that the client must answer.
        done: called with the account, if the exchange succeeds.
        refused: called if it fails, after the throttle's delay.

    Attributes:
        method: the authentication method.
        is_prompted: whether the client must send the next message.
        verifier: the properties with the server's last message, by which it proves that it knows
            the account.
    """

    def __init__(
        self,
        login: Login,
        method: str,
        domain: str,
        challenge: Callable[[Properties], None],
        done: Callable[[str], None],
        refused: Callable[[], None],
    ) -> None:
        self._login = login
        self._domain = domain
        self._challenge = challenge
        self._done = done
        self._refused = refused
        self._exchange: ScramExchange | None = None
        self._account = ""
        self.method = method
        self.is_prompted = False
        self.verifier: dict[Property, Any] = {}

    def begin(self, message: bytes, account: str | None = None) -> None:
        """Read the client's first message, which must name `account` if there is one."""
        self._login.note_input()
        try:
            exchange = ScramExchange(self.method, message)
        except SaslFailure as failure:
            self._fail(failure)
            return
        named = terms.account_of(exchange.username, self._domain)
        authorized = terms.account_of(exchange.authzid or named, self._domain)
        self._exchange, self._account = exchange, named
        if authorized != named or account not in (None, named):
            self._fail(SaslFailure("invalid-authzid"))
        elif named and self._login.may_try(named):
            self._login.find_credentials(named, self.method, self._found)
        else:
            self._fail(SaslFailure("not-authorized"))

    def _found(self, keys: Credentials | None) -> None:
        if keys is None or self._exchange is None:
            self._fail(SaslFailure("temporary-auth-failure"))
            return
        self.is_prompted = True
        self._challenge(self._properties(self._exchange.challenge(keys)))

    def receive(self, message: bytes) -> None:
        """Read the client's proof."""
        self.is_prompted = False
        self._login.note_input()
        assert self._exchange is not None  # noqa: S101
        try:
            self.verifier = self._properties(self._exchange.finish(message))
        except SaslFailure as failure:
            self._fail(failure)
            return
        self._login.accept(self._account)
        self._done(self._account)

    def _properties(self, message: bytes) -> dict[Property, Any]:
        return {
            Property.AUTHENTICATION_METHOD: self.method,
            Property.AUTHENTICATION_DATA: message,
        }

    def _fail(self, failure: SaslFailure) -> None:
        """Log the failure. The reason of a wrong proof or a failed look-up is known to `Login`."""
        is_guess = failure.condition == "not-authorized"
        is_known = is_guess or failure.condition == "temporary-auth-failure"
        reason = "" if is_known else failure.condition.replace("-", " ")
        self._login.fail(self._account, self.method, reason, self._refused, is_guess=is_guess)
