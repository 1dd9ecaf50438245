"""Properties of streams that are valid except for one fault.

`tests.fuzz.front` processes the stream without sockets, and checks at each step that the output is
well-formed and legal, that only the account with its password is authenticated, and that no more
than a stanza is kept. The tests here check which stream error a fault leads to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.xmpp.errors import STREAM_CONDITIONS
from tests.fuzz.front import Front, Setup
from tests.fuzz.fuzz_negotiation import DIGITS, ELEMENTS, play
from tests.fuzz.oracle import STREAM_ERRORS, STREAMS
from tests.helpers.parser_corpus import HEADER

STEPS: dict[str, tuple[Setup, list[str]]] = {
    "in the clear": (Setup.IN_THE_CLEAR, ["h", "a", "p", "h", "b", "q", "m"]),
    "STARTTLS": (Setup(0), ["h", "t", "h", "P", "h", "B", "l", "q", "m"]),
    "SASL2": (Setup.DIRECT, ["h", "3", "q", "i", "m"]),
    "SASL2 and SCRAM": (Setup.DIRECT, ["h", "1", "r", "R", "m", "k"]),
    "certificate": (Setup.DIRECT | Setup.CERTIFICATE, ["h", "E", "h", "b", "M", "q", "m"]),
}
"""Valid streams: the gateway's settings, and the elements of `fuzz_negotiation` in order."""

NOT_WELL_FORMED: Mapping[str, str | bytes] = {
    "duplicate attribute": "<iq id='1' id='1'/>",
    "wrong nesting": "<iq><a><b></a></b></iq>",
    "end without a beginning": "</iq>",
    "unbound prefix": "<p:iq/>",
    "control character": "<iq>\x0b</iq>",
    "invalid reference": "<iq>&#xD800;&#xDC00;</iq>",
    "bare ampersand": "<iq>&</iq>",
    "truncated UTF-8": b"<iq>\xe2\x82</iq>",
}
"""Examples; `test_hostile_xml` has all faults of XML."""
RESTRICTED = {
    "comment": "<!-- x -->",
    "unterminated comment": "<!--",
    "processing instruction in a stanza": "<iq><?x y?></iq>",
    "document type": "<!DOCTYPE x>",
    "undefined entity": "<iq>&lol9;</iq>",
}
BAD_FORMAT = {"text": "text", "CDATA": "<![CDATA[<iq/>]]>", "reference": "&#65;"}
LONG = 70_000
"""Bytes above the limit of a stanza, also after authentication."""
EXCESSIVE = {
    "a long name": f"<{'n' * LONG}/>",
    "a long name that never ends": f"<{'n' * LONG}",
    "a long attribute": f"<iq id='{'i' * LONG}'/>",
    "a long attribute's name": f"<iq {'n' * LONG}=''/>",
    "a long namespace": f"<iq xmlns:p='{'n' * LONG}'/>",
    "a long xml:lang": f"<message xml:lang='{'d' * LONG}'/>",
    "long text": f"<message><body>{'t' * LONG}</body></message>",
    "a long CDATA section": f"<message><![CDATA[{'t' * LONG}",
    "many attributes": "<iq" + "".join(f" a{n}=''" for n in range(65)) + "/>",
    "many namespaces": "".join(f"<a xmlns:p{n}='u{n}'>" for n in range(65)),
    "many levels": "<a>" * 66,
    "many elements": f"<iq>{'<a/>' * 2048}</iq>",
}
ORDINARY = {
    "no language": "<message xml:lang=''/>",
    "a language that is none": "<message xml:lang='!?&#10;'/>",
    "a long language": f"<message xml:lang='{'x-' * 500}'/>",
    "languages within each other": "<message xml:lang='de'><body xml:lang='&#x1F600;'/></message>",
    "a greater-than in values": "<message id='a>b' to=\"'>'\"/>",
    "CDATA that looks like markup": "<message><body><![CDATA[</body><!-- -->]]></body></message>",
    "references": "<message><body>&#x1F600;&lt;&#13;&#9;</body></message>",
    "blanks": " \n\t <message \n />\r\n",
    "a prefix for the stanza": "<c:message xmlns:c='jabber:client'/>",
    "no id": "<iq type='get'><ping xmlns='urn:xmpp:ping'/></iq>",
    "no type": "<iq id='1'/>",
    "two payloads": "<iq type='get' id='1'><a xmlns='u'/><b xmlns='u'/></iq>",
    "forged from": "<message from='other@gw.example/x'/>",
    "a malformed address": "<message to='@@/'/>",
}
"""Stanzas that are odd, or that a feature refuses, but that are no fault of the stream."""
MISPLACED = {
    "an unknown element": "<x xmlns='u'/>",
    "an unknown element of streams": "<stream:x/>",
    "features": "<stream:features/>",
    "a stanza without namespace": "<iq xmlns='' type='get' id='1'/>",
    "a stanza of servers": "<iq xmlns='jabber:server' type='get' id='1'/>",
    "a stanza in another namespace": "<message xmlns='jabber:component:accept'/>",
    "a stanza in capitals": "<IQ type='get' id='1'/>",
    "compression": "<compress xmlns='http://jabber.org/protocol/compress'><method>zlib</method>"
    "</compress>",
    "old authentication": "<handshake xmlns='jabber:component:accept'>00</handshake>",
    "a dialback key": "<db:result xmlns:db='jabber:server:dialback'>x</db:result>",
}
"""Elements that are not allowed in any client's stream."""
FAULTS: dict[str, Mapping[str, str | bytes]] = {
    "not-well-formed": NOT_WELL_FORMED,
    "restricted-xml": RESTRICTED,
    "bad-format": BAD_FORMAT,
    "policy-violation": EXCESSIVE,
}
"""Examples of faults by the condition of the stream error that they lead to."""
ANY_FAULT = {**RESTRICTED, **BAD_FORMAT, **EXCESSIVE, **MISPLACED}


