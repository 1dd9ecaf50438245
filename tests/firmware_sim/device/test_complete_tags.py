from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest

from firmware_sim.device import complete_tags
from firmware_sim.device.complete_tags import CompleteTags
from firmware_sim.device.connection import Connection, Endpoint
from tests.helpers.scripted_peer import Certificate

TOKENS = (
    b"<?xml version='1.0'?>",
    b"<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>",
    b'\n<iq type="result" id=\'x>"y\'/>',
    b"<message from='a' \n>",
    b"<body>",
    "1 &gt; 0 > \u20ac ' \"</body>".encode(),
    b"<![CDATA[it's <b>]> ]] > \"]]>",
    b"</message>",
    b"</stream:stream>",
)
DATA = b"".join(TOKENS)
ENDS = (0, *accumulate(map(len, TOKENS)))


def pieces(data: bytes, *, of: int) -> list[bytes]:
    return [data[at : at + of] for at in range(0, len(data), of)]


@pytest.mark.parametrize("of", [1, 2, 3, 7, len(DATA)])
def test_each_tag_is_passed_on_with_its_last_byte(of: int) -> None:
    tags = CompleteTags()
    passed = received = 0
    for piece in pieces(DATA, of=of):
        complete = tags.split(piece)
        assert complete == DATA[passed : passed + len(complete)]
        passed, received = passed + len(complete), received + len(piece)
        assert passed == max(end for end in ENDS if end <= received)
    assert passed == len(DATA)


def test_all_split_points_give_the_same_bytes() -> None:
    for at in range(len(DATA)):
        tags = CompleteTags()
        first = tags.split(DATA[:at])
        assert len(first) == max(end for end in ENDS if end <= at)
        assert first + tags.split(DATA[at:]) == DATA


def test_what_never_becomes_a_tag_is_left_to_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complete_tags, "MOST_KEPT", 32)
    tags = CompleteTags()
    assert tags.split(b"<a><!-- " + b">" * 27) == b"<a>"
    assert tags.split(b">") == b"<!-- " + b">" * 28
    assert tags.split(b"<b>") == b"<b>"


@pytest.mark.parametrize("of", [1, 2, 7, len(DATA)])
async def test_a_device_handles_a_stanza_with_its_last_byte(tmp_path: Path, of: int) -> None:
    """A newer expat that is fed the pieces as they come waits for more bytes."""
    certificate = Certificate.make(tmp_path)
    endpoint = Endpoint("valve1@gw.example/fw", "secret", "127.0.0.1", 1, certificate.ca_file)
    connection = Connection(endpoint)
    client = connection._client
    handled: list[str] = []
    client.add_filter("in", lambda stanza: handled.append(stanza.name))
    client.init_parser()
    for piece in pieces(DATA[: ENDS[-2]], of=of):
        client.data_received(piece)
    assert handled == ["iq", "message"]
    connection.abort("over")
