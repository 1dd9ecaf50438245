"""Rules of priorities and of the effects of available presence."""

from __future__ import annotations

import pytest

from edge.features.presence.rules import presence
from edge.features.presence.rules.presence import Appearance


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (None, 0),
        ("", 0),
        ("0", 0),
        ("-128", -128),
        ("127", 127),
        ("+5", 5),
        ("007", 7),
        (" \t1\r\n", 1),
        ("-129", None),
        ("128", None),
        ("1.0", None),
        ("1e1", None),
        ("0x1", None),
        ("five", None),
        ("- 1", None),
        ("--1", None),
        (" ", None),
        ("9" * 10_000, None),
        ("\u0661", None),  # a digit, and no ASCII
    ],
)
def test_priority_is_a_small_integer(text: str | None, number: int | None) -> None:
    assert presence.priority(text) == number


@pytest.mark.parametrize(
    ("available", "before", "now", "appearance"),
    [
        (False, 0, 0, Appearance(True, True)),
        (False, 0, 127, Appearance(True, True)),
        (False, 0, -1, Appearance(True, False)),
        (True, 0, 0, Appearance(False, False)),
        (True, 0, 5, Appearance(False, False)),
        (True, 5, -1, Appearance(False, False)),
        (True, -1, -2, Appearance(False, False)),
        (True, -1, 0, Appearance(False, True)),
    ],
)
def test_messages_are_delivered_from_the_first_non_negative_priority(
    available: bool, before: int, now: int, appearance: Appearance
) -> None:
    assert presence.appear(available=available, before=before, now=now) == appearance
