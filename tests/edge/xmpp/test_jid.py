from __future__ import annotations

import pytest
from slixmpp.jid import JID

from edge.xmpp import jid
from edge.xmpp.jid import Jid, JidError


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
def test_valid_addresses(text: str, parts: tuple[str, str, str]) -> None:
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
def test_malformed_addresses_are_refused(text: str) -> None:
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
    for text in ("", "a@b", "a/b", "a b", "a@localhost/x", "@", "\ud800", "\u00e4/x"):
        with pytest.raises(JidError):
            jid.prepare_local(text)


def test_resources() -> None:
    assert jid.prepare_resource("Fw 1/\u00c4") == "Fw 1/\u00c4"
    for text in ("", "\0", "r" * 1024):
        with pytest.raises(JidError):
            jid.prepare_resource(text)


# Normalisation and lookalikes


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("A\u0300@b", "\u00e0@b"),  # composed, and in lower case
        ("\uff21dmin@b", "admin@b"),  # full width
        ("\u212aelvin@b", "kelvin@b"),  # the sign of kelvin
        ("\ufb01eld@b", "field@b"),  # a ligature
        ("stra\u00dfe@b", "strasse@b"),
        ("\u03c3\u03c2@b", "\u03c3\u03c3@b"),  # the final sigma
        ("pu\u00admp@b", "pump@b"),  # a soft hyphen
        ("pu\u200bmp@b", "pump@b"),  # no width at all
        ("pu\ufe0fmp@b", "pump@b"),  # a variation selector
        ("\ufeffpump@b", "pump@b"),
        ("a@B\u00dcCHER.example", "a@b\u00fccher.example"),
        ("a@stra\u00dfe.example", "a@strasse.example"),  # IDNA of 2003, as stringprep
        ("a@b\u3002example", "a@b.example"),  # the other full stops of IDNA
        ("a@b\uff0eexample", "a@b.example"),
        ("a@b\uff61example", "a@b.example"),
        ("a@b.example\u3002", "a@b.example"),
        ("b/x\u00a0y", "b/x y"),  # a resource's spaces
        ("b/x\u3000y", "b/x y"),
        ("b/\u2168", "b/IX"),
        ("b/a\uff0fb", "b/a/b"),
        ("\ufb01" * 400 + "@b", "fi" * 400 + "@b"),  # 1,200 bytes before, 800 after
    ],
)
def test_equal_after_normalisation(text: str, same: str) -> None:
    assert jid.parse(text) == jid.parse(same)
    assert jid.parse(str(jid.parse(text))) == jid.parse(text)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("\u0430dmin@b", "admin@b"),  # Cyrillic
        ("\u03bfps@b", "ops@b"),  # Greek
        ("a@\u0430pple.example", "a@apple.example"),
        ("pump\u0661@b", "pump1@b"),  # an Arabic digit
        ("\u0131d@b", "id@b"),  # without its dot
        ("\u00e0@b", "a@b"),
        ("b/fw", "b/Fw"),
        ("b/ fw", "b/fw"),
        ("b/fw ", "b/fw"),
        ("a@xn--bcher-kva.example", "a@b\u00fccher.example"),  # neither is the gateway's domain
    ],
)
def test_lookalikes_differ(text: str, other: str) -> None:
    assert jid.parse(text) != jid.parse(other)


@pytest.mark.parametrize(
    "text",
    [
        "admin\uff20b@c",  # becomes an at sign
        "\uff20b",
        "a@b\uff20c",
        "a\u2100@b",  # becomes a slash
        "a\uff0fb@c",
        "a@b\uff0fc",
        "a\uff02@b",  # becomes a quotation mark
        "a\uff06@b",
        "a\uff1c@b",
        "a\u3000b@c",  # a space
        "a\u00a0b@c",
        "\u00ad@b",  # becomes nothing
        "a@\u00ad",
        "b/\u00ad",
        "a@b.\u200b.c",
        "a\0@b",
        "a@b\0",
        "b/\0",
        "a\x7f@b",
        "b/\x1b[0m",
        "b/a\nb",
        "b/\u0085",
        "b/\u2028",
        "a\u202eb@c",  # turns the writing direction
        "b/\u202e",
        "\u0627a@b",  # mixes them
        "b/\ufffd",
        "b/\ufffe",
        "b/\ue000",
        "\U000e0001@b",  # a tag
        "\U0001f600@b",  # assigned after Unicode 3.2
        "b/" + "\u3300" * 86,  # 258 bytes before, 1,032 after
        "\u3300" * 86 + "@b",
        "a@" + "\u00fc" * 64 + ".example",  # a label is too long once encoded
        "a@xn--a.example",  # no such encoding
        "a@b\u2488c",
        "a@b\u3002\u3002c",
        "a@\u3002",
        "\u1d2cdmin@b",  # assigned after stringprep: normalising again gives another result
        "a\u03f9@b",
        "a@\u1d2ew.example",
        "a\u1d37@b/x",
    ],
)
def test_tricks_are_refused(text: str) -> None:
    with pytest.raises(JidError):
        jid.parse(text)


def test_surrogates_are_refused() -> None:
    for surrogate in ("\ud800", "\udfff", "\ud83d\ude00"):
        for text in (f"{surrogate}@b", f"a@{surrogate}", f"b/{surrogate}"):
            with pytest.raises(JidError):
                jid.parse(text)


def test_a_local_part_cannot_become_an_address() -> None:
    for trick in ("\u03f9dmin", "a\uff20b", "a\uff0fb", "a\u2100", "\uff20", "a\uff0flocalhost"):
        with pytest.raises(JidError):
            jid.prepare_local(trick)
    assert jid.prepare_resource("a\uff20b\uff0fc") == "a@b/c"
