-- Since when (service seconds) an event of a lane waits that is worth a segment of its own.
ALTER TABLE lanes ADD COLUMN urgent REAL;

-- The epochs that this database counted in, with what began each: the last one is the current.
CREATE TABLE epochs (
    epoch TEXT NOT NULL PRIMARY KEY,
    began INTEGER NOT NULL, -- ms since 1970 UTC
    reason TEXT NOT NULL,
    outbox INTEGER NOT NULL -- the last row that the outbox had had by then
) STRICT, WITHOUT ROWID;

INSERT INTO epochs (epoch, began, reason, outbox)
SELECT value, 0, 'created', 0 FROM meta WHERE key = 'epoch';

-- A dropped range belongs to its epoch, and so does who acknowledges it. The current epoch's ranges
-- are declared by headers, those of epochs that are over by an event.
CREATE TABLE dropped_of_epoch (
    epoch TEXT NOT NULL,
    lane TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    reason TEXT NOT NULL,
    told INTEGER, -- the event in the current epoch's system lane that tells of it
    PRIMARY KEY (epoch, lane, first)
) STRICT, WITHOUT ROWID;

INSERT INTO dropped_of_epoch (epoch, lane, first, last, reason)
SELECT m.value, d.lane, d.first, d.last, d.reason FROM dropped AS d, meta AS m WHERE m.key = 'epoch';

DROP TABLE dropped;
ALTER TABLE dropped_of_epoch RENAME TO dropped;

-- What the gateway wrote to its disk, by day of its wall clock: `written` by all of its process, as
-- the kernel counts it, `pages` of the database, and in how many commits.
CREATE TABLE wear (
    day INTEGER NOT NULL PRIMARY KEY, -- days since 1970 UTC
    seconds REAL NOT NULL, -- of service, in which this was counted
    written INTEGER NOT NULL, -- bytes
    pages INTEGER NOT NULL,
    commits INTEGER NOT NULL
) STRICT;

-- Which queues the centre was told to have items, by the names under which it was (`queue depth`).
CREATE TABLE queues_told (
    topic TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;
