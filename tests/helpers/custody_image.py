"""Compare the image of custody with its rows."""

from __future__ import annotations

from typing import Any

from edge.engine.database import Transaction
from edge.features.custody import store

_BODIES = "SELECT id, body FROM held ORDER BY id"


def image_equals_rows(tx: Transaction) -> None:
    """Assert that the image of a transaction equals its rows.

    The image is kept, and its unwritten changes are written.
    """
    image = store._image(tx)
    bodies = dict(tx.rows(_BODIES))
    fresh = store._image(Transaction(tx._connection, tx.now))
    assert content(image) == content(fresh)
    assert image.last_row >= fresh.last_row
    assert image.released >= fresh.released
    for source in image.sources.values():
        senders = {held.sender for held in source.messages.values()}
        assert source.sender is None or senders == {source.sender}
    kept = [held for held in image.messages.values() if held.body is not None]
    assert {held.row: held.body for held in kept}.items() <= bodies.items()
    assert list(bodies) == list(image.messages)
    assert image._with_body.keys() == {held.row for held in kept}
    sizes = sum(
        len(held.body) * (1 if held.parsed is None else 1 + store.PARSED_BYTES)
        for held in kept
        if held.body is not None
    )
    assert sum(image._with_body.values()) == image._body_bytes == sizes <= store.BODY_BYTES


def content(image: store._Image) -> dict[str, Any]:
    """Return the content of an image: messages in order, charges, and released keys in order."""
    return {
        "messages": [_fields(held) for held in image.messages.values()],
        "sources": {
            name: ([(key, held.row) for key, held in source.messages.items()], source.bytes)
            for name, source in image.sources.items()
        },
        "bytes": image.bytes,
        "keys": {name: (one.keys, one.pages) for name, one in image.latest.items()},
        "released_rows": image.released_rows,
        "changed": image.changed,
    }


def _fields(held: store.HeldMessage) -> list[object]:
    key = held.row, held.source, held.sender, held.msg_id
    rest = held.destination, held.digest, held.since, held.size, held.recipient, held.exclusive
    return [*key, *rest]
