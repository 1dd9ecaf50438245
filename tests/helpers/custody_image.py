"""Compare the image of custody with its rows."""

from __future__ import annotations

from typing import Any

from edge.engine.store.database import Transaction
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
    assert image.last_release >= fresh.last_release
    kept = {row: body for row, ((body, _parsed), _size) in image.bodies.kept.items()}
    assert kept.items() <= bodies.items()
    assert list(bodies) == [held.row for held in messages(image)]
    sizes = {
        row: len(body) * (1 if parsed is None else 1 + store.PARSED_BYTES)
        for row, ((body, parsed), _size) in image.bodies.kept.items()
    }
    assert sizes == {row: size for row, (_body, size) in image.bodies.kept.items()}
    assert image.bodies.bytes == sum(sizes.values()) <= store.BODY_BYTES


def messages(image: store._CustodyImage) -> list[store.HeldMessage]:
    """Return the held messages of an image, oldest first."""
    return [held for held in image.rows.values() if isinstance(held, store.HeldMessage)]


def content(image: store._CustodyImage) -> dict[str, Any]:
    """Return the content of an image: messages in order, charges, and released keys in order."""
    return {
        "messages": [_fields(held) for held in messages(image)],
        "sources": {
            name: (
                {key: [held.row for held in found] for key, found in source.messages.items()},
                source.rows,
                source.bytes,
            )
            for name, source in image.sources.items()
            if source.messages
        },
        "bytes": image.bytes,
        "keys": {
            name: (one.keys, one.pages)
            for name, one in image.sources.items()
            if one.keys or one.pages
        },
        "released": list(image.released.items()),
        "released rows": {
            (held[0].row, held[0].source, held[0].sender, held[0].msg_id, held[1])
            for held in image.rows.values()
            if isinstance(held, tuple)
        },
    }


def _fields(held: store.HeldMessage) -> list[object]:
    key = held.row, held.source, held.sender, held.msg_id
    rest = held.destination, held.digest, held.since, held.size, held.recipient, held.exclusive
    return [*key, *rest]
