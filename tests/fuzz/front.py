"""A connection without sockets: the parser and the negotiation, with immediate results of actions.

It checks the invariants of a stream for any input:

- the output is well-formed and legal (`oracle.Output`), and nothing follows the end;
- only a peer that has proved its password is authenticated, under TLS if that is required;
  no session is bound, and no stanza routed, before that.

There is no store: the account `cam1` exists with the password `PASSWORD`, and one of its sessions
waits to be resumed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections import deque
from enum import IntFlag
from functools import cache
from typing import Final

from edge import credentials, jid
from edge.credentials import Credentials
from edge.xmpp.errors import StanzaError, StreamError
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stanza import STANZA_NAMES, Item, Stanza
from edge.xmpp.stream import actions, management
from edge.xmpp.stream.actions import Action
from edge.xmpp.stream.management import EnableRequest, Management
from edge.xmpp.stream.negotiation import Negotiation
from edge.xmpp.stream.states import State
from tests.fuzz.oracle import Output

DOMAIN: Final = "gw.example"
USER: Final = "cam1"
PASSWORD: Final = "correct horse"
MAX_FAILURES: Final = 5
"""Maximum failed attempts on one stream (RFC 6120, section 6.4.5)."""
MAX_STANZAS: Final = 64
WAITING_ID: Final = "waiting"
"""The id of the only session that waits to be resumed."""
UNAUTHENTICATED_BYTES: Final = 10 * 1024
AUTHENTICATED_BYTES: Final = 64 * 1024

FIRST: Final = b"n,,n=cam1,r=clientnonce"
"""The client's first message of SCRAM, which `Front.proof` continues."""
RIGHT: Final = f"\0{USER}\0{PASSWORD}".encode()
WRONG: Final = f"\0{USER}\0wrong".encode()
"""Messages of PLAIN."""

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-1": "sha1"}
_CHALLENGE: Final = re.compile(rb"r=([^,]+),s=([^,]+),i=[0-9]+")


class Setup(IntFlag):
    """Settings and faults of the gateway, which may be combined."""

    IN_THE_CLEAR = 1  # TLS is not required
    REFUSING = 2  # sessions cannot be bound
    WITHOUT_STORE = 4  # credentials cannot be looked up
    CERTIFICATE = 8  # the client has presented the account's certificate
    DIRECT = 16  # direct TLS


