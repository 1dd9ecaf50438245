from __future__ import annotations

import pytest

from edge.xmpp import serialize
from edge.xmpp.sender_address import bare_sender, presence_key
from edge.xmpp.stanza import stamped

FULL = "pump@gw.example/fw"


@pytest.mark.parametrize(
    ("stanza", "bare"),
    [
        (stamped(b"<message id=\" from='x@y'\"/>", FULL, "a@gw.example"), b"pump@gw.example"),
        (stamped(b'<iq from="x@y" type="get"/>', "pump@gw.example"), b"pump@gw.example"),
        (serialize.presence("unavailable", FULL, "a@gw.example"), b"pump@gw.example"),
        (b"<iq type='error' id='from' from='gw.example'/>", b"gw.example"),
        (b'<message id=" from=\'x@y/z\'" from="gw.example/x">', b"gw.example"),
        (b"<message id='1'><x from='a@b'/></message>", b""),
        (b"<message/>", b""),
        (b"no stanza", b""),
    ],
)
def test_bare_sender_reads_the_first_tag(stanza: bytes, bare: bytes) -> None:
    assert bare_sender(stanza) == bare


@pytest.mark.parametrize(
    ("type_", "key"),
    [
        (None, b"pump@gw.example/fw"),
        ("unavailable", b"pump@gw.example/fw"),
        ("subscribe", b"pump@gw.example/fw subscribe"),
    ],
)
def test_presence_keys(type_: str | None, key: bytes) -> None:
    assert presence_key(serialize.presence(type_, FULL, "a@gw.example")) == key
