"""Tests of the tracking of stanzas in the write buffers."""

from __future__ import annotations

from edge.engine.database import Receipt
from edge.server.write_tracker import Relayed, WriteTracker

ROW = Receipt("kind", 1)
OTHER = Receipt("kind", 2)


def test_a_stanza_is_sent_when_all_of_its_flush_is() -> None:
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


def test_unstored_stanzas_keep_their_order_and_exclude_rows() -> None:
    tracker = WriteTracker()
    tracker.add(b"<a/>", Relayed(b"pump@gw.example", 4))
    tracker.add(b"<b/>", ROW)
    tracker.mark_flushed(10)
    tracker.add(b"<c/>", None)
    assert tracker.unstored() == [b"<a/>", b"<c/>"]
    tracker.remove_sent(10)
    assert tracker.unstored() == [b"<c/>"]


def test_all_stanzas_are_taken_once_including_rows() -> None:
    tracker = WriteTracker()
    tracker.add(b"<a/>", ROW)
    tracker.mark_flushed(10)
    tracker.add(b"<b/>", None)
    assert tracker.take_all() == [(b"<a/>", ROW), (b"<b/>", None)]
    assert tracker.bytes == 0
    assert tracker.remove_sent(100) == []
    assert tracker.take_all() == []
