from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from edge import jid
from edge.jid import AddressReason, Jid, JidError

SURROGATES = ("\ud800", "\udfff", "\ud83d\ude00")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("gw.example", ("", "gw.example", "")),
        ("pump1@gw.example", ("pump1", "gw.example", "")),
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


def test_an_address_has_a_bare_and_a_full_form() -> None:
    full = Jid("pump1", "gw.example", "fw")
    assert full.bare == "pump1@gw.example"
    assert full.full == str(full) == "pump1@gw.example/fw"
    assert Jid("", "gw.example", "").full == "gw.example"
    assert Jid("", "gw.example", "x").bare == "gw.example"


def test_local_parts_and_resources() -> None:
    assert jid.prepare_local("Pump1") == "pump1"
    assert jid.prepare_local("\uff30um\u00adp\u0440") == "pump\u0440"
    for text in ("", "a@b", "a/b", "a b", "a@localhost/x", "@", "\ud800", "\u00e4/x",
                 "\u03f9dmin", "a\uff20b", "a\uff0fb", "a\u2100", "\uff20",
                 "a\uff0flocalhost"):  # fmt: skip
        with pytest.raises(JidError):
            jid.prepare_local(text)
    assert jid.prepare_resource("Fw 1/\u00c4") == "Fw 1/\u00c4"
    assert jid.prepare_resource("a\uff20b\uff0fc") == "a\uff20b\uff0fc"
    assert jid.parse("\u00c4@b/\U0001f6b0").full == "\u00e4@b/\U0001f6b0"
    for text in ("", "\0", "r" * 1024):
        with pytest.raises(JidError):
            jid.prepare_resource(text)


@pytest.mark.parametrize("text", ["a\u00b7b", "a\u30fbb", "\u0661\u06f1", "\u05f3"])
def test_a_resource_that_only_stringprep_allows_stays_valid(text: str) -> None:
    assert jid.prepare_resource(text) == jid.parse(f"b/{text}").resource == text


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
        ("p\u2060ump@b", "pump@b"),  # a joiner
        ("pu\ufe0fmp@b", "pump@b"),  # a variation selector
        ("\ufeffpump@b", "pump@b"),
        ("pump\u00b9@b", "pump1@b"),  # superscript
        ("pump\u2460@b", "pump1@b"),  # circled
        ("\U0001d429ump@b", "pump@b"),  # mathematical
        ("a@B\u00dcCHER.example", "a@b\u00fccher.example"),
        ("a@stra\u00dfe.example", "a@strasse.example"),  # IDNA of 2003, as stringprep
        ("a@b\u3002example", "a@b.example"),  # the other full stops of IDNA
        ("a@b\uff0eexample", "a@b.example"),
        ("a@b\uff61example", "a@b.example"),
        ("a@b.example\u3002", "a@b.example"),
        ("b/x\u00a0y", "b/x y"),  # a resource's spaces
        ("b/x\u3000y", "b/x y"),
        ("\ufb01" * 400 + "@b", "fi" * 400 + "@b"),  # 1,200 bytes before, 800 after
    ],
)
def test_addresses_are_equal_after_normalisation(text: str, same: str) -> None:
    assert jid.parse(text) == jid.parse(same)
    assert jid.parse(str(jid.parse(text))) == jid.split(str(jid.parse(text))) == jid.parse(text)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("\u0430dmin@b", "admin@b"),  # Cyrillic
        ("\u0440um\u04401@b", "pump1@b"),
        ("\u03bfps@b", "ops@b"),  # Greek
        ("a@\u0430pple.example", "a@apple.example"),
        ("pump\u0661@b", "pump1@b"),  # an Arabic digit
        ("\u0131d@b", "id@b"),  # without its dot
        ("\u00e0@b", "a@b"),
        ("pump\u03231@b", "pump1@b"),  # an accent below
        ("pump1.@b", "pump1@b"),
        ("pump1\\20@b", "pump1@b"),
        ("b/fw", "b/Fw"),
        ("b/\uff46\uff57", "b/fw"),  # resources keep compatibility characters (RFC 7622)
        ("b/\u2168", "b/IX"),
        ("b/a\uff0fb", "b/a/b"),
        ("b/ fw", "b/fw"),
        ("b/fw ", "b/fw"),
        ("a@xn--bcher-kva.example", "a@b\u00fccher.example"),  # neither is the gateway's domain
    ],
)
def test_lookalikes_are_different_addresses(text: str, other: str) -> None:
    assert jid.parse(text) != jid.parse(other)


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "./x", "a@b..", "@b", "a@", "a@b/", "a b@c", "a'b@c", "a@b@c", "a@b c", "a@b..c",
        "a@-b", "/r", "a\0@b", "a@b\0", "a@b/\0", "b/\0", "a\x7f@b", "b/\x1b[0m", "b/a\nb",
        "l" * 1024 + "@b", "b/" + "r" * 1024, "a@" + "b." * 127 + "c", "\u00e4" * 512 + "@b",
        "admin\uff20b@c", "\uff20b", "a@b\uff20c",  # becomes an at sign
        "a\u2100@b", "a\uff0fb@c", "a@b\uff0fc",  # becomes a slash
        "a\uff02@b", "a\uff06@b", "a\uff1c@b",  # becomes a quotation mark, &, <
        "a\u3000b@c", "a\u00a0b@c",  # a space
        "\u00ad@b", "a@\u00ad", "b/\u00ad", "a@b.\u200b.c",  # becomes nothing
        "b/\u0085", "b/\u2028",
        "a\u202eb@c", "b/\u202e", "\u0627a@b",  # turns the writing direction, or mixes them
        "b/\ufffe", "b/\ue000",
        "\U000e0001@b",  # a tag
        "\U0001f600@b",  # assigned after Unicode 3.2
        "b/" + "\u3300" * 342, "\u3300" * 86 + "@b",  # 258 bytes before, 1,032 after
        "a@" + "\u00fc" * 64 + ".example",  # a label is too long once encoded
        "a@xn--a.example",  # no such encoding
        "a@b\u2488c", "a@b\u3002\u3002c", "a@\u3002",
        # assigned after stringprep: normalising again gives another result
        "\u1d2cdmin@b", "a\u03f9@b", "a@\u1d2ew.example", "a\u1d37@b/x",
        *(form.format(surrogate) for form in ("{}@b", "a@{}", "b/{}") for surrogate in SURROGATES),
    ],
)  # fmt: skip
def test_malformed_addresses_are_refused(text: str) -> None:
    with pytest.raises(JidError) as error:
        jid.parse(text)
    assert error.value.reason is AddressReason.MALFORMED


def test_every_accepted_character_is_stable(scale: Callable[[int, int], int]) -> None:
    for number in range(scale(0x3000, 0x110000)):
        character = chr(number)
        for address in (f"a{character}@b", f"a@b{character}", f"b/a{character}"):
            with contextlib.suppress(JidError):
                parsed = jid.parse(address)
                assert jid.parse(parsed.full) == parsed, hex(number)
