"""Items of a stream from one process to another; `tests/property/test_transfer.py` has the rest."""

from __future__ import annotations

from typing import Any

import pytest

from edge.xmpp import transferred
from edge.xmpp.envelopes import EnvelopeParser
from edge.xmpp.errors import UsageError
from edge.xmpp.parser import StreamParser
from edge.xmpp.stanza import Stanza
from edge.xmpp.transfer import StreamReceiver, StreamSender
from edge.xmpp.transferred import Part, Whole
from tests.helpers.envelopes import PLAIN
from tests.helpers.parser_corpus import HEADER
from tests.property.test_transfer import compared


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_envelope_keeps_its_tree(name: str) -> None:
    parser = StreamParser(envelopes=EnvelopeParser())
    sent: list[Any] = [*parser.feed(HEADER), *parser.feed(PLAIN[name])]
    received = StreamReceiver().decode(StreamSender().encode(sent))
    assert list(map(compared, received)) == list(map(compared, sent))
    assert isinstance(received[1], Stanza)


@pytest.mark.parametrize(
    ("start", "stop", "raw", "fault"),
    [
        (0, 9, b"<a/>", "outside of its stanza"),
        (3, 2, b"<a/>", "outside of its stanza"),
        (0, 3, b"<a ", "has no end"),
    ],
)
def test_offsets_must_lie_in_the_stanza(start: int, stop: int, raw: bytes, fault: str) -> None:
    part = Part("b", {}, start, stop, False, None, [])
    data = transferred.encode([Whole("a", {}, raw, [part], "")])
    with pytest.raises(UsageError, match=fault):
        StreamReceiver().decode(data)
