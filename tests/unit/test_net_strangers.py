"""Connections that have not logged in: how many there may be, and who makes room for whom."""

from __future__ import annotations

from edge.config.limits import Limits
from edge.server.unauthenticated import PATIENCE, Strangers

LIMITS = Limits(unauthenticated=6, unauthenticated_per_address=4)


def filled(*places: str) -> Strangers[str]:
    """Strangers of these addresses that came at second 0, named by their place and number."""
    strangers: Strangers[str] = Strangers(LIMITS)
    for number, place in enumerate(places):
        assert strangers.admit(f"{place}{number}", place, 0.0) == (True, None)
    return strangers


def test_an_address_has_its_bound_and_its_oldest_makes_room_after_a_while() -> None:
    strangers = filled(*"aaaa")
    assert strangers.admit("new", "a", PATIENCE - 0.1) == (False, None)
    assert strangers.admit("new", "a", PATIENCE) == (True, "a0")
    assert "a0" not in strangers
    assert len(strangers) == 4


def test_all_together_have_theirs_and_who_has_most_makes_room_at_once() -> None:
    strangers = filled(*"aaaabb")
    assert strangers.admit("c", "c", 0.0) == (True, "a0")
    assert strangers.admit("d", "d", 0.0) == (True, "a1")
    assert len(strangers) == 6


def test_where_all_have_the_same_nobody_fresh_is_ended() -> None:
    strangers = filled(*"aabbcc")
    assert strangers.admit("a", "a", 1.0) == (False, None)
    assert strangers.admit("d", "d", 1.0) == (True, "a0")
    assert strangers.admit("d", "d", PATIENCE) == (True, "b2")


def test_one_stranger_each_is_ended_after_a_while_only() -> None:
    strangers = filled(*"abcdef")
    assert strangers.admit("g", "g", 1.0) == (False, None)
    assert strangers.admit("g", "g", PATIENCE) == (True, "a0")


def test_who_is_gone_or_known_leaves_room() -> None:
    strangers = filled(*"aaaa")
    strangers.remove("a1")
    strangers.remove("a1")
    assert strangers.admit("new", "a", 0.0) == (True, None)
    for name in ("a0", "a2", "a3", "new"):
        strangers.remove(name)
    assert len(strangers) == 0
