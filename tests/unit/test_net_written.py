"""What others sent to a session without stream management, until it has left the buffers."""

from __future__ import annotations

from edge.net.written import Written
from edge.store.database import Receipt

ROW = Receipt("kind", 1)
OTHER = Receipt("kind", 2)


def test_a_stanza_has_left_when_all_of_its_turn_has() -> None:
    written = Written()
    written.add(b"<a/>", ROW)
    written.add(b"<b/>", None)
    assert written.left(100) == [], "it was not written yet"
    written.flushed(50)
    written.flushed(60)
    written.add(b"<c/>", OTHER)
    written.flushed(90)
    assert written.bytes == 12
    assert written.left(49) == []
    assert written.left(50) == [ROW]
    assert written.bytes == 4
    assert written.left(90) == [OTHER]
    assert written.bytes == 0


def test_what_has_not_left_is_given_back_in_order_but_for_rows() -> None:
    written = Written()
    written.add(b"<a/>", None)
    written.add(b"<b/>", ROW)
    written.flushed(10)
    written.add(b"<c/>", None)
    assert written.unconfirmed() == [b"<a/>", b"<c/>"]
    written.left(10)
    assert written.unconfirmed() == [b"<c/>"]
