"""OpaqueString: the examples of RFC 8265, section 4.3, and the rules of RFC 8264 and RFC 5892."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from edge.precis import PrecisError, prepare_opaque


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("correct horse battery staple", "correct horse battery staple"),
        ("Correct Horse Battery Staple", "Correct Horse Battery Staple"),
        ("\u03c0\u00df\u00e5", "\u03c0\u00df\u00e5"),
        ("Jack of \u2666s", "Jack of \u2666s"),
        ("foo\u1680bar", "foo bar"),
    ],
)
def test_examples_of_the_rfc(text: str, prepared: str) -> None:
    assert prepare_opaque(text) == prepared


@pytest.mark.parametrize("text", ["", "my cat is a \tby"])
def test_refused_examples_of_the_rfc(text: str) -> None:
    with pytest.raises(PrecisError):
        prepare_opaque(text)


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("\U0001f6b0 pump", "\U0001f6b0 pump"),  # later than Unicode 3.2
        ("\u1e9e", "\u1e9e"),
        ("\uff26\uff37", "\uff26\uff37"),  # full width stays
        ("\ufb01", "\ufb01"),  # and so does a ligature
        ("a\u0300", "\u00e0"),  # composed
        ("x\u00a0\u3000y", "x  y"),
        ("l\u00b7l", "l\u00b7l"),
        ("\u0915\u094d\u200d", "\u0915\u094d\u200d"),  # a joiner after a virama
        ("\u0375\u03b1", "\u0375\u03b1"),
        ("\u05d0\u05f3", "\u05d0\u05f3"),
        ("\u30ab\u30fb", "\u30ab\u30fb"),
        ("\u0661\u0662", "\u0661\u0662"),
    ],
)
def test_allowed_texts(text: str, prepared: str) -> None:
    assert prepare_opaque(text) == prepare_opaque(prepared) == prepared


@pytest.mark.parametrize(
    "text",
    [
        "a\0", "a\x7f", "a\x85", "a\u2028",  # controls and separators
        "a\u00ad", "a\u200b", "a\u202e", "a\u2060", "a\ufeff", "a\ufe0f", "\U000e0041",  # ignorable
        "\u1100", "\u115f", "\u3164",  # old Hangul
        "\ue000", "\uffff", "\U0010ffff", "\u0378", "\ud800",  # private, unassigned, surrogate
        "\u0640", "\u302e",  # exceptions
        "a\u200d", "a\u200cb", "\u200d", "a\u00b7b", "\u00b7", "a\u0375", "\u05f3", "a\u30fb",
        "\u0661\u06f1",  # both kinds of Arabic digits
    ],
)  # fmt: skip
def test_refused_texts(text: str) -> None:
    with pytest.raises(PrecisError):
        prepare_opaque(text)


def test_every_accepted_character_is_stable(scale: Callable[[int, int], int]) -> None:
    for number in range(scale(0x3000, 0x110000)):
        with suppress(PrecisError):
            prepared = prepare_opaque(f"a{chr(number)}")
            assert prepare_opaque(prepared) == prepared, hex(number)
