"""Checks of everything that the gateway sends, for any input."""

from __future__ import annotations

from typing import Any, Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from edge.sasl import FAILURES
from edge.xmpp.errors import STANZA_CONDITIONS, STANZA_TYPES, STREAM_CONDITIONS
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stanza import Stanza
from tests.helpers.parser_corpus import HEADER

CLIENT: Final = "{jabber:client}"
STREAMS: Final = "{http://etherx.jabber.org/streams}"
STANZA_ERRORS: Final = "{urn:ietf:params:xml:ns:xmpp-stanzas}"
STREAM_ERRORS: Final = "{urn:ietf:params:xml:ns:xmpp-streams}"
SASL_ELEMENTS: Final = ("{urn:ietf:params:xml:ns:xmpp-sasl}failure", "{urn:xmpp:sasl:2}failure")
SASL_ERRORS: Final = "{urn:ietf:params:xml:ns:xmpp-sasl}"

STANZAS: Final = frozenset(CLIENT + name for name in ("iq", "message", "presence"))
KINDS: Final = {
    CLIENT + "iq": frozenset({"get", "set", "result", "error"}),
    CLIENT + "message": frozenset({None, "chat", "error", "groupchat", "headline", "normal"}),
    CLIENT + "presence": frozenset(
        {
            None, "error", "probe", "subscribe", "subscribed", "unavailable", "unsubscribe",
            "unsubscribed",
        }
    ),
}  # fmt: skip
"""The types of stanzas (RFC 6120, 8.2.3; RFC 6121, 4.7.1 and 5.2.2)."""


class Output:
    """The output of a connection: successive well-formed and legal streams."""

    def __init__(self) -> None:
        self.elements: list[Element] = []
        self.ended = False
        self.restart()

    def restart(self) -> None:
        """Expect a new stream; only the end of the last one is missing."""
        self._parser: Any = ElementTree.XMLPullParser(("start", "end"))
        self._depth = 0

    def take(self, data: bytes) -> None:
        """Check sent bytes: they must be complete elements, well-formed and legal."""
        assert not self.ended or not data, "sent after the end"
        self._parser.feed(data)
        for event, element in self._parser.read_events():
            self._depth += 1 if event == "start" else -1
            if event == "end" and self._depth == 1:
                check_element(element)
                self.elements.append(element)
            self.ended = event == "end" and self._depth == 0
        assert self._depth == (0 if self.ended else 1), "an element is incomplete"


def check_element(element: Element) -> None:
    """Check a first-level element of the gateway's stream."""
    if element.tag in STANZAS:
        check_stanza(element)
    elif element.tag == STREAMS + "error":
        conditions = [child.tag.removeprefix(STREAM_ERRORS) for child in element]
        assert conditions[0] in STREAM_CONDITIONS
        assert len(conditions) <= 3
    elif element.tag in SASL_ELEMENTS:
        assert element[0].tag.removeprefix(SASL_ERRORS) in FAILURES


def check_stanza(stanza: Element) -> None:
    """Check a stanza's type, and its error if it has one."""
    kind = stanza.get("type")
    assert stanza.tag in STANZAS
    assert kind in KINDS[stanza.tag], f"no such type: {kind}"
    if stanza.tag == CLIENT + "iq":
        assert "id" in stanza.attrib or kind == "error"  # the refused iq had none
        assert kind == "error" or len(stanza) <= 1
    if kind != "error":
        return
    error = stanza.find(CLIENT + "error")
    assert error is not None
    assert error.get("type") in STANZA_TYPES
    assert error[0].tag.removeprefix(STANZA_ERRORS) in STANZA_CONDITIONS


def parse_stanzas(data: bytes) -> list[Stanza]:
    """Parse what follows a stream's header, up to a fault."""
    parser = StreamParser()
    try:
        items = parser.feed(HEADER + data)
    except ParseError as error:
        items = error.items
    parser.close()
    return [item for item in items if isinstance(item, Stanza)]


def one_stanza(data: bytes) -> Element:
    """Parse exactly one stanza, as the gateway sends it to a session."""
    stanza = one_element(data)
    check_stanza(stanza)
    return stanza


def one_element(data: bytes) -> Element:
    """Parse exactly one first-level element."""
    stream = ElementTree.fromstring(b"<s xmlns='jabber:client'>%b</s>" % data)  # noqa: S314
    assert len(stream) == 1
    assert not stream.text
    assert not stream[0].tail
    return stream[0]
