"""Addresses: what is accepted, what it becomes, and what is not accepted."""

from __future__ import annotations

import pytest
from slixmpp.jid import JID

from edge.wire import jid
from edge.wire.jid import Jid, JidError


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("gw.example", ("", "gw.example", "")),
        ("pump1@gw.example", ("pump1", "gw.example", "")),
        ("pump1@gw.example/fw", ("pump1", "gw.example", "fw")),
        ("pubsub.gw.example/plant/boiler1/temp", ("", "pubsub.gw.example", "plant/boiler1/temp")),
        ("Pump1@GW.Example/Fw", ("pump1", "gw.example", "Fw")),
        ("a@b/c@d/e", ("a", "b", "c@d/e")),
        ("\u00c4@b\u00fc.example/\u00df", ("\u00e4", "b\u00fc.example", "\u00df")),
        ("a@gw.example.", ("a", "gw.example", "")),
        ("a@gw.example./x", ("a", "gw.example", "x")),
        ("a@[::1]", ("a", "[::1]", "")),
        ("a@127.0.0.1/x y", ("a", "127.0.0.1", "x y")),
        ("a@" + "b." * 126 + "c", ("a", "b." * 126 + "c", "")),
        ("l" * 1023 + "@b/" + "r" * 1023, ("l" * 1023, "b", "r" * 1023)),
    ],
)
def test_parts(text: str, parts: tuple[str, str, str]) -> None:
    assert tuple(jid.parse(text)) == parts
    assert str(jid.parse(text)) == str(JID(str(jid.parse(text))))


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "./x",
        "a@b..",
        "@b",
        "a@",
        "a@b/",
        "a b@c",
        "a'b@c",
        "a@b@c",
        "a@b c",
        "a@b..c",
        "a@-b",
        "a@b/\0",
        "a\0@b",
        "l" * 1024 + "@b",
        "b/" + "r" * 1024,
        "a@" + "b." * 127 + "c",
        "\u00e4" * 512 + "@b",
        "/r",
    ],
)
def test_malformed(text: str) -> None:
    with pytest.raises(JidError) as caught:
        jid.parse(text)
    assert (caught.value.type, caught.value.condition) == ("modify", "jid-malformed")


def test_bare_and_full() -> None:
    full = Jid("pump1", "gw.example", "fw")
    assert full.bare == "pump1@gw.example"
    assert full.full == str(full) == "pump1@gw.example/fw"
    assert Jid("", "gw.example", "").full == "gw.example"
    assert Jid("", "gw.example", "x").bare == "gw.example"


def test_local_parts() -> None:
    assert jid.prepare_local("Pump1") == "pump1"
    for text in ("", "a@b", "a/b", "a b", "a@localhost/x", "@", "\ud800"):
        with pytest.raises(JidError):
            jid.prepare_local(text)


def test_resources() -> None:
    assert jid.prepare_resource("Fw 1/\u00c4") == "Fw 1/\u00c4"
    for text in ("", "\0", "r" * 1024):
        with pytest.raises(JidError):
            jid.prepare_resource(text)


def test_what_is_kept_parsed_is_bounded() -> None:
    for i in range(2 * jid.CACHED):
        jid.parse(f"pump{i}@gw.example")
    assert jid.parse.cache_info().currsize <= jid.CACHED
