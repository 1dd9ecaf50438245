"""Streams that are almost valid: a client's whole stream, right but for one thing.

Each is taken by a connection without a socket (`tests.fuzz.front`), which checks at every step that
what is sent is well-formed and legal, that nobody gets in who should not, and that no more is held
than a stanza. Here it is said what must come of each fault: the stream's error, or one of a few.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.xmpp.errors import STREAM_CONDITIONS, StreamError
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import Item
from tests.fuzz.front import Front, How
from tests.fuzz.fuzz_negotiation import ELEMENTS
from tests.fuzz.oracle import STREAM_ERRORS, STREAMS
from tests.helpers.wire_corpus import HEADER

STEPS: dict[str, tuple[How, list[str]]] = {
    "in the clear": (How.IN_THE_CLEAR, ["h", "a", "p", "h", "b", "q", "m"]),
    "STARTTLS": (How(0), ["h", "t", "h", "P", "h", "B", "l", "q", "m"]),
    "SASL2": (How.DIRECT, ["h", "3", "q", "i", "m"]),
    "SASL2 and SCRAM": (How.DIRECT, ["h", "1", "r", "R", "m", "k"]),
    "certificate": (How.DIRECT | How.SHOWN, ["h", "E", "h", "b", "M", "q", "m"]),
}
"""Valid streams: how the gateway is, and the elements of `fuzz_negotiation`, sent one by one."""

NOT_WELL_FORMED: dict[str, str | bytes] = {
    "an attribute twice": "<iq id='1' id='1'/>",
    "an attribute twice by namespace": "<a xmlns:p='u' xmlns:q='u' p:b='' q:b=''/>",
    "wrong nesting": "<iq><a><b></a></b></iq>",
    "an end without a beginning": "</iq>",
    "an unbound prefix": "<p:iq/>",
    "an undeclared prefix": "<a xmlns:p=''/>",
    "a rebound xml": "<a xmlns:xml='u'/>",
    "a value without quotes": "<iq id=1/>",
    "a less-than in a value": "<iq id='<'/>",
    "NUL": "<iq>\0</iq>",
    "NUL in a name": "<i\0q/>",
    "a reference to NUL": "<iq>&#0;</iq>",
    "a control character": "<iq>\x0b</iq>",
    "a reference to a control character": "<iq id='&#1;'/>",
    "a surrogate by reference": "<iq>&#xD800;&#xDC00;</iq>",
    "a noncharacter by reference": "<iq>&#xFFFE;</iq>",
    "a reference beyond Unicode": "<iq>&#x110000;</iq>",
    "a reference that overflows": "<iq>&#99999999999999999999;</iq>",
    "an end of CDATA in text": "<iq>]]></iq>",
    "a bare ampersand": "<iq>&</iq>",
    "invalid UTF-8": b"<iq>\xff</iq>",
    "UTF-8 that is cut": b"<iq>\xe2\x82</iq>",
    "overlong UTF-8": b"<iq>\xc0\xaf</iq>",
    "overlong UTF-8 of three bytes": b"<iq>\xe0\x80\xaf</iq>",
    "a surrogate in UTF-8": b"<iq>\xed\xa0\x80</iq>",
    "UTF-8 beyond Unicode": b"<iq>\xf4\x90\x80\x80</iq>",
    "an overlong tag": b"<iq id='\xc0\xbc'/>",
}
RESTRICTED = {
    "a comment": "<!-- x -->",
    "a comment in a stanza": "<iq><!-- x --></iq>",
    "a comment that never ends": "<!--",
    "an instruction": "<?x y?>",
    "a second declaration": "<?xml version='1.0'?>",
    "a document type": "<!DOCTYPE x>",
    "an entity bomb": "<!DOCTYPE x [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;'>]><iq>&b;</iq>",
    "an external entity": "<!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><iq>&a;</iq>",
    "an undefined entity": "<iq>&lol9;</iq>",
    "an undefined entity in a value": "<iq id='&lol9;'/>",
}
BAD_FORMAT = {
    "text": "text",
    "CDATA": "<![CDATA[<iq/>]]>",
    "a reference": "&#65;",
}
LONG = 70_000
"""Bytes beyond what a stanza may have, also of a client that is known."""
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
"""What is no fault of the stream: odd, or for a feature to refuse."""
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
"""Elements that have no place in any stream of a client."""
FAULTS = {**RESTRICTED, **BAD_FORMAT, **EXCESSIVE, **MISPLACED}
del FAULTS["a second declaration"]  # it would be the first

patient = settings(deadline=None)  # the machine may be busy


@dataclass(frozen=True)
class Stream:
    """A valid stream, and after how many of its elements something else happens."""

    how: How
    steps: tuple[str, ...]
    at: int


@st.composite
def streams(draw: st.DrawFn, *, opened: bool = True) -> Stream:
    """Draw a valid stream, and a place in it: where it is open, or where its header is due."""
    how, steps = STEPS[draw(st.sampled_from(sorted(STEPS)))]
    due = [at for at, step in enumerate(steps) if step == "h"]
    places = sorted(set(range(len(steps) + 1)) - set(due)) if opened else due
    return Stream(how, tuple(steps), draw(st.sampled_from(places)))


def begin(stream: Stream) -> Front:
    """Send a stream up to its place."""
    front = Front(stream.how)
    for step in stream.steps[: stream.at]:
        send(front, step)
    assert not front.over
    return front


def send(front: Front, step: str) -> None:
    if step in ("p", "r"):
        namespace = "urn:ietf:params:xml:ns:xmpp-sasl" if step == "p" else "urn:xmpp:sasl:2"
        response = f"<response xmlns='{namespace}'>{front.proof().decode()}</response>"
        front.receive(response.encode())
    else:
        front.receive(ELEMENTS[step.encode()])


def pieces(front: Front, data: bytes, size: int) -> None:
    """Send bytes in pieces."""
    for at in range(0, len(data), size):
        front.receive(data[at : at + size])


def items(step: str) -> list[Item]:
    """Parse a step alone."""
    parser = StreamParser()
    opened = parser.feed(HEADER)
    return opened if step in "hpr" else parser.feed(ELEMENTS[step.encode()])


def condition(front: Front) -> str | None:
    """Return the condition of the stream error that was sent, if one was; it is the last word."""
    errors = [e for e in front.output.elements if e.tag == STREAMS + "error"]
    assert len(errors) <= 1
    if not errors:
        return None
    assert front.over
    assert front.output.elements[-1] is errors[0]
    found = errors[0][0].tag.removeprefix(STREAM_ERRORS)
    assert found in STREAM_CONDITIONS
    return found


@pytest.mark.parametrize(("how", "steps"), STEPS.values(), ids=STEPS)
def test_the_streams_are_valid(how: How, steps: list[str]) -> None:
    front = begin(Stream(how, tuple(steps), len(steps)))
    assert condition(front) is None
    assert len(front.routed) == len({"q", "m", "l"} & set(steps))
    front.receive(b"</stream:stream>")
    assert front.over
    assert front.output.ended


@patient
@given(
    stream=streams(),
    fault=st.sampled_from(sorted(NOT_WELL_FORMED)),
    size=st.integers(1, 40),
)
def test_what_is_not_well_formed(stream: Stream, fault: str, size: int) -> None:
    front = begin(stream)
    data = NOT_WELL_FORMED[fault]
    pieces(front, data if isinstance(data, bytes) else data.encode(), size)
    assert condition(front) == "not-well-formed"


@patient
@given(stream=streams(), fault=st.sampled_from(sorted(RESTRICTED)), size=st.integers(1, 40))
def test_what_xmpp_forbids(stream: Stream, fault: str, size: int) -> None:
    front = begin(stream)
    pieces(front, RESTRICTED[fault].encode(), size)
    assert condition(front) == "restricted-xml"


@patient
@given(stream=streams(), fault=st.sampled_from(sorted(BAD_FORMAT)), size=st.integers(1, 40))
def test_what_is_between_stanzas(stream: Stream, fault: str, size: int) -> None:
    front = begin(stream)
    pieces(front, BAD_FORMAT[fault].encode(), size)
    assert condition(front) == "bad-format"


@patient
@given(stream=streams(), fault=st.sampled_from(sorted(EXCESSIVE)), size=st.integers(500, LONG))
def test_what_is_too_much(stream: Stream, fault: str, size: int) -> None:
    front = begin(stream)
    pieces(front, EXCESSIVE[fault].encode(), size)
    assert condition(front) == "policy-violation"


@patient
@given(
    stream=streams(opened=False), fault=st.sampled_from(sorted(FAULTS)), size=st.integers(100, LONG)
)
def test_anything_but_a_header_where_one_is_due(stream: Stream, fault: str, size: int) -> None:
    front = begin(stream)
    pieces(front, FAULTS[fault].encode(), size)
    assert condition(front) is not None
    assert front.output.ended


@patient
@given(stream=streams(), fault=st.sampled_from(sorted(MISPLACED)), size=st.integers(1, 40))
def test_what_has_no_place(stream: Stream, fault: str, size: int) -> None:
    front = begin(stream)
    routed = len(front.routed)
    pieces(front, MISPLACED[fault].encode(), size)
    assert condition(front) is not None
    assert len(front.routed) == routed


@patient
@given(
    how=st.sampled_from(list(STEPS)), odd=st.sampled_from(sorted(ORDINARY)), size=st.integers(1, 9)
)
def test_what_is_no_fault_of_the_stream(how: str, odd: str, size: int) -> None:
    flags, steps = STEPS[how]
    front = begin(Stream(flags, tuple(steps), len(steps)))
    routed = len(front.routed)
    pieces(front, ORDINARY[odd].encode(), size)
    assert condition(front) is None
    assert len(front.routed) == routed + 1


@patient
@given(stream=streams(), extra=st.lists(st.sampled_from(sorted(ELEMENTS)), min_size=1, max_size=6))
def test_elements_in_any_order(stream: Stream, extra: list[bytes]) -> None:
    front = begin(stream)
    known = front.negotiation.username
    for letter in extra:
        front.receive(ELEMENTS[letter])
    assert front.over is (condition(front) is not None or front.output.ended)
    assert not front.routed or front.negotiation.username
    assert front.negotiation.username in (known, "cam1")


@patient
@given(stream=streams(), left_out=st.integers(0, 8))
def test_a_step_left_out_lets_nobody_further(stream: Stream, left_out: int) -> None:
    steps = stream.steps
    needed = [at for at, step in enumerate(steps) if step in "htaprPE13bB"]
    missing = needed[left_out % len(needed)]
    front = Front(stream.how)
    for at, step in enumerate(steps):
        if at != missing and not front.over:
            send(front, step)
    assert not front.routed
    assert condition(front) is not None or not front.over


@patient
@given(stream=streams(), size=st.integers(1, 2000))
def test_all_at_once_is_refused_or_as_good_as_one_by_one(stream: Stream, size: int) -> None:
    steps = stream.steps[: stream.at]
    front = Front(stream.how)
    if {"p", "r"} & set(steps):  # a proof cannot be sent before its challenge has come
        return
    pieces(front, b"".join(ELEMENTS[step.encode()] for step in steps), max(size, 1))
    if front.over:
        assert condition(front) == "policy-violation"
        assert {"t", "P", "E", "3"} & set(steps), "only what was sent ahead of a restart is refused"
    else:
        assert len(front.routed) == len(begin(stream).routed)


@patient
@given(stream=streams())
def test_after_the_end_everything_is_passed_over(stream: Stream) -> None:
    front = begin(stream)
    front.receive(b"<!DOCTYPE x>")
    assert front.over
    sent = len(front.output.elements)
    for step in stream.steps:
        for item in items(step):
            assert front.negotiation.receive(item) == []
    assert front.negotiation.fail(StreamError("reset")) == []
    assert len(front.output.elements) == sent
