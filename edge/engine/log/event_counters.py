"""Counters of frequent events, which heartbeats log as one event each.

A session begins and ends without a row on the disk, and a device with a bad link reconnects every
minute; an event each time would cost a commit each time. So such events are counted in a temporary
table, and logged in the heartbeat's transaction, which is committed anyway: at most one event in
`LOG_INTERVAL` for each counter, with the count and the age of the last occurrence. Counts that were
not logged are lost if the process is killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from edge.engine.log.refusals import OTHER_SOURCE
from edge.engine.store import events
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent

LOG_INTERVAL: Final = 900.0
"""Minimum service seconds between two events of one counter."""

MAX_COUNTERS: Final = 1000
"""Maximum counters (rows of a table in memory). Above it, new sources are counted as `other`."""

_KEPT_TAGS: Final = (*events.PROTOCOL_TAGS, "reason")
"""Tags that counters of `other` have, too: peers do not choose their values, so there are few."""

_COUNT: Final = """
UPDATE temp.folded SET count = count + 1, last = ?
WHERE kind = ? AND name = ? AND source = ? AND topic = ? AND tags = ?
"""
_ROWS: Final = "SELECT count(*) FROM temp.folded"
_BEGIN: Final = "INSERT INTO temp.folded VALUES (?, ?, ?, ?, ?, 1, ?, ?)"
_DUE: Final = """
SELECT rowid, kind, name, source, topic, tags, count, last FROM temp.folded
WHERE due <= ? OR ? ORDER BY rowid
"""
_AGAIN: Final = "UPDATE temp.folded SET count = 0, due = ? WHERE rowid = ?"
_FORGET: Final = "DELETE FROM temp.folded WHERE rowid = ?"

_to_json: Final = msgspec.json.Encoder(order="sorted").encode
_from_json: Final = msgspec.json.Decoder(dict[str, str]).decode


def count(
    tx: Transaction,
    kind: str,
    name: str,
    source: str,
    *,
    topic: str = "",
    tags: Mapping[str, str] | None = None,
) -> None:
    """Count an event; there is one counter for each combination of the arguments.

    `source` is a bare JID: sessions of one account are one source.
    """
    text, now = _to_json(tags or {}).decode(), tx.now.service
    if tx.run(_COUNT, (now, kind, name, source, topic, text)).rowcount:
        return
    if source != OTHER_SOURCE and tx.row(_ROWS)[0] >= MAX_COUNTERS:
        kept = {key: tags[key] for key in _KEPT_TAGS if tags and key in tags}
        count(tx, kind, name, OTHER_SOURCE, tags=kept)
        return
    tx.run(_BEGIN, (kind, name, source, topic, text, now, now))


def log_counts(tx: Transaction, *, everything: bool = False) -> None:
    """Log the counters that were not logged within `LOG_INTERVAL`; with `everything`, log all."""
    now = tx.now.service
    for row, kind, name, source, topic, tags, count, last in tx.rows(_DUE, (now, everything)):
        if not count:
            tx.run(_FORGET, (row,))
            continue
        tags_ = {**_from_json(tags), "ago_s": str(max(0, round(now - last)))}
        event = NewEvent(
            kind, source, topic or None, name, float(count), level="Informational", tags=tags_
        )
        events.append(tx, events.SYSTEM, event)
        tx.run(_AGAIN, (now + LOG_INTERVAL, row))
