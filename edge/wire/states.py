"""The state machine of stream negotiation, as one table (RFC 6120, sections 4 to 7).

`TRANSITIONS` holds all that may happen on the way from a connection to a bound session: for a state
and an input, the rule that is followed and the states that it may lead to. The rules themselves are
in `wire.negotiation`, which holds each to the states that the table allows it. `diagram` draws the
table for the documentation.

What is not in the table has no place: from the peer, it ends the stream; a result that nobody asked
for is our own fault. After the end everything is passed over.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class State(Enum):
    """What the stream is waiting for."""

    CONNECTED = "connected"  # the stream's header, in the clear
    CLEAR = "clear"  # STARTTLS, or authentication if that is allowed in the clear
    STARTING_TLS = "starting_tls"  # the end of the TLS handshake
    ENCRYPTED = "encrypted"  # the stream's header, under TLS
    SECURE = "secure"  # authentication, under TLS
    PROMPTED = "prompted"  # the mechanism's first message
    LOOKING_UP = "looking_up"  # the account's credentials
    CHALLENGED = "challenged"  # the client's proof
    VERIFYING = "verifying"  # the check of a password
    AUTHENTICATED = "authenticated"  # the header of the authenticated stream
    UNBOUND = "unbound"  # a request to bind
    BINDING = "binding"  # the session's registration
    BOUND = "bound"  # stanzas
    CLOSED = "closed"  # nothing


WAITING = frozenset({State.STARTING_TLS, State.LOOKING_UP, State.VERIFYING, State.BINDING})
"""The states in which the result of an action is outstanding."""


class Input(Enum):
    """What may happen: first what the peer sends, then what the session tells."""

    OPEN = "header"
    STARTTLS = "starttls"
    AUTH = "auth"
    RESPONSE = "response"
    ABORT = "abort"
    BIND = "bind"
    STANZA = "stanza"
    OTHER = "other element"
    PEER_ERROR = "stream error"
    CLOSE = "close"

    FAULT = "fault"
    TLS_ESTABLISHED = "TLS established"
    FOUND = "credentials found"
    NOT_FOUND = "look-up failed"
    VERIFIED = "password right"
    NOT_VERIFIED = "password wrong"
    BIND_DONE = "session registered"
    BIND_REFUSED = "session refused"


FROM_PEER = frozenset(list(Input)[: list(Input).index(Input.FAULT)])
"""The inputs that the peer sends."""


class Rule(Enum):
    """What is done; each is the method of `Negotiation` that has its name, after a `_`."""

    OPEN = "open"  # check the header, send ours and what the stream offers
    START_TLS = "start_tls"
    NO_TLS = "no_tls"  # refuse it where it is not offered
    ENCRYPT = "encrypt"  # TLS stands
    BEGIN = "begin"  # choose a mechanism, and take its first message if it came along
    FIRST = "first"  # take the first message
    CHALLENGE = "challenge"
    PROVE = "prove"  # check the client's proof
    ACCEPT = "accept"  # the password is right
    REJECT = "reject"  # it is not
    ABORT = "abort"
    UNAVAILABLE = "unavailable"  # the credentials could not be looked up
    BIND = "bind"
    BOUND = "bound"
    UNBOUND = "unbound"
    ROUTE = "route"
    CLOSE = "close"
    FAULT = "fault"


class Transition(NamedTuple):
    """What follows an input in a state: a rule, and the states that it may lead to."""

    rule: Rule
    then: tuple[State, ...]


_FAILED = (State.CLEAR, State.SECURE, State.CLOSED)
_FIRST = (State.LOOKING_UP, *_FAILED)
_BEGIN = (State.PROMPTED, *_FIRST)
_PROVED = (State.AUTHENTICATED, *_FAILED)
_END = (State.CLOSED,)

TRANSITIONS: dict[tuple[State, Input], Transition] = {
    (State.CONNECTED, Input.OPEN): Transition(Rule.OPEN, (State.CLEAR, State.CLOSED)),
    (State.CLEAR, Input.STARTTLS): Transition(Rule.START_TLS, (State.STARTING_TLS, State.CLOSED)),
    (State.CLEAR, Input.AUTH): Transition(Rule.BEGIN, _BEGIN),
    (State.STARTING_TLS, Input.TLS_ESTABLISHED): Transition(Rule.ENCRYPT, (State.ENCRYPTED,)),
    (State.ENCRYPTED, Input.OPEN): Transition(Rule.OPEN, (State.SECURE, State.CLOSED)),
    (State.SECURE, Input.STARTTLS): Transition(Rule.NO_TLS, _END),
    (State.SECURE, Input.AUTH): Transition(Rule.BEGIN, _BEGIN),
    (State.PROMPTED, Input.RESPONSE): Transition(Rule.FIRST, _FIRST),
    (State.PROMPTED, Input.ABORT): Transition(Rule.ABORT, _FAILED),
    (State.LOOKING_UP, Input.FOUND): Transition(
        Rule.CHALLENGE, (State.CHALLENGED, State.VERIFYING)
    ),
    (State.LOOKING_UP, Input.NOT_FOUND): Transition(Rule.UNAVAILABLE, _FAILED),
    (State.CHALLENGED, Input.RESPONSE): Transition(Rule.PROVE, _PROVED),
    (State.CHALLENGED, Input.ABORT): Transition(Rule.ABORT, _FAILED),
    (State.VERIFYING, Input.VERIFIED): Transition(Rule.ACCEPT, (State.AUTHENTICATED, State.CLOSED)),
    (State.VERIFYING, Input.NOT_VERIFIED): Transition(Rule.REJECT, _FAILED),
    (State.AUTHENTICATED, Input.OPEN): Transition(Rule.OPEN, (State.UNBOUND, State.CLOSED)),
    (State.UNBOUND, Input.BIND): Transition(
        Rule.BIND, (State.BINDING, State.UNBOUND, State.CLOSED)
    ),
    (State.BINDING, Input.BIND_DONE): Transition(Rule.BOUND, (State.BOUND,)),
    (State.BINDING, Input.BIND_REFUSED): Transition(Rule.UNBOUND, (State.UNBOUND, State.CLOSED)),
    (State.BOUND, Input.STANZA): Transition(Rule.ROUTE, (State.BOUND,)),
    (State.BOUND, Input.BIND): Transition(Rule.ROUTE, (State.BOUND,)),
}
for _state in State:
    if _state is not State.CLOSED:
        TRANSITIONS[_state, Input.CLOSE] = Transition(Rule.CLOSE, _END)
        TRANSITIONS[_state, Input.PEER_ERROR] = Transition(Rule.CLOSE, _END)
        TRANSITIONS[_state, Input.FAULT] = Transition(Rule.FAULT, _END)


def diagram() -> str:
    """Draw the table as a Mermaid state diagram.

    What is true in every state (closing, errors, what has no place) is left out, and so is the way
    to `closed`.
    """
    lines = ["stateDiagram-v2", f"    [*] --> {State.CONNECTED.value}"]
    for (state, event), transition in TRANSITIONS.items():
        lines += [
            f"    {state.value} --> {then.value}: {event.value}"
            for then in transition.then
            if then is not State.CLOSED
        ]
    return "\n".join(lines)
