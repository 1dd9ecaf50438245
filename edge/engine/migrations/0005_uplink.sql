-- Service second of the oldest unsealed urgent event of a lane.
ALTER TABLE lanes ADD COLUMN urgent REAL;

-- The epochs of this database and the reason for each; the last one is current.
CREATE TABLE epochs (
    epoch TEXT NOT NULL PRIMARY KEY,
    began INTEGER NOT NULL, -- ms since 1970 UTC
    reason TEXT NOT NULL,
    outbox INTEGER NOT NULL -- the outbox's last row before this epoch
) STRICT, WITHOUT ROWID;

INSERT INTO epochs (epoch, began, reason, outbox)
SELECT value, 0, 'created', 0 FROM meta WHERE key = 'epoch';

-- Evicted ranges by epoch. Ranges of the current epoch are declared by segment headers, those of
-- earlier epochs by an event.
CREATE TABLE dropped_of_epoch (
    epoch TEXT NOT NULL,
    lane TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    reason TEXT NOT NULL,
    told INTEGER, -- the event in the current epoch's system lane that declares it
    PRIMARY KEY (epoch, lane, first)
) STRICT, WITHOUT ROWID;

INSERT INTO dropped_of_epoch (epoch, lane, first, last, reason)
SELECT m.value, d.lane, d.first, d.last, d.reason FROM dropped AS d, meta AS m WHERE m.key = 'epoch';

DROP TABLE dropped;
ALTER TABLE dropped_of_epoch RENAME TO dropped;

-- What the gateway wrote to its disk, by day of its wall clock: `written` by the whole process, `pages`
-- of the database, and the number of commits.
CREATE TABLE wear (
    day INTEGER NOT NULL PRIMARY KEY, -- days since 1970 UTC
    seconds REAL NOT NULL, -- service seconds in which this was counted
    written INTEGER NOT NULL, -- bytes
    pages INTEGER NOT NULL,
    commits INTEGER NOT NULL
) STRICT;

-- Queues whose depth was logged as not empty, by the names in these events (`queue depth`).
CREATE TABLE queues_told (
    topic TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;
