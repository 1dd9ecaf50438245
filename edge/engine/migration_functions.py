"""SQL functions that migrations call. Later versions must not change what they return."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

import msgspec

_pack: Final = msgspec.msgpack.Encoder().encode


def register(connection: sqlite3.Connection) -> None:
    """Register the SQL functions of this module on a connection."""
    connection.create_function("pack_event", 11, _pack_event, deterministic=True)


def _pack_event(*fields: Any) -> bytes:
    """Return an event of the table `events` as the data of a batch with one event."""
    *others, tags = fields
    return _pack([(*others, msgspec.json.decode(tags) if tags else None)])
