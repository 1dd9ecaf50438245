"""Target: stream negotiation, with a client that sends anything in any order.

An input's first byte, a digit to base 32, is a sum of `Setup`. The rest is sent unchanged, except
that `%` and a letter stand for an element (`ELEMENTS`), and `|` ends a piece. So inputs are short,
and random ones reach all states.

`front.Front` checks the invariants.
"""

from __future__ import annotations

import base64
import re
from typing import Final

from tests.fuzz.front import FIRST, RIGHT, WAITING_ID, WRONG, Front, Setup
from tests.helpers.parser_corpus import HEADER

MAX_BYTES: Final = 2048
DIGITS: Final = b"0123456789abcdefghijklmnopqrstuv"

_SASL: Final = b"urn:ietf:params:xml:ns:xmpp-sasl"
_SASL2: Final = b"urn:xmpp:sasl:2"
_SM: Final = b"urn:xmpp:sm:3"
_BIND2: Final = b"urn:xmpp:bind:0"


def _auth(mechanism: bytes, message: bytes) -> bytes:
    text = base64.b64encode(message) or b"="
    return b"<auth xmlns='%b' mechanism='%b'>%b</auth>" % (_SASL, mechanism, text)


def _authenticate(mechanism: bytes, message: bytes, inline: bytes = b"") -> bytes:
    text = base64.b64encode(message)
    return (
        b"<authenticate xmlns='%b' mechanism='%b'><initial-response>%b</initial-response>"
        b"<user-agent id='d4565fa7-4d72-4749-b3d3-740edbf87770'><software>t</software></user-agent>"
        b"%b</authenticate>" % (_SASL2, mechanism, text, inline)
    )


_BINDING: Final = (
    b"<bind xmlns='%b'><tag>cam</tag><enable xmlns='%b' resume='true' max='60'/></bind>"
    % (_BIND2, _SM)
)
_RESUME: Final = b"<resume xmlns='%b' previd='%b' h='0'/>"
_RESUME_WAITING: Final = _RESUME % (_SM, WAITING_ID.encode())
_RESUME_ENDED: Final = _RESUME % (_SM, b"gone")
_BIND: Final = (
    b"<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>%b</bind></iq>"
)

ELEMENTS: Final = {
    b"h": HEADER,
    b"H": HEADER.partition(b"\n")[2],
    b"t": b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>",
    b"a": _auth(b"SCRAM-SHA-256", FIRST),
    b"A": _auth(b"SCRAM-SHA-1", FIRST),
    b"P": _auth(b"PLAIN", RIGHT),
    b"w": _auth(b"PLAIN", WRONG),
    b"E": _auth(b"EXTERNAL", b""),
    b"n": b"<auth xmlns='%b' mechanism='SCRAM-SHA-256'/>" % _SASL,
    b"d": b"<response xmlns='%b'/>" % _SASL,
    b"c": b"<abort xmlns='%b'/>" % _SASL,
    b"1": _authenticate(b"SCRAM-SHA-256", FIRST),
    b"2": _authenticate(b"SCRAM-SHA-1", FIRST, _BINDING),
    b"3": _authenticate(b"PLAIN", RIGHT, _RESUME_WAITING + _BINDING),
    b"4": _authenticate(b"PLAIN", RIGHT, _RESUME_ENDED + _BINDING),
    b"5": _authenticate(b"PLAIN", WRONG, _RESUME_WAITING),
    b"6": _authenticate(b"EXTERNAL", b"", _RESUME_ENDED),
    b"7": b"<authenticate xmlns='%b' mechanism='PLAIN'/>" % _SASL2,
    b"8": b"<response xmlns='%b'/>" % _SASL2,
    b"9": b"<abort xmlns='%b'/>" % _SASL2,
    b"R": _RESUME_WAITING,
    b"G": _RESUME_ENDED,
    b"M": b"<enable xmlns='%b' resume='1'/>" % _SM,
    b"N": b"<enable xmlns='%b'/>" % _SM,
    b"i": b"<r xmlns='%b'/>" % _SM,
    b"k": b"<a xmlns='%b' h='0'/>" % _SM,
    b"K": b"<a xmlns='%b' h='4294967295'/>" % _SM,
    b"b": _BIND % b"<resource>fw</resource>",
    b"B": _BIND % b"",
    b"l": b"<iq type='set' id='s'><session xmlns='urn:ietf:params:xml:ns:xmpp-session'/></iq>",
    b"q": b"<iq type='get' id='q' to='gw.example'><ping xmlns='urn:xmpp:ping'/></iq>",
    b"m": b"<message to='pump1@gw.example'><body>Hi</body></message>",
    b"e": b"<stream:error><reset xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>",
    b"x": b"</stream:stream>",
}
PROOFS: Final = {b"%p": _SASL, b"%r": _SASL2}
"""Tokens for the response to the last challenge that authenticates the client."""
_RESPONSE: Final = b"<response xmlns='%b'>%b</response>"
_TOKEN: Final = re.compile(rb"%.|\||[^%|]+|%", re.DOTALL)


def check(data: bytes) -> None:
    """Negotiate with a client that sends `data`."""
    play(data)


def play(data: bytes) -> Front:
    """Negotiate, and return the connection."""
    front = Front(Setup(max(DIGITS.find(data[:1]), 0)))
    piece = b""
    for token in _TOKEN.findall(data[1:]):
        if token in PROOFS:
            front.receive(piece)
            piece = _RESPONSE % (PROOFS[token], front.proof())
        elif token == b"|":
            front.receive(piece)
            piece = b""
        else:
            piece += ELEMENTS.get(token[1:], token) if token.startswith(b"%") else token
    front.receive(piece)
    return front
