from __future__ import annotations

import pytest

from edge.engine.rules.quota import Usage
from edge.engine.rules.send_share import SendShares
from edge.engine.store.database import MessageBytes, Receipt
from edge.server.write_tracker import Unstored, WriteTracker

ROW = Receipt("kind", 1)
OTHER = Receipt("kind", 2)


def test_a_stanza_is_sent_when_its_whole_flush_is_sent() -> None:
    tracker = WriteTracker()
    tracker.add(b"<a/>", ROW)
    tracker.add(b"<b/>", None)
    assert tracker.own_bytes == 4
    assert tracker.remove_sent(100) == [], "it was not flushed yet"
    tracker.mark_flushed(50)
    tracker.mark_flushed(60)
    tracker.add(b"<c/>", OTHER)
    tracker.mark_flushed(90)
    assert tracker.bytes == 12
    assert tracker.remove_sent(49) == []
    assert tracker.remove_sent(50) == [ROW, None]
    assert (tracker.bytes, tracker.own_bytes) == (4, 0)
    assert tracker.remove_sent(90) == [OTHER]
    assert tracker.bytes == 0


def test_tokens_keep_the_order_of_their_stanzas() -> None:
    tracker = WriteTracker()
    relayed = Unstored(MessageBytes(b"<a/>"), "pump@gw.example", 4)
    own = Unstored(MessageBytes(b"<c/>"), "", 4)
    tracker.add(b"<a/>", relayed)
    tracker.add(b"<b/>", ROW)
    tracker.mark_flushed(10)
    tracker.add(b"<c/>", own)
    assert tracker.own_bytes == 4
    assert tracker.tokens() == [relayed, ROW, own]
    tracker.remove_sent(10)
    assert tracker.tokens() == [own]


def test_all_stanzas_are_taken_once_including_rows() -> None:
    tracker = WriteTracker()
    tracker.add(b"<a/>", ROW)
    tracker.mark_flushed(10)
    tracker.add(b"<b/>", None)
    assert tracker.take_all() == [(b"<a/>", ROW), (b"<b/>", None)]
    assert tracker.bytes == 0
    assert tracker.remove_sent(100) == []
    assert tracker.take_all() == []


SIZE = Usage(16, 1600)


def filled(*used: tuple[str, int]) -> SendShares:
    shares = SendShares(SIZE)
    for sender, size in used:
        shares.add(sender, size)
    return shares


@pytest.mark.parametrize(
    ("used", "sender", "size", "fits"),
    [
        ([], "a", 5000, True),
        ([("a", 5000)], "b", 1, False),
        ([("a", 100)], "b", 700, True),
        ([("a", 100)], "b", 701, False),
        ([("a", 100)] * 3, "a", 100, True),
        ([("a", 1)] * 4, "a", 1, False),
        ([("a", 300)], "a", 100, True),
        ([("a", 300)], "a", 101, False),
        ([("a", 1)] * 4 + [("b", 1)] * 3, "c", 1, True),
        ([("a", 1)] * 4 + [("b", 1)] * 4, "c", 1, False),
    ],
    ids=[
        "the first stanza, however large", "nothing beside an oversized stanza",
        "up to half the bytes", "not beyond half the bytes", "up to a quarter of the stanzas",
        "not beyond a quarter of the stanzas", "up to a quarter of the bytes",
        "not beyond a quarter of the bytes", "up to half the stanzas",
        "not beyond half the stanzas",
    ],
)  # fmt: skip
def test_all_senders_share_half_the_buffer_and_each_has_a_quarter(
    used: list[tuple[str, int]], sender: str, size: int, fits: bool
) -> None:
    assert filled(*used).has_room(sender, size) is fits


def test_removed_stanzas_make_room() -> None:
    shares = filled(("a", 100), ("a", 300), ("b", 7))
    assert not shares.has_room("a", 50)
    shares.remove("a", 300)
    assert shares.has_room("a", 50)
    shares.remove("a", 100)
    shares.remove("b", 7)
    assert shares.used == Usage()
