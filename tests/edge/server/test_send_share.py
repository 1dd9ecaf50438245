"""Tests of the senders' shares of a session's buffer."""

from __future__ import annotations

import pytest

from edge.server.send_share import EMPTY, BufferSize, SendShares

SIZE = BufferSize(16, 1600)


def filled(*used: tuple[bytes, int]) -> SendShares:
    shares = SendShares(SIZE)
    for sender, size in used:
        shares.add(sender, size)
    return shares


@pytest.mark.parametrize(
    ("used", "sender", "size", "fits"),
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
        "the first stanza, however large", "nothing beside an oversized stanza",
        "up to half the bytes", "not beyond half the bytes", "up to a quarter of the stanzas",
        "not beyond a quarter of the stanzas", "up to a quarter of the bytes",
        "not beyond a quarter of the bytes", "up to half the stanzas",
        "not beyond half the stanzas",
    ],
)  # fmt: skip
def test_all_senders_share_a_half_and_each_has_a_quarter(
    used: list[tuple[bytes, int]], sender: bytes, size: int, fits: bool
) -> None:
    assert filled(*used).has_room(sender, size) is fits


def test_removed_stanzas_make_room() -> None:
    shares = filled((b"a", 100), (b"a", 300), (b"b", 7))
    assert not shares.has_room(b"a", 50)
    shares.remove(b"a", 300)
    assert shares.has_room(b"a", 50)
    shares.remove(b"a", 100)
    shares.remove(b"b", 7)
    assert shares.used == EMPTY
