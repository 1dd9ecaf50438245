"""The state machine of stream negotiation, as one table (RFC 6120, sections 4 to 7; XEP-0388).

`TRANSITIONS` maps each state and input to the rule that `negotiation` follows and to the states
that the rule may lead to.

An input that is not in the table ends the stream if it comes from the peer, and raises `UsageError`
if it comes from the caller. After the end of the stream, all inputs are ignored.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class State(Enum):
    """The states of negotiation; comments name the awaited input. `2` marks SASL2 (XEP-0388)."""

    CONNECTED = "connected"  # the stream header, without TLS
    CLEAR = "clear"  # STARTTLS, or authentication if that is allowed without TLS
    STARTING_TLS = "starting_tls"  # the end of the TLS handshake
    ENCRYPTED = "encrypted"  # the stream header, under TLS
    SECURE = "secure"  # authentication, under TLS
    PROMPTED = "prompted"  # the mechanism's first message
    PROMPTED2 = "prompted2"
    LOOKING_UP = "looking_up"  # the account's credentials
    IDENTIFYING = "identifying"  # the account that owns a certificate
    CHALLENGED = "challenged"  # the client's proof
    CHALLENGED2 = "challenged2"
    VERIFYING = "verifying"  # the check of a password
    DENIED = "denied"  # the time to report a failed attempt
    AUTHENTICATED = "authenticated"  # the header of the authenticated stream
    UNBOUND = "unbound"  # a request to bind or to resume
    RESUMING = "resuming"  # the session to be resumed
    BINDING = "binding"  # the session's registration
    BOUND = "bound"  # stanzas
    CLOSED = "closed"  # nothing


WAITING = frozenset(
    {
        State.STARTING_TLS,
        State.LOOKING_UP,
        State.IDENTIFYING,
        State.VERIFYING,
        State.DENIED,
        State.RESUMING,
        State.BINDING,
    }
)
"""The states in which the result of an action is outstanding."""


class Input(Enum):
    """The inputs: first those that the peer sends, then those of the caller."""

    OPEN = "header"
    STARTTLS = "starttls"
    AUTH = "auth"
    RESPONSE = "response"
    ABORT = "abort"
    AUTHENTICATE = "authenticate"
    RESPONSE2 = "response2"
    ABORT2 = "abort2"
    BIND = "bind"
    RESUME = "resume"
    MANAGE = "stream management"
    STANZA = "stanza"
    OTHER = "other element"
    PEER_ERROR = "stream error"
    CLOSE = "close"

    FAULT = "fault"
    TLS_ESTABLISHED = "TLS established"
    FOUND = "credentials found"
    NOT_FOUND = "look-up failed"
    IDENTIFIED = "account of the certificate"
    NOT_IDENTIFIED = "no account of the certificate"
    REFUSED_ATTEMPT = "attempt refused"
    VERIFIED = "password correct"
    NOT_VERIFIED = "password wrong"
    REPORT_FAILURE = "report failure"
    RESUMED = "session resumed"
    NOT_RESUMED = "no session to resume"
    BIND_DONE = "session registered"
    BIND_REFUSED = "session refused"


FROM_PEER = frozenset(list(Input)[: list(Input).index(Input.FAULT)])
"""The inputs that the peer sends."""


class Rule(Enum):
    """The rules that handle inputs. A rule's method in `Negotiation` is named `_` and its value."""

    OPEN = "open"  # check the stream header, send ours and the features
    START_TLS = "start_tls"
    REFUSE_TLS = "refuse_tls"  # the stream is under TLS already
    ENCRYPT = "encrypt"  # TLS is established
    BEGIN = "begin"  # choose a mechanism, and take its first message if it came along
    BEGIN2 = "begin2"  # the same by SASL2, with requests to carry out after it
    FIRST = "first"  # take the mechanism's first message
    CHALLENGE = "challenge"
    PROVE = "prove"  # check the client's proof
    ACCEPT = "accept"  # the password is correct
    IDENTIFY = "identify"  # the certificate has an owner
    REJECT = "reject"  # the password is wrong, or the certificate has no owner
    ABORT = "abort"
    UNAVAILABLE = "unavailable"  # the credentials could not be looked up, or not now
    REPORT = "report"  # report the failed attempt
    RESUME = "resume"
    RESUMED = "resumed"
    NOT_RESUMED = "not_resumed"  # there is no such session: bind, or let the peer bind
    BIND = "bind"
    BOUND = "bound"
    REFUSE_BIND = "refuse_bind"
    REFUSE_MANAGEMENT = "refuse_management"  # there is no session to manage yet
    ROUTE = "route"
    MANAGE = "manage"
    CLOSE = "close"
    FAULT = "fault"


class Transition(NamedTuple):
    """The rule for an input in a state, and the states that it may lead to."""

    rule: Rule
    then: tuple[State, ...]


_FIRST = (State.LOOKING_UP, State.IDENTIFYING, State.DENIED)
_AFTER = (State.AUTHENTICATED, State.CLOSED)
_AFTER2 = (State.UNBOUND, State.RESUMING, State.BINDING, State.CLOSED)
_DENIED = (State.DENIED,)
_END = (State.CLOSED,)

