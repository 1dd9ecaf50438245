"""Report 5, queues: what waits in them, what came back, and which of them nobody works off.

Reads what gateways tell of their queues; the items themselves are at the gateway.
"""

from __future__ import annotations

from typing import Final

from sync.central.reports.columns import NUMBER, REAL, TEXT, TIME, columns

SCHEMA: Final = columns(
    gateway=TEXT,
    queue=TEXT,
    state=TEXT,
    since=TIME,
    depth=NUMBER,
    depth_max=NUMBER,
    ready=NUMBER,
    locked=NUMBER,
    delayed=NUMBER,
    dead=NUMBER,
    oldest_s=REAL,
    members=NUMBER,
    delivered=NUMBER,
    redelivered=NUMBER,
    timeouts=NUMBER,
    dead_items=NUMBER,
    purged=NUMBER,
    unlocked=NUMBER,
    requeued=NUMBER,
    stuck=NUMBER,
    recovered=NUMBER,
    longest_stuck_s=REAL,
    last_told=TIME,
)
"""A queue: a node, or a share (`$share:NAME:FILTER`).

`state`: `stuck`, `since` then (items that are due wait, and none was delivered for `STUCK_S`), `ok`
(items are there), `idle` (none are), `unknown` (it never told of its depth). As told last, at
`last_told`: `depth` (items that are not dead), of these `ready`, `locked` and `delayed`; `dead`
items; `oldest_s`, the age in seconds of the oldest that is not delayed; `members`. Over all the
time: `depth_max`; `delivered`, `redelivered`, `timeouts` (locks that ran out); `dead_items` (items
that became dead, by events), and items that people `purged`, `unlocked`, `requeued`. `stuck` counts
the stretches in which it was stuck, the present one included, `recovered` those of them that ended
in a delivery or with an empty queue, `longest_stuck_s` is the longest one's length in seconds."""
