"""Who has spoken over a component's link: bounded, strangers apart, nobody with work under way."""

from __future__ import annotations

from msgspec.structs import replace

from edge.config.limits import Limits
from edge.server.component.peers import Peer, Peers

LIMITS = replace(Limits(), sessions=4, unauthenticated=2)


def enter(peers: Peers, *names: str, trusted: bool = False) -> list[Peer]:
    found = []
    for name in names:
        peer = peers.add(name)
        peers.judge(peer, trusted)
        found.append(peer)
    return found


def gone(peers: Peers) -> list[str]:
    return [peer.full for peer in peers.surplus()]


def test_each_has_a_session_of_its_own() -> None:
    peers = Peers(LIMITS)
    one, two = enter(peers, "a", "b")
    assert one.generation != two.generation
    assert peers.find("a") is one
    assert peers.of(two.generation) is two
    assert peers.find("c") is None
    assert peers.of(99) is None
    assert gone(peers) == []


def test_the_stranger_that_is_silent_longest_leaves_first() -> None:
    peers = Peers(LIMITS)
    enter(peers, "a", "b")
    peers.find("a")
    enter(peers, "c")
    assert gone(peers) == ["b"]
    assert len(peers) == 2


def test_strangers_push_out_none_of_the_trusted() -> None:
    peers = Peers(LIMITS)
    enter(peers, "t1", "t2", trusted=True)
    for number in range(10):
        enter(peers, f"s{number}")
        assert all(name.startswith("s") for name in gone(peers))
    assert peers.find("t1") is not None
    assert peers.find("t2") is not None
    assert len(peers) == 4


def test_the_trusted_push_out_strangers_and_then_each_other() -> None:
    peers = Peers(LIMITS)
    enter(peers, "s1", "s2")
    enter(peers, "t1", "t2", "t3", trusted=True)
    assert gone(peers) == ["s1"]
    enter(peers, "t4", "t5", trusted=True)
    assert gone(peers) == ["t1", "s2"]
    assert len(peers) == 4


def test_who_has_something_under_way_stays_until_it_is_done() -> None:
    peers = Peers(LIMITS)
    busy = enter(peers, "a", "b", "c")
    for peer in busy:
        peer.in_flight = 1
    assert gone(peers) == []
    busy[1].in_flight = 0
    assert gone(peers) == ["b"]


def test_who_has_left_is_nobody_and_can_come_anew() -> None:
    peers = Peers(LIMITS)
    (one,) = enter(peers, "a")
    peers.remove(one)
    peers.remove(one)
    peers.judge(one, True)
    assert peers.find("a") is None
    (again,) = enter(peers, "a")
    assert again.generation != one.generation
    assert peers.clear() == [again.generation]
    assert len(peers) == 0


def test_one_who_is_not_trusted_any_more_is_a_stranger() -> None:
    peers = Peers(LIMITS)
    (one,) = enter(peers, "a", trusted=True)
    peers.judge(one, False)
    enter(peers, "b", "c")
    assert gone(peers) == ["a"]
