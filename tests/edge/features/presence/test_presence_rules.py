"""Rules of priorities and of the effects of available presence."""

from __future__ import annotations

import pytest

from edge.features.presence.rules import presence
from edge.features.presence.rules.presence import Appearance

VALID = {None: 0, "": 0, "0": 0, "-128": -128, "127": 127, "+5": 5, "007": 7, " \t1\r\n": 1}
ARABIC_ONE = "\u0661"  # a digit, and no ASCII
INVALID = ["-129", "128", "1.0", "1e1", "0x1", "five", "- 1", "--1", " ", "9" * 10_000, ARABIC_ONE]


@pytest.mark.parametrize(("text", "number"), [*VALID.items(), *((text, None) for text in INVALID)])
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
