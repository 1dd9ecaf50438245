from __future__ import annotations

from msgspec.structs import replace

from edge.config.limits import Limits
from edge.engine.dispatch.outputs import EndReason, Outputs
from edge.engine.store.database import MessageBytes, Receipt, Send, SentMessage
from edge.server.admission import Admission
from edge.server.xmpp.component.peers import Peer, Peers

MESSAGE = MessageBytes(b"<message/>")
LIMITS = replace(Limits(), sessions=4, unauthenticated=2)
OUTPUTS = Outputs()


class Dispatched:
    """A dispatcher that records the calls of its peers."""

    def __init__(self) -> None:
        self.sent: list[tuple[Peer, SentMessage, Receipt | None]] = []
        self.ended: list[Peer] = []

    def deliver_to(self, peer: Peer, message: SentMessage, receipt: Receipt | None) -> None:
        self.sent.append((peer, message, receipt))

    def end_session(self, peer: Peer) -> None:
        self.ended.append(peer)


def new_peers(limits: Limits = LIMITS, admission: Admission | None = None) -> Peers:
    return Peers(limits, admission or Admission(limits), OUTPUTS, Dispatched())


def add(peers: Peers, *names: str, trusted: bool = False) -> list[Peer]:
    added = []
    for name in names:
        peer = peers.add(name)
        peers.set_trusted(peer, trusted)
        added.append(peer)
    return added


def remove_excess(peers: Peers) -> list[str]:
    return [peer.full for peer in peers.remove_excess("a@x")]


def test_each_peer_has_a_session() -> None:
    outputs, dispatched = Outputs(), Dispatched()
    peers = Peers(LIMITS, Admission(LIMITS), outputs, dispatched)
    first, second = add(peers, "a", "b")
    assert first.generation != second.generation
    assert peers.find("a") is first
    assert peers.find("c") is None
    outputs.deliver([Send(second.generation, MESSAGE), Send(99, MESSAGE)])
    assert dispatched.sent == [(second, MESSAGE, None)]
    outputs.end(first.generation, EndReason.REPLACED)
    outputs.end(99, EndReason.REPLACED)
    assert dispatched.ended == [first]
    peers.remove(second)
    outputs.deliver([Send(second.generation, MESSAGE)])
    assert len(dispatched.sent) == 1
    assert remove_excess(peers) == []


def test_the_longest_silent_peer_is_removed_first() -> None:
    peers = new_peers()
    add(peers, "a", "b")
    peers.find("a")
    add(peers, "c")
    assert remove_excess(peers) == ["b"]
    assert len(peers) == 2


def test_untrusted_peers_displace_no_trusted_ones() -> None:
    peers = new_peers()
    add(peers, "t1", "t2", trusted=True)
    for number in range(10):
        add(peers, f"s{number}")
        assert all(name.startswith("s") for name in remove_excess(peers))
    assert peers.find("t1") is not None
    assert peers.find("t2") is not None
    assert len(peers) == 4


def test_trusted_peers_displace_untrusted_ones_and_then_each_other() -> None:
    peers = new_peers()
    add(peers, "s1", "s2")
    add(peers, "t1", "t2", "t3", trusted=True)
    assert remove_excess(peers) == ["s1"]
    add(peers, "t4", "t5", trusted=True)
    assert remove_excess(peers) == ["t1", "s2"]
    assert len(peers) == 4


def test_a_peer_with_stanzas_in_flight_is_not_removed() -> None:
    peers = new_peers()
    busy = add(peers, "a", "b", "c")
    for peer in busy:
        peer.in_flight = 1
    assert remove_excess(peers) == []
    busy[1].in_flight = 0
    assert remove_excess(peers) == ["b"]


def test_a_removed_peer_may_return_with_a_new_session() -> None:
    peers = new_peers()
    (peer,) = add(peers, "a")
    peers.remove(peer)
    peers.remove(peer)
    peers.set_trusted(peer, True)
    assert peers.find("a") is None
    (returned,) = add(peers, "a")
    assert returned.generation != peer.generation
    peers.remove(peer)
    assert peers.find("a") is returned
    assert peers.clear() == [returned.generation]
    assert len(peers) == 0


def test_a_peer_may_lose_its_trust() -> None:
    peers = new_peers()
    (peer,) = add(peers, "a", trusted=True)
    peers.set_trusted(peer, False)
    add(peers, "b", "c")
    assert remove_excess(peers) == ["a"]


def test_an_account_has_a_limited_number_of_peers() -> None:
    limits = replace(Limits(), sessions_per_account=2)
    admission = Admission(limits)
    peers = new_peers(limits, admission)
    add(peers, "b@x/1", "b@x/2", "b@x/3", trusted=True)
    own = add(peers, "a@x/1", "a@x/2", trusted=True)
    peers.find("a@x/1")
    assert peers.has_room("a@x")
    assert admission.largest_groups() == (3, 0)
    add(peers, "a@x/3")
    assert remove_excess(peers) == ["a@x/2"]
    assert [peer.full for peer in peers.of_account("a@x")] == ["a@x/1", "a@x/3"]
    assert len(peers.of_account("b@x")) == 3
    for peer in (*own, *peers.of_account("a@x")):
        peer.in_flight = 1
    assert not peers.has_room("a@x")
    assert peers.has_room("b@x")
    assert peers.has_room("c@x")
    peers.clear()
    assert peers.has_room("a@x")
    assert admission.largest_groups() == (0, 0)


def test_the_limits_count_the_sessions_of_other_fronts() -> None:
    limits = replace(LIMITS, sessions_per_account=3)
    admission = Admission(limits)
    others = new_peers(limits, admission)
    add(others, "a@x/1", "c@x/1", trusted=True)
    peers = new_peers(limits, admission)
    add(peers, "b@x/1", "b@x/2", "b@x/3", trusted=True)
    assert remove_excess(peers) == ["b@x/1"]
    assert admission.session_count == 4
    add(peers, "a@x/2", "a@x/3", "a@x/4", trusted=True)
    assert remove_excess(peers) == ["a@x/2", "b@x/2", "b@x/3"]
    assert (admission.count_of_account("a@x"), len(others)) == (3, 2)