class Front:
    """One connection of a client."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.negotiation = Negotiation(
            DOMAIN,
            require_tls=Setup.IN_THE_CLEAR not in setup,
            secure=Setup.DIRECT in setup,
            certificate=Setup.CERTIFICATE in setup and Setup.DIRECT in setup,
            limits=(UNAUTHENTICATED_BYTES, AUTHENTICATED_BYTES),
        )
        self.output = Output()
        self.routed: list[Stanza] = []
        self.over = False
        self._parser = StreamParser(UNAUTHENTICATED_BYTES)
        self._items: deque[Item | StreamError] = deque()
        self._proved = False
        self._known = False
        self._limit = UNAUTHENTICATED_BYTES
        self._management: Management[None] | None = None

    def receive(self, data: bytes) -> None:
        """Process bytes of the client."""
        if self.over:
            return
        try:
            self._items += self._parser.feed(data)
            assert self._parser.pending < self._limit
        except ParseError as error:
            self._items += error.items
            self._items.append(error)
        while self._items and not self.over:
            self._handle(self._items.popleft())

    def proof(self) -> bytes:
        """Return the response to the last challenge that authenticates with the password."""
        challenges = [e.text or "" for e in self.output.elements if e.tag.endswith("}challenge")]
        challenge = base64.b64decode(challenges[-1]) if challenges else b""
        match = _CHALLENGE.fullmatch(challenge)
        hash_ = _HASHES.get(self.negotiation.mechanism)
        if match is None or hash_ is None:
            return b""
        salted = _salted(hash_, base64.b64decode(match[2]))
        final = b"c=biws,r=" + match[1]
        signed = b",".join((FIRST.removeprefix(b"n,,"), challenge, final))
        key = hmac.digest(salted, b"Client Key", hash_)
        signature = hmac.digest(hashlib.new(hash_, key).digest(), signed, hash_)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self._proved = True
        return base64.b64encode(final + b",p=" + base64.b64encode(proof))

    def _handle(self, item: Item | StreamError) -> None:
        negotiation = self.negotiation
        assert not negotiation.waiting
        if isinstance(item, StreamError):
            self._perform(negotiation.fail(item))
        elif (
            negotiation.state is State.BOUND
            and isinstance(item, Stanza)
            and item.name in STANZA_NAMES
        ):
            self._route(item)
        else:
            self._perform(negotiation.receive(item, more=self._more))
        assert negotiation.failures <= MAX_FAILURES
        assert not self._management or self._management.bytes <= AUTHENTICATED_BYTES

    @property
    def _more(self) -> bool:
        return bool(self._items or self._parser.pending)

    def _perform(self, wanted: list[Action]) -> None:
        for action in wanted:
            assert not self.over, f"{action} after the end"
            match action:
                case actions.Send(data):
                    self.output.take(data)
                case actions.RestartStream():
                    self._restart()
                case actions.StartTls():
                    assert not self.negotiation.secure
                    self._restart()
                    certificate = Setup.CERTIFICATE in self.setup
                    self._perform(self.negotiation.tls_established(certificate=certificate))
                case actions.Close():
                    self.over = True
                case actions.Route(stanza):
                    self._route(stanza)
                case actions.ManageStream(element):
                    self._manage(element)
                case _:
                    self._answer_lookup(action)

    def _restart(self) -> None:
        self._parser.reset()
        self.output.restart()

    def _route(self, stanza: Stanza) -> None:
        assert self.negotiation.state is State.BOUND
        assert self._known
        self.routed.append(stanza)
        if self._management is not None:
            self._management.handled()

    def _answer_lookup(self, action: Action) -> None:
        negotiation = self.negotiation
        match action:
            case actions.FindCredentials(username, mechanism):
                self._check_channel(mechanism)
                self._perform(negotiation.credentials_found(self._find(username, mechanism)))
            case actions.FindCertificateOwner():
                self._check_channel("EXTERNAL")
                assert Setup.CERTIFICATE in self.setup
                self._proved = Setup.WITHOUT_STORE not in self.setup
                name = USER if self._proved else None
                self._perform(negotiation.owner_found(name, more=self._more))
            case actions.VerifyPassword(password, keys):
                right = password == PASSWORD and keys == _keys(keys.mechanism)
                self._proved = self._proved or right
                self._perform(negotiation.password_verified(right, more=self._more))
            case actions.LoginFailure():
                self._perform(negotiation.report_failure())
            case actions.LoginSuccess(username):
                self._authenticated(username)
            case actions.Resume(previd, h):
                self._resume(previd, h)
            case actions.Bind(resource, enable):
                self._bind(resource, enable)

    def _check_channel(self, mechanism: str) -> None:
        if not self.negotiation.secure:
            assert Setup.IN_THE_CLEAR in self.setup
            assert mechanism not in ("PLAIN", "EXTERNAL")

    def _find(self, username: str, mechanism: str) -> Credentials | None:
        if Setup.WITHOUT_STORE in self.setup:
            return None
        mechanism = "SCRAM-SHA-256" if mechanism == "PLAIN" else mechanism
        if username == USER:
            return _keys(mechanism)
        return credentials.decoy(username, bytes(32), mechanism)

    def _authenticated(self, username: str) -> None:
        assert self._proved, "authenticated without proof"
        assert username == USER
        assert self.negotiation.secure or Setup.IN_THE_CLEAR in self.setup
        assert not self._known, "authenticated twice"
        self._known = True
        self._limit = AUTHENTICATED_BYTES
        self._parser.set_limit(AUTHENTICATED_BYTES)

    def _bind(self, resource: str | None, enable: EnableRequest | None) -> None:
        assert self._known
        assert self.negotiation.username == USER
        if Setup.REFUSING in self.setup:
            self._perform(self.negotiation.bind_refused(StanzaError("resource-constraint")))
            return
        full = f"{USER}@{DOMAIN}/{'generated' if resource is None else resource}"
        assert jid.parse(full).full == full
        answer = b"" if enable is None else self._enable(enable)
        self._perform(self.negotiation.bound(full, answer))

    # Stream management

    def _resume(self, previd: str, h: int) -> None:
        assert self._known
        assert 0 <= h < management.WRAP
        if previd == WAITING_ID:
            self._management = Management(MAX_STANZAS, AUTHENTICATED_BYTES)
            self._perform(self.negotiation.resumed(f"{USER}@{DOMAIN}/fw", previd, 0))
        else:
            self._perform(self.negotiation.not_resumed(None if previd == "gone" else 5))

    def _enable(self, wanted: EnableRequest) -> bytes:
        self._management = Management(MAX_STANZAS, AUTHENTICATED_BYTES)
        assert wanted.max is None or 0 <= wanted.max < management.WRAP
        return management.enabled("id" if wanted.resume else None, wanted.max)

    def _manage(self, element: Stanza) -> None:
        assert self.negotiation.state is State.BOUND
        assert self._known
        try:
            self.output.take(self._managed(element))
        except StanzaError as error:
            self.output.take(management.failed(error.condition))
        except StreamError as error:
            self._perform(self.negotiation.fail(error))

    def _managed(self, element: Stanza) -> bytes:
        managed = self._management
        if element.name == management.ENABLE and managed is None:
            return self._enable(management.read_enable(element))
        if element.name == management.REQUEST and managed is not None:
            return managed.answer()
        if element.name == management.ACK and managed is not None:
            managed.acknowledge(management.read_ack(element))
            return b""
        return management.failed("unexpected-request")


@cache
def _salted(hash_: str, salt: bytes) -> bytes:
    return hashlib.pbkdf2_hmac(hash_, PASSWORD.encode(), salt, credentials.ITERATIONS)


@cache
def _keys(mechanism: str) -> Credentials:
    """Return the account's credentials with a constant salt."""
    return credentials._keys(PASSWORD, mechanism, b"salt of 16 bytes", credentials.ITERATIONS)