TRANSITIONS: dict[tuple[State, Input], Transition] = {
    (State.CONNECTED, Input.OPEN): Transition(Rule.OPEN, (State.CLEAR, State.CLOSED)),
    (State.CLEAR, Input.STARTTLS): Transition(Rule.START_TLS, (State.STARTING_TLS, State.CLOSED)),
    (State.CLEAR, Input.AUTH): Transition(Rule.BEGIN, (State.PROMPTED, *_FIRST)),
    (State.CLEAR, Input.AUTHENTICATE): Transition(Rule.BEGIN2, (State.PROMPTED2, *_FIRST)),
    (State.STARTING_TLS, Input.TLS_ESTABLISHED): Transition(Rule.ENCRYPT, (State.ENCRYPTED,)),
    (State.ENCRYPTED, Input.OPEN): Transition(Rule.OPEN, (State.SECURE, State.CLOSED)),
    (State.SECURE, Input.STARTTLS): Transition(Rule.REFUSE_TLS, _END),
    (State.SECURE, Input.AUTH): Transition(Rule.BEGIN, (State.PROMPTED, *_FIRST)),
    (State.SECURE, Input.AUTHENTICATE): Transition(Rule.BEGIN2, (State.PROMPTED2, *_FIRST)),
    (State.PROMPTED, Input.RESPONSE): Transition(Rule.FIRST, _FIRST),
    (State.PROMPTED, Input.ABORT): Transition(Rule.ABORT, _DENIED),
    (State.PROMPTED2, Input.RESPONSE2): Transition(Rule.FIRST, _FIRST),
    (State.PROMPTED2, Input.ABORT2): Transition(Rule.ABORT, _DENIED),
    (State.LOOKING_UP, Input.FOUND): Transition(
        Rule.CHALLENGE, (State.CHALLENGED, State.CHALLENGED2, State.VERIFYING)
    ),
    (State.LOOKING_UP, Input.NOT_FOUND): Transition(Rule.UNAVAILABLE, _DENIED),
    (State.LOOKING_UP, Input.REFUSED_ATTEMPT): Transition(Rule.UNAVAILABLE, _DENIED),
    (State.IDENTIFYING, Input.IDENTIFIED): Transition(
        Rule.IDENTIFY, (State.AUTHENTICATED, *_AFTER2, State.DENIED)
    ),
    (State.IDENTIFYING, Input.NOT_IDENTIFIED): Transition(Rule.REJECT, _DENIED),
    (State.IDENTIFYING, Input.REFUSED_ATTEMPT): Transition(Rule.UNAVAILABLE, _DENIED),
    (State.CHALLENGED, Input.RESPONSE): Transition(Rule.PROVE, (*_AFTER, State.DENIED)),
    (State.CHALLENGED, Input.ABORT): Transition(Rule.ABORT, _DENIED),
    (State.CHALLENGED2, Input.RESPONSE2): Transition(Rule.PROVE, (*_AFTER2, State.DENIED)),
    (State.CHALLENGED2, Input.ABORT2): Transition(Rule.ABORT, _DENIED),
    (State.VERIFYING, Input.VERIFIED): Transition(Rule.ACCEPT, (State.AUTHENTICATED, *_AFTER2)),
    (State.VERIFYING, Input.NOT_VERIFIED): Transition(Rule.REJECT, _DENIED),
    (State.DENIED, Input.REPORT_FAILURE): Transition(
        Rule.REPORT, (State.CLEAR, State.SECURE, State.CLOSED)
    ),
    (State.AUTHENTICATED, Input.OPEN): Transition(Rule.OPEN, (State.UNBOUND, State.CLOSED)),
    (State.UNBOUND, Input.RESUME): Transition(
        Rule.RESUME, (State.RESUMING, State.UNBOUND, State.CLOSED)
    ),
    (State.UNBOUND, Input.MANAGE): Transition(
        Rule.REFUSE_MANAGEMENT, (State.UNBOUND, State.CLOSED)
    ),
    (State.UNBOUND, Input.BIND): Transition(
        Rule.BIND, (State.BINDING, State.UNBOUND, State.CLOSED)
    ),
    (State.RESUMING, Input.RESUMED): Transition(Rule.RESUMED, (State.BOUND,)),
    (State.RESUMING, Input.NOT_RESUMED): Transition(
        Rule.NOT_RESUMED, (State.BINDING, State.UNBOUND, State.CLOSED)
    ),
    (State.BINDING, Input.BIND_DONE): Transition(Rule.BOUND, (State.BOUND,)),
    (State.BINDING, Input.BIND_REFUSED): Transition(
        Rule.REFUSE_BIND, (State.UNBOUND, State.CLOSED)
    ),
    (State.BOUND, Input.STANZA): Transition(Rule.ROUTE, (State.BOUND,)),
    (State.BOUND, Input.BIND): Transition(Rule.ROUTE, (State.BOUND,)),
    (State.BOUND, Input.RESUME): Transition(Rule.MANAGE, (State.BOUND,)),
    (State.BOUND, Input.MANAGE): Transition(Rule.MANAGE, (State.BOUND,)),
}
for _state in State:
    if _state is not State.CLOSED:
        TRANSITIONS[_state, Input.CLOSE] = Transition(Rule.CLOSE, _END)
        TRANSITIONS[_state, Input.PEER_ERROR] = Transition(Rule.CLOSE, _END)
        TRANSITIONS[_state, Input.FAULT] = Transition(Rule.FAULT, _END)