@dataclass(frozen=True)
class Stream:
    """A valid stream, and the number of its elements before a fault."""

    setup: Setup
    steps: tuple[str, ...]
    at: int


@st.composite
def streams(draw: st.DrawFn, *, opened: bool = True) -> Stream:
    """Draw a valid stream and a place in it, where it is open or where a header must follow."""
    setup, steps = STEPS[draw(st.sampled_from(sorted(STEPS)))]
    headers = [at for at, step in enumerate(steps) if step == "h"]
    places = sorted(set(range(len(steps) + 1)) - set(headers)) if opened else headers
    return Stream(setup, tuple(steps), draw(st.sampled_from(places)))


def send_steps(setup: Setup, steps: Iterable[str]) -> Front:
    """Send elements of `fuzz_negotiation` one by one."""
    return play(DIGITS[setup : setup + 1] + b"".join(b"%%%b|" % step.encode() for step in steps))


def send_until_fault(stream: Stream) -> Front:
    """Send a stream up to its fault."""
    front = send_steps(stream.setup, stream.steps[: stream.at])
    assert not front.over
    return front


def to_bytes(data: str | bytes) -> bytes:
    return data if isinstance(data, bytes) else data.encode()


def send_in_pieces(front: Front, data: bytes, size: int) -> None:
    """Send bytes in pieces."""
    for at in range(0, len(data), size):
        front.receive(data[at : at + size])


def error_condition(front: Front) -> str | None:
    """Return the condition of the stream error, if one was sent; nothing may follow it."""
    errors = [e for e in front.output.elements if e.tag == STREAMS + "error"]
    assert len(errors) <= 1
    if not errors:
        return None
    assert front.over
    assert front.output.elements[-1] is errors[0]
    found = errors[0][0].tag.removeprefix(STREAM_ERRORS)
    assert found in STREAM_CONDITIONS
    return found


@pytest.mark.parametrize(("setup", "steps"), STEPS.values(), ids=STEPS)
def test_valid_streams(setup: Setup, steps: list[str]) -> None:
    front = send_until_fault(Stream(setup, tuple(steps), len(steps)))
    assert error_condition(front) is None
    assert len(front.routed) == len({"q", "m", "l"} & set(steps))
    front.receive(b"</stream:stream>")
    assert front.over
    assert front.output.ended


