from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.helpers.envelopes import PLAIN, WRAPPED, compare
from tests.helpers.parser_corpus import STREAMS
from tests.property.test_parser_streams import TEXTS, element, pieces, quote

Draw = Callable[..., Any]

CUTS = st.lists(st.integers(0, 2000), max_size=8)
LIMITS = st.sampled_from([(), (300,), (8192, 4), (8192, 64, 6), (8192, 64, 64, 3)])
FRAGMENTS = st.sampled_from(
    [
        b"<", b">", b"'", b'"', b"=", b" ", b"&", b"&lt;", b"]]>", b"<![CDATA[", b"<!--", b"<?",
        b"/>", b"</", b" xmlns=''", b" xmlns:p='u'", b" p:a=''", b" a=''", b" a='' a=''", b"<p:a/>",
        b"</iq>", b"</message>", b"</message></assured></iq>",
        b"</pubsub></iq>", b"<item/>", b"<iq id='1'>", b"\xc3\xa9",
        b"\xe9", b"\n",
    ]
)  # fmt: skip


@st.composite
def envelopes(draw: Draw) -> bytes:
    """Draw an envelope that may be plain, with any content."""
    namespaces = st.sampled_from(["urn:xmpp:qos", "urn:nf:iot:qos:1.0", "jabber:client"])
    iq = [f"id={quote(draw, draw(TEXTS))}", "type='set'"][: draw(st.integers(0, 2))]
    own = [f"xmlns='{draw(namespaces)}'", f"msgId={quote(draw, draw(TEXTS))}"]
    content = element(draw, {"": "jabber:client"}, 2) + draw(st.sampled_from(["", "text \u20ac"]))
    name = draw(st.sampled_from(["assured", "acknowledged", "deliver", "received", ""]))
    if not name:
        return f"<{' '.join(['iq', *iq])}/>".encode()
    body = (
        ""
        if name in ("deliver", "received")
        else f"<message xmlns='jabber:client'>{content}</message>"
    )
    end = f">{body}</{name}>" if body else "/>"
    return f"<{' '.join(['iq', *iq])}><{' '.join([name, *own])}{end}</iq>".encode()


@given(st.lists(st.one_of(envelopes(), st.sampled_from([*PLAIN.values()])), max_size=4), CUTS)
def test_envelopes_with_any_content_give_the_same_stanzas(
    found: list[bytes], cuts: list[int]
) -> None:
    assert len(compare(pieces(b"".join(found), cuts))) == len(found)


@st.composite
def mutated(draw: Draw) -> bytes:
    """Draw plain envelopes and other stanzas, with a few bytes replaced, added or removed."""
    known = [*PLAIN.values(), WRAPPED % b"", *STREAMS.values()]
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 2))] = draw(st.one_of(st.binary(max_size=2), FRAGMENTS))
    return bytes(data)


@example(b"%b\0%b" % (PLAIN["deliver"], PLAIN["deliver"]), ())
@example(b"%b\xc3%b" % (PLAIN["deliver"], PLAIN["deliver"]), ())
@example(
    b"<iq id='1'><assured xmlns='urn:xmpp:qos'><message xmlns='jabber:client'><a xmlns=''><b/></a>"
    b"<c xmlns='urn:xmpp:qos'/></message></assured></iq><presence/> </stream:stream> \n<iq xmlns="
    b"'jabber:client' xml:langde' from='a@b/c' type='get'><assured a.b-c_d='\"' "
    b"xmlns='urn:xmpp:qos'><message xmlns='jabber:client' a=''></message></assured></iq>",
    (300,),
)
@given(mutated(), LIMITS)
def test_mutated_envelopes_give_the_same_items_and_errors(
    data: bytes, limits: tuple[int, ...]
) -> None:
    compare([data, PLAIN["deliver"]], *limits)


@given(mutated(), CUTS, LIMITS)
def test_split_and_mutated_envelopes_give_the_same_items_and_errors(
    data: bytes, cuts: list[int], limits: tuple[int, ...]
) -> None:
    compare(pieces(data, cuts), *limits)
