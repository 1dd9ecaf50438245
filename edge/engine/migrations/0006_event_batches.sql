-- Events that are not sealed yet, a row for each lane and transaction. A segment may end inside a row:
-- it stays until its last event is sealed.
CREATE TABLE event_batches (
    lane TEXT NOT NULL,
    last INTEGER NOT NULL, -- numbers of the last and the first event
    first INTEGER NOT NULL,
    time INTEGER NOT NULL, -- ms since 1970 UTC
    clock INTEGER NOT NULL, -- whether the wall clock was synchronised
    since REAL NOT NULL, -- service seconds
    urgent INTEGER, -- number of the last urgent event; NULL: none
    total INTEGER NOT NULL, -- bytes of the epoch's events in this lane up to `last`
    data BLOB NOT NULL, -- MessagePack: an array of each event's fields, without number and time
    PRIMARY KEY (lane, last)
) STRICT, WITHOUT ROWID;

CREATE INDEX event_batches_urgent ON event_batches (lane, urgent, since) WHERE urgent IS NOT NULL;

INSERT INTO event_batches (lane, last, first, time, clock, since, urgent, total, data)
SELECT e.lane, e.seq, e.seq, e.time, e.clock, e.since,
    CASE WHEN e.since >= l.urgent AND e.level IN (
        SELECT j.value FROM meta AS m, json_each(m.value) AS j WHERE m.key = 'urgent levels'
    ) THEN e.seq END,
    sum(e.bytes) OVER (PARTITION BY e.lane ORDER BY e.seq),
    pack_event(
        e.kind, e.source, e.topic, e.name, e.value, e.unit, e.level, e.text, e.qos, e.latency_ms,
        e.tags
    )
FROM events AS e JOIN lanes AS l ON l.lane = e.lane;

DROP TABLE events;

-- The chain of sealed segments of each lane: the last sealed number, the bytes of the epoch's events up
-- to it, and the digest of the last segment.
CREATE TABLE lane_chains (
    lane TEXT NOT NULL PRIMARY KEY,
    sealed INTEGER NOT NULL DEFAULT 0,
    sealed_bytes INTEGER NOT NULL DEFAULT 0,
    previous BLOB NOT NULL DEFAULT (zeroblob(32))
) STRICT, WITHOUT ROWID;

INSERT INTO lane_chains (lane, sealed, previous) SELECT lane, sealed, previous FROM lanes;

DROP TABLE lanes;
ALTER TABLE lane_chains RENAME TO lanes;

-- The counters of each lane: `bytes`, `oldest` and `urgent` (service seconds) and `time` describe the
-- unsealed events. Each column takes a search or two, however many rows there are.
CREATE VIEW lane_counters AS
SELECT l.lane, l.sealed,
    coalesce(n.last, l.sealed) AS last,
    coalesce(n.total, l.sealed_bytes) AS total,
    coalesce(n.total, l.sealed_bytes) - l.sealed_bytes AS bytes,
    o.time AS time,
    o.since AS oldest,
    (
        SELECT u.since FROM event_batches AS u WHERE u.lane = l.lane AND u.urgent > l.sealed
        ORDER BY u.urgent LIMIT 1
    ) AS urgent
FROM lanes AS l
LEFT JOIN event_batches AS n ON n.lane = l.lane AND n.last = (
    SELECT max(m.last) FROM event_batches AS m WHERE m.lane = l.lane
)
LEFT JOIN event_batches AS o ON o.lane = l.lane AND o.last = (
    SELECT min(m.last) FROM event_batches AS m WHERE m.lane = l.lane
);