@pytest.mark.parametrize("condition", FAULTS)
@given(stream=streams(), data=st.data())
def test_faults_end_the_stream_with_their_error(
    condition: str, stream: Stream, data: st.DataObject
) -> None:
    fault = data.draw(st.sampled_from(sorted(FAULTS[condition])))
    front = send_until_fault(stream)
    sizes = st.integers(500, LONG) if condition == "policy-violation" else st.integers(1, 40)
    send_in_pieces(front, to_bytes(FAULTS[condition][fault]), data.draw(sizes))
    assert error_condition(front) == condition


@given(
    stream=streams(opened=False),
    fault=st.sampled_from(sorted(ANY_FAULT)),
    size=st.integers(100, LONG),
)
def test_faults_in_place_of_a_header(stream: Stream, fault: str, size: int) -> None:
    front = send_until_fault(stream)
    send_in_pieces(front, ANY_FAULT[fault].encode(), size)
    assert error_condition(front) is not None
    assert front.output.ended


@given(stream=streams(), fault=st.sampled_from(sorted(MISPLACED)), size=st.integers(1, 40))
def test_unexpected_elements_are_not_routed(stream: Stream, fault: str, size: int) -> None:
    front = send_until_fault(stream)
    routed = len(front.routed)
    send_in_pieces(front, MISPLACED[fault].encode(), size)
    assert error_condition(front) is not None
    assert len(front.routed) == routed


@given(
    how=st.sampled_from(list(STEPS)), odd=st.sampled_from(sorted(ORDINARY)), size=st.integers(1, 9)
)
def test_odd_stanzas_are_routed(how: str, odd: str, size: int) -> None:
    flags, steps = STEPS[how]
    front = send_until_fault(Stream(flags, tuple(steps), len(steps)))
    routed = len(front.routed)
    send_in_pieces(front, ORDINARY[odd].encode(), size)
    assert error_condition(front) is None
    assert len(front.routed) == routed + 1


@given(stream=streams(), extra=st.lists(st.sampled_from(sorted(ELEMENTS)), min_size=1, max_size=6))
def test_elements_in_any_order(stream: Stream, extra: list[bytes]) -> None:
    front = send_until_fault(stream)
    known = front.negotiation.username
    for letter in extra:
        front.receive(ELEMENTS[letter])
    assert front.over is (error_condition(front) is not None or front.output.ended)
    assert not front.routed or front.negotiation.username
    assert front.negotiation.username in (known, "cam1")


@given(
    settings_=st.integers(0, sum(Setup)),
    sequence=st.lists(st.sampled_from(sorted(ELEMENTS)), max_size=12),
)
def test_any_sequence_with_any_settings(settings_: int, sequence: list[bytes]) -> None:
    front = Front(Setup(settings_))
    front.receive(HEADER)
    for letter in sequence:
        front.receive(ELEMENTS[letter])
    assert front.over is (error_condition(front) is not None or front.output.ended)
    assert not front.routed or front.negotiation.username == "cam1"


@given(stream=streams(), left_out=st.integers(0, 8))
def test_a_missing_step_prevents_progress(stream: Stream, left_out: int) -> None:
    steps = stream.steps
    needed = [at for at, step in enumerate(steps) if step in "htaprPE13bB"]
    missing = needed[left_out % len(needed)]
    front = send_steps(stream.setup, steps[:missing] + steps[missing + 1 :])
    assert not front.routed
    assert error_condition(front) is not None or not front.over


@given(stream=streams(), size=st.integers(1, 2000))
def test_pipelined_streams_are_refused_or_equivalent(stream: Stream, size: int) -> None:
    steps = stream.steps[: stream.at]
    front = Front(stream.setup)
    if {"p", "r"} & set(steps):  # a proof needs its challenge
        return
    send_in_pieces(front, b"".join(ELEMENTS[step.encode()] for step in steps), max(size, 1))
    if front.over:
        assert error_condition(front) == "policy-violation"
        assert {"t", "P", "E", "3"} & set(steps), "only data ahead of a restart is refused"
    else:
        assert len(front.routed) == len(send_until_fault(stream).routed)
