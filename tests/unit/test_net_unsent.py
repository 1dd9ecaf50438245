"""What others sent to a session without stream management, until it has left the buffers."""

from __future__ import annotations

from edge.engine.database import Receipt
from edge.server.write_tracker import Relayed, Unsent

ROW = Receipt("kind", 1)
OTHER = Receipt("kind", 2)


def test_a_stanza_has_left_when_all_of_its_turn_has() -> None:
    unsent = Unsent()
    unsent.add(b"<a/>", ROW)
    unsent.add(b"<b/>", None)
    assert unsent.own == 4
    assert unsent.left(100) == [], "it was not written yet"
    unsent.flushed(50)
    unsent.flushed(60)
    unsent.add(b"<c/>", OTHER)
    unsent.flushed(90)
    assert unsent.bytes == 12
    assert unsent.left(49) == []
    assert unsent.left(50) == [ROW, None]
    assert (unsent.bytes, unsent.own) == (4, 0)
    assert unsent.left(90) == [OTHER]
    assert unsent.bytes == 0


def test_what_has_not_left_is_given_back_in_order_but_for_rows() -> None:
    unsent = Unsent()
    unsent.add(b"<a/>", Relayed(b"pump@gw.example", 4))
    unsent.add(b"<b/>", ROW)
    unsent.flushed(10)
    unsent.add(b"<c/>", None)
    assert unsent.unconfirmed() == [b"<a/>", b"<c/>"]
    unsent.left(10)
    assert unsent.unconfirmed() == [b"<c/>"]


def test_what_has_not_left_is_taken_back_once_rows_too() -> None:
    unsent = Unsent()
    unsent.add(b"<a/>", ROW)
    unsent.flushed(10)
    unsent.add(b"<b/>", None)
    assert unsent.take_back() == [(b"<a/>", ROW), (b"<b/>", None)]
    assert unsent.bytes == 0
    assert unsent.left(100) == []
    assert unsent.take_back() == []
