from __future__ import annotations

from edge.config.limits import Limits
from edge.server.unauthenticated import MIN_AGE, UnauthenticatedConnections

LIMITS = Limits(unauthenticated=6, unauthenticated_per_address=4)


def filled(*sources: str) -> UnauthenticatedConnections[str]:
    """Return connections of these sources, opened at second 0 and named by source and number."""
    connections: UnauthenticatedConnections[str] = UnauthenticatedConnections(LIMITS)
    for number, source in enumerate(sources):
        assert connections.admit(f"{source}{number}", source, 0.0) == (True, None)
    return connections


def test_the_oldest_connection_of_a_full_source_is_replaced_after_a_while() -> None:
    connections = filled(*"aaaa")
    assert connections.admit("new", "a", MIN_AGE - 0.1) == (False, None)
    assert connections.admit("new", "a", MIN_AGE) == (True, "a0")
    assert len(connections) == 4


def test_the_largest_source_gives_up_connections_at_once() -> None:
    connections = filled(*"aaaabb")
    assert connections.admit("c", "c", 0.0) == (True, "a0")
    assert connections.admit("d", "d", 0.0) == (True, "a1")
    assert len(connections) == 6


def test_no_young_connection_is_replaced_among_equal_sources() -> None:
    connections = filled(*"aabbcc")
    assert connections.admit("a", "a", 1.0) == (False, None)
    assert connections.admit("d", "d", 1.0) == (True, "a0")
    assert connections.admit("d", "d", MIN_AGE) == (True, "b2")


def test_single_connections_are_replaced_after_a_while() -> None:
    connections = filled(*"abcdef")
    assert connections.admit("g", "g", 1.0) == (False, None)
    assert connections.admit("g", "g", MIN_AGE) == (True, "a0")


def test_removed_connections_make_room() -> None:
    connections = filled(*"aaaa")
    connections.remove("a1")
    connections.remove("a1")
    assert connections.admit("new", "a", 0.0) == (True, None)
    for name in ("a0", "a2", "a3", "new"):
        connections.remove(name)
    assert len(connections) == 0
