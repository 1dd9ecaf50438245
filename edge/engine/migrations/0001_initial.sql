-- One value for each key: the epoch of the counters, service seconds, the version.
CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- Provisioned devices. `name` is the local part of the JID.
CREATE TABLE accounts (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    trusted INTEGER NOT NULL CHECK (trusted IN (0, 1)),
    created INTEGER NOT NULL -- ms since 1970 UTC
) STRICT;

-- SCRAM credentials, from which the password cannot be recovered.
CREATE TABLE credentials (
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    mechanism TEXT NOT NULL,
    salt BLOB NOT NULL,
    iterations INTEGER NOT NULL,
    stored_key BLOB NOT NULL,
    server_key BLOB NOT NULL,
    PRIMARY KEY (account, mechanism)
) STRICT, WITHOUT ROWID;

-- Messages in custody, between `assured` and `deliver`, unparsed.
CREATE TABLE held (
    id INTEGER PRIMARY KEY,
    source TEXT NOT NULL, -- bare JID of the sender
    sender TEXT NOT NULL, -- full JID of the sender
    msg_id TEXT NOT NULL,
    destination TEXT NOT NULL,
    body BLOB NOT NULL,
    digest BLOB NOT NULL, -- SHA-256 of the body
    bytes INTEGER NOT NULL, -- the charge for the limits
    since REAL NOT NULL, -- service seconds
    UNIQUE (source, sender, msg_id)
) STRICT;

-- The total of all messages in custody.
CREATE TABLE custody_total (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    messages INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

INSERT INTO custody_total VALUES (1, 0, 0);

CREATE TRIGGER held_added AFTER INSERT ON held BEGIN
    UPDATE custody_total SET messages = messages + 1, bytes = bytes + new.bytes;
END;

CREATE TRIGGER held_removed AFTER DELETE ON held BEGIN
    UPDATE custody_total SET messages = messages - 1, bytes = bytes - old.bytes;
END;

-- The keys of the latest released messages of each source, 8 bytes a key.
CREATE TABLE released_latest (
    source TEXT NOT NULL PRIMARY KEY,
    keys BLOB NOT NULL,
    pages INTEGER NOT NULL DEFAULT 0 -- number of pages filled so far
) STRICT, WITHOUT ROWID;

-- Earlier keys: a ring of pages with 32 keys each; `slot` is the position in the ring.
CREATE TABLE released_pages (
    source TEXT NOT NULL,
    slot INTEGER NOT NULL,
    keys BLOB NOT NULL,
    PRIMARY KEY (source, slot)
) STRICT, WITHOUT ROWID;

-- Messages that could not be delivered, kept for the operator.
CREATE TABLE dead (
    id INTEGER PRIMARY KEY,
    sender TEXT NOT NULL,
    msg_id TEXT,
    destination TEXT NOT NULL,
    qos INTEGER NOT NULL,
    body BLOB NOT NULL,
    bytes INTEGER NOT NULL,
    reason TEXT NOT NULL,
    time INTEGER NOT NULL -- ms since 1970 UTC
) STRICT;

CREATE TABLE dead_total (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    messages INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

INSERT INTO dead_total VALUES (1, 0, 0);

CREATE TRIGGER dead_added AFTER INSERT ON dead BEGIN
    UPDATE dead_total SET messages = messages + 1, bytes = bytes + new.bytes;
END;

CREATE TRIGGER dead_removed AFTER DELETE ON dead BEGIN
    UPDATE dead_total SET messages = messages - 1, bytes = bytes - old.bytes;
END;

-- Refusals that are counted until the end of their window, one row for each source and rule.
CREATE TABLE refusals (
    source TEXT NOT NULL,
    rule TEXT NOT NULL,
    count INTEGER NOT NULL,
    figure INTEGER,
    due REAL NOT NULL, -- service seconds
    PRIMARY KEY (source, rule)
) STRICT, WITHOUT ROWID;

CREATE INDEX refusals_due ON refusals (due);

-- The counters of the event log. `sealed` is the last sequence number that is in a segment, `previous`
-- the digest of that segment; `bytes` and `oldest` (service seconds) describe the unsealed events.
CREATE TABLE lanes (
    lane TEXT NOT NULL PRIMARY KEY,
    last INTEGER NOT NULL DEFAULT 0,
    sealed INTEGER NOT NULL DEFAULT 0,
    previous BLOB NOT NULL DEFAULT (zeroblob(32)),
    bytes INTEGER NOT NULL DEFAULT 0,
    oldest REAL
) STRICT, WITHOUT ROWID;

INSERT INTO lanes (lane) VALUES ('readings'), ('logs'), ('system');

-- Events that are not sealed yet.
CREATE TABLE events (
    lane TEXT NOT NULL,
    seq INTEGER NOT NULL,
    time INTEGER NOT NULL, -- ms since 1970 UTC
    clock INTEGER NOT NULL, -- whether the wall clock was synchronised
    kind TEXT NOT NULL,
    source TEXT,
    topic TEXT,
    name TEXT,
    value REAL,
    unit TEXT,
    level TEXT,
    text TEXT,
    qos INTEGER,
    latency_ms INTEGER,
    tags TEXT, -- JSON object
    bytes INTEGER NOT NULL,
    since REAL NOT NULL, -- service seconds
    PRIMARY KEY (lane, seq)
) STRICT, WITHOUT ROWID;

-- Sealed segments, as they are shipped.
CREATE TABLE segments (
    id INTEGER PRIMARY KEY,
    epoch TEXT NOT NULL,
    lane TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'acknowledged', 'aside')),
    reason TEXT, -- why it was set aside
    declares INTEGER, -- the last number of the evicted ranges that it declares
    bytes INTEGER NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (epoch, lane, first)
) STRICT;

CREATE INDEX segments_by_state ON segments (state, id, lane, bytes);

-- Ranges of events that were evicted before the centre had them, in the order of their lane. Every
-- segment of the lane declares them, until the centre has one that does.
CREATE TABLE dropped (
    lane TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (lane, first)
) STRICT, WITHOUT ROWID;
