"""The shares of a session's buffer."""

from __future__ import annotations

import pytest

from edge.server.send_share import NOTHING, Room, Shares

ROOM = Room(16, 1600)


def filled(*taken: tuple[bytes, int]) -> Shares:
    shares = Shares(ROOM)
    for source, size in taken:
        shares.add(source, size)
    return shares


@pytest.mark.parametrize(
    ("there", "source", "size", "fits"),
    [
        ([], b"a", 5000, True),
        ([(b"a", 5000)], b"b", 1, False),
        ([(b"a", 100)], b"b", 700, True),
        ([(b"a", 100)], b"b", 701, False),
        ([(b"a", 100)] * 3, b"a", 100, True),
        ([(b"a", 1)] * 4, b"a", 1, False),
        ([(b"a", 300)], b"a", 100, True),
        ([(b"a", 300)], b"a", 101, False),
        ([(b"a", 1)] * 4 + [(b"b", 1)] * 3, b"c", 1, True),
        ([(b"a", 1)] * 4 + [(b"b", 1)] * 4, b"c", 1, False),
    ],
    ids=[
        "the first, however large",
        "nothing beside that",
        "up to half the bytes",
        "not beyond half the bytes",
        "up to a quarter of the stanzas",
        "not beyond a quarter of the stanzas",
        "up to a quarter of the bytes",
        "not beyond a quarter of the bytes",
        "up to half the stanzas",
        "not beyond half the stanzas",
    ],
)
def test_a_stanza_fits_within_a_half_and_its_source_within_a_quarter(
    there: list[tuple[bytes, int]], source: bytes, size: int, fits: bool
) -> None:
    assert filled(*there).fits(source, size) is fits


def test_what_was_taken_makes_room() -> None:
    shares = filled((b"a", 100), (b"a", 300), (b"b", 7))
    assert not shares.fits(b"a", 50)
    shares.remove(b"a", 300)
    assert shares.fits(b"a", 50)
    shares.remove(b"a", 100)
    shares.remove(b"b", 7)
    assert shares.all == NOTHING
