-- The database of the newest version: what the migrations must lead to, in the order of names.

CREATE INDEX affiliations_by_jid ON affiliations (jid, node);

CREATE INDEX certificates_by_account ON certificates (account);

CREATE INDEX dead_by_source ON dead (source, id, bytes);

CREATE INDEX durable_sessions_by_account ON durable_sessions (account);

CREATE INDEX durable_sessions_by_expiry ON durable_sessions (expires);

CREATE INDEX event_batches_urgent ON event_batches (lane, urgent, since) WHERE urgent IS NOT NULL;

CREATE INDEX items_by_node ON items (node, id);

CREATE INDEX items_expire ON items (expires) WHERE expires IS NOT NULL;

CREATE INDEX nodes_by_owner ON nodes (owner);

CREATE INDEX notifications_by_account ON notifications (account, id, bytes);

CREATE INDEX notifications_by_age ON notifications (since);

CREATE INDEX offline_by_account ON offline (account, id, bytes);

CREATE INDEX offline_by_age ON offline (since);

CREATE INDEX offline_by_source ON offline (source, account, bytes);

CREATE INDEX outbox_by_account ON outbox (account);

CREATE INDEX queue_items_by_item ON queue_items (queue, item);

CREATE INDEX queue_items_by_slot ON queue_items (queue, slot, state, priority DESC, id)
    WHERE slot IS NOT NULL;

CREATE INDEX queue_items_due ON queue_items (due) WHERE state = 'delayed';

CREATE INDEX queue_items_expire ON queue_items (expires)
    WHERE expires IS NOT NULL AND state IN ('ready', 'delayed');

CREATE INDEX queue_items_held ON queue_items (holder) WHERE state = 'locked';

CREATE INDEX queue_items_in_line ON queue_items (queue, state, priority DESC, id);

CREATE INDEX queue_items_sent ON queue_items (outbox) WHERE outbox IS NOT NULL;

CREATE INDEX queue_items_until ON queue_items (until) WHERE state = 'locked' AND until IS NOT NULL;

CREATE INDEX refusals_due ON refusals (due);

CREATE INDEX roster_by_jid ON roster (jid);

CREATE INDEX segments_by_state ON segments (state, id, lane, bytes);

CREATE INDEX segments_waiting ON segments (lane, spared, source, bytes) WHERE state = 'waiting';

CREATE INDEX subscriptions_by_account ON subscriptions (account);

CREATE INDEX subscriptions_by_jid ON subscriptions (jid);

CREATE INDEX subscriptions_by_node ON subscriptions (node) WHERE node IS NOT NULL;

CREATE INDEX subscriptions_by_queue ON subscriptions (queue) WHERE queue IS NOT NULL;

CREATE INDEX wills_by_account ON wills (account);

CREATE INDEX wills_by_due ON wills (due) WHERE due IS NOT NULL;

CREATE TABLE accounts (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    trusted INTEGER NOT NULL CHECK (trusted IN (0, 1)),
    created INTEGER NOT NULL
, revoked INTEGER, grant INTEGER NOT NULL DEFAULT 0, downgrade INTEGER NOT NULL DEFAULT 0 CHECK (downgrade IN (0, 1)), seen INTEGER, roster_version TEXT) STRICT;

CREATE TABLE affiliations (
    node INTEGER NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    jid TEXT NOT NULL,
    affiliation TEXT NOT NULL
        CHECK (affiliation IN ('owner', 'publisher', 'publish-only', 'member', 'outcast')),
    PRIMARY KEY (node, jid)
) STRICT, WITHOUT ROWID;

CREATE TABLE certificates (
    fingerprint BLOB NOT NULL PRIMARY KEY,
    account INTEGER REFERENCES accounts (id) ON DELETE SET NULL,
    name TEXT NOT NULL,
    serial TEXT NOT NULL,
    issued INTEGER NOT NULL,
    not_after INTEGER NOT NULL,
    revoked INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE credentials (
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    mechanism TEXT NOT NULL,
    salt BLOB NOT NULL,
    iterations INTEGER NOT NULL,
    stored_key BLOB NOT NULL,
    server_key BLOB NOT NULL,
    PRIMARY KEY (account, mechanism)
) STRICT, WITHOUT ROWID;

CREATE TABLE custody (
    id INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    sender TEXT NOT NULL,
    msg_id TEXT NOT NULL,
    destination TEXT NOT NULL,
    recipient TEXT,
    digest BLOB NOT NULL,
    bytes INTEGER NOT NULL,
    since REAL NOT NULL,
    released INTEGER,
    body BLOB NOT NULL
, exclusive INTEGER NOT NULL DEFAULT 0, content_type TEXT NOT NULL DEFAULT '', attributes BLOB) STRICT;

CREATE TABLE dead (
    id INTEGER PRIMARY KEY,
    sender TEXT NOT NULL,
    msg_id TEXT,
    destination TEXT NOT NULL,
    qos INTEGER NOT NULL,
    body BLOB NOT NULL,
    bytes INTEGER NOT NULL,
    reason TEXT NOT NULL,
    time INTEGER NOT NULL
, state TEXT NOT NULL DEFAULT 'refused'
    CHECK (state IN ('refused', 'failed', 'in doubt')), recipient TEXT, outbox INTEGER, session TEXT, source TEXT NOT NULL DEFAULT '', kind TEXT NOT NULL DEFAULT '', content_type TEXT NOT NULL DEFAULT '') STRICT;

CREATE TABLE dead_total (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    messages INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

CREATE TABLE "dropped" (
    epoch TEXT NOT NULL,
    lane TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    reason TEXT NOT NULL,
    told INTEGER,
    PRIMARY KEY (epoch, lane, first)
) STRICT, WITHOUT ROWID;

CREATE TABLE durable_sessions (
    full TEXT PRIMARY KEY,
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    seconds REAL NOT NULL,
    expires REAL
) STRICT, WITHOUT ROWID;

CREATE TABLE epochs (
    epoch TEXT NOT NULL PRIMARY KEY,
    began INTEGER NOT NULL,
    reason TEXT NOT NULL,
    outbox INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE event_batches (
    lane TEXT NOT NULL,
    last INTEGER NOT NULL,
    first INTEGER NOT NULL,
    time INTEGER NOT NULL,
    clock INTEGER NOT NULL,
    since REAL NOT NULL,
    urgent INTEGER,
    total INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (lane, last)
) STRICT, WITHOUT ROWID;

CREATE TABLE item_sources (
    source TEXT NOT NULL PRIMARY KEY,
    items INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE items (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    node INTEGER NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    item TEXT NOT NULL,
    publisher TEXT NOT NULL,
    wall INTEGER NOT NULL,
    expires REAL,
    bytes INTEGER NOT NULL,
    body BLOB NOT NULL, author TEXT, content_type TEXT NOT NULL DEFAULT '', qos INTEGER NOT NULL DEFAULT 2, properties BLOB,
    UNIQUE (node, item)
) STRICT;

CREATE TABLE items_total (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    items INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

CREATE TABLE known_logins (
    id INTEGER PRIMARY KEY,
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    address TEXT NOT NULL,
    UNIQUE (account, address)
) STRICT;

CREATE TABLE "lanes" (
    lane TEXT NOT NULL PRIMARY KEY,
    sealed INTEGER NOT NULL DEFAULT 0,
    sealed_bytes INTEGER NOT NULL DEFAULT 0,
    previous BLOB NOT NULL DEFAULT (zeroblob(32))
) STRICT, WITHOUT ROWID;

CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE nodes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    config TEXT NOT NULL,
    items INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE notifications (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    jid TEXT NOT NULL,
    since REAL NOT NULL,
    bytes INTEGER NOT NULL,
    stanza BLOB NOT NULL
, kind TEXT NOT NULL DEFAULT '') STRICT;

CREATE TABLE offline (
    id INTEGER PRIMARY KEY,
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    stanza BLOB NOT NULL,
    sender TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    since REAL NOT NULL
, source TEXT NOT NULL DEFAULT '', kind TEXT NOT NULL DEFAULT '', content_type TEXT NOT NULL DEFAULT '', received INTEGER) STRICT;

CREATE TABLE offline_total (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    messages INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    recipient TEXT NOT NULL,
    account INTEGER REFERENCES accounts (id) ON DELETE SET NULL,
    source TEXT NOT NULL,
    sender TEXT NOT NULL,
    msg_id TEXT,
    qos INTEGER NOT NULL CHECK (qos IN (1, 2)),
    state TEXT NOT NULL DEFAULT 'queued' CHECK (
        state = 'queued' OR state = 'offered' OR state = 'repeated' OR state = 'received'
        OR state = 'released' OR state = 'plain'
    ),
    session TEXT,
    sends INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1)),
    due REAL,
    bytes INTEGER NOT NULL,
    since REAL NOT NULL
, queue_item INTEGER, only TEXT, turn INTEGER NOT NULL DEFAULT 0) STRICT;

CREATE TABLE outbox_bodies (
    id INTEGER PRIMARY KEY REFERENCES outbox (id) ON DELETE CASCADE,
    body BLOB NOT NULL
, kind TEXT NOT NULL DEFAULT '', content_type TEXT NOT NULL DEFAULT '') STRICT;

CREATE TABLE queue_bodies (
    id INTEGER PRIMARY KEY REFERENCES queue_items (id) ON DELETE CASCADE,
    body BLOB NOT NULL
, content_type TEXT NOT NULL DEFAULT '', retain INTEGER NOT NULL DEFAULT 0, properties BLOB) STRICT;

CREATE TABLE queue_items (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue INTEGER NOT NULL REFERENCES queues (id) ON DELETE CASCADE,
    node TEXT NOT NULL,
    item TEXT NOT NULL,
    publisher TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'ready'
        CHECK (state IN ('ready', 'delayed', 'locked', 'dead')),
    priority INTEGER NOT NULL DEFAULT 0,
    wall INTEGER NOT NULL,
    since REAL NOT NULL,
    due REAL,
    expires REAL,
    deliveries INTEGER NOT NULL DEFAULT 0,
    spared INTEGER NOT NULL DEFAULT 0,
    slot INTEGER,
    subscription INTEGER,
    holder TEXT,
    locked REAL,
    until REAL,
    outbox INTEGER,
    reason TEXT,
    bytes INTEGER NOT NULL
, author TEXT, qos INTEGER NOT NULL DEFAULT 2) STRICT;

CREATE TABLE queue_receivers (
    item INTEGER NOT NULL REFERENCES queue_items (id) ON DELETE CASCADE,
    jid TEXT NOT NULL,
    PRIMARY KEY (item, jid)
) STRICT, WITHOUT ROWID;

CREATE TABLE queue_sources (
    source TEXT NOT NULL PRIMARY KEY,
    items INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE queues (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    node INTEGER UNIQUE REFERENCES nodes (id) ON DELETE CASCADE, -- NULL for a share
    share TEXT, -- the share's name
    filter TEXT,
    policy TEXT NOT NULL DEFAULT 'least-loaded'
        CHECK (policy IN ('least-loaded', 'hash', 'sticky')),
    favourite INTEGER, -- sticky: the subscription that gets all items
    lock_timeout REAL NOT NULL DEFAULT 60, -- seconds until the lock of an item ends
    max_deliveries INTEGER NOT NULL DEFAULT 5, -- deliveries after which a returned item is dead
    items INTEGER NOT NULL DEFAULT 0, -- number and bytes of its items, kept by triggers
    bytes INTEGER NOT NULL DEFAULT 0, owner TEXT,
    CHECK ((node IS NULL) = (share IS NOT NULL AND filter IS NOT NULL)),
    UNIQUE (share, filter)
) STRICT;

CREATE TABLE queues_told (
    topic TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE queues_total (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    items INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

CREATE TABLE refusals (
    source TEXT NOT NULL,
    rule TEXT NOT NULL,
    count INTEGER NOT NULL,
    figure INTEGER,
    due REAL NOT NULL,
    PRIMARY KEY (source, rule)
) STRICT, WITHOUT ROWID;

CREATE TABLE released_latest (
    source TEXT NOT NULL PRIMARY KEY,
    keys BLOB NOT NULL,
    pages INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE released_pages (
    source TEXT NOT NULL,
    slot INTEGER NOT NULL,
    keys BLOB NOT NULL,
    PRIMARY KEY (source, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE retained_progress (
    subscription INTEGER PRIMARY KEY REFERENCES subscriptions (id) ON DELETE CASCADE,
    next TEXT NOT NULL, -- the name from which on nodes are to be read, in the order of names
    last INTEGER NOT NULL -- the newest item when the subscription was made
) STRICT;

CREATE TABLE retained_sent (
    subscription INTEGER NOT NULL REFERENCES retained_progress (subscription) ON DELETE CASCADE,
    item INTEGER NOT NULL, -- number of its row
    PRIMARY KEY (subscription, item)
) STRICT, WITHOUT ROWID;

CREATE TABLE roster (
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    jid TEXT NOT NULL,
    listed INTEGER NOT NULL CHECK (listed IN (0, 1)),
    subscription TEXT NOT NULL CHECK (subscription IN ('none', 'to', 'from', 'both')),
    ask INTEGER NOT NULL CHECK (ask IN (0, 1)),
    approved INTEGER NOT NULL CHECK (approved IN (0, 1)),
    request BLOB,
    name TEXT,
    groups TEXT,
    PRIMARY KEY (account, jid)
) STRICT, WITHOUT ROWID;

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
    data BLOB NOT NULL, source TEXT, spared INTEGER NOT NULL DEFAULT 0 CHECK (spared IN (0, 1, 2)),
    UNIQUE (epoch, lane, first)
) STRICT;

CREATE TABLE sqlite_sequence(name,seq);

CREATE TABLE subscriptions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    subid TEXT NOT NULL UNIQUE,
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    jid TEXT NOT NULL,
    node INTEGER REFERENCES nodes (id) ON DELETE CASCADE,
    filter TEXT,
    queue INTEGER REFERENCES queues (id) ON DELETE CASCADE,
    qos INTEGER NOT NULL DEFAULT 0 CHECK (qos IN (0, 1, 2)),
    requests INTEGER,
    presence INTEGER NOT NULL DEFAULT 0 CHECK (presence IN (0, 1)),
    options TEXT NOT NULL DEFAULT '{}',
    CHECK ((node IS NULL) = (filter IS NOT NULL))
) STRICT;

CREATE TABLE wear (
    day INTEGER NOT NULL PRIMARY KEY,
    seconds REAL NOT NULL,
    written INTEGER NOT NULL,
    pages INTEGER NOT NULL,
    commits INTEGER NOT NULL
) STRICT;

CREATE TABLE wills (
    full TEXT PRIMARY KEY, -- address of the session
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    topic TEXT NOT NULL,
    payload BLOB NOT NULL,
    content_type TEXT NOT NULL,
    attributes BLOB, -- others of the message (item_attributes); NULL for the defaults
    bytes INTEGER NOT NULL, -- that count towards limits.will_bytes
    delay REAL NOT NULL, -- seconds from the loss of the session to the publication
    due REAL -- service second of the publication; NULL while the session exists
) STRICT, WITHOUT ROWID;

CREATE TRIGGER dead_added AFTER INSERT ON dead BEGIN
    UPDATE dead_total SET messages = messages + 1, bytes = bytes + new.bytes;
END;

CREATE TRIGGER dead_removed AFTER DELETE ON dead BEGIN
    UPDATE dead_total SET messages = messages - 1, bytes = bytes - old.bytes;
END;

CREATE TRIGGER item_removed AFTER DELETE ON items BEGIN
    UPDATE nodes SET items = items - 1, bytes = bytes - old.bytes WHERE id = old.node;
    UPDATE items_total SET items = items - 1, bytes = bytes - old.bytes;
END;

CREATE TRIGGER item_source_changed AFTER UPDATE OF author ON items BEGIN
    UPDATE item_sources SET items = items - 1, bytes = bytes - old.bytes
    WHERE source = coalesce(old.author, substr(old.publisher, 1, instr(old.publisher || '/', '/') - 1));
    INSERT INTO item_sources (source, items, bytes) VALUES (coalesce(new.author, substr(new.publisher, 1, instr(new.publisher || '/', '/') - 1)), 1, new.bytes)
    ON CONFLICT (source) DO UPDATE SET items = items + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER item_source_empty AFTER UPDATE ON item_sources WHEN new.items = 0 BEGIN
    DELETE FROM item_sources WHERE source = new.source;
END;

CREATE TRIGGER item_source_removed AFTER DELETE ON items BEGIN
    UPDATE item_sources SET items = items - 1, bytes = bytes - old.bytes
    WHERE source = coalesce(old.author, substr(old.publisher, 1, instr(old.publisher || '/', '/') - 1));
END;

CREATE TRIGGER offline_added AFTER INSERT ON offline BEGIN
    UPDATE offline_total SET messages = messages + 1, bytes = bytes + new.bytes;
END;

CREATE TRIGGER offline_removed AFTER DELETE ON offline BEGIN
    UPDATE offline_total SET messages = messages - 1, bytes = bytes - old.bytes;
END;

CREATE TRIGGER queue_item_removed AFTER DELETE ON queue_items BEGIN
    UPDATE queues SET items = items - 1, bytes = bytes - old.bytes WHERE id = old.queue;
    UPDATE queues_total SET items = items - 1, bytes = bytes - old.bytes;
END;

CREATE TRIGGER queue_source_changed AFTER UPDATE OF author ON queue_items
WHEN (SELECT owner FROM queues WHERE id = new.queue) IS NULL BEGIN
    UPDATE queue_sources SET items = items - 1, bytes = bytes - old.bytes
    WHERE source = coalesce(old.author, substr(old.publisher, 1, instr(old.publisher || '/', '/') - 1));
    INSERT INTO queue_sources (source, items, bytes) VALUES (coalesce(new.author, substr(new.publisher, 1, instr(new.publisher || '/', '/') - 1)), 1, new.bytes)
    ON CONFLICT (source) DO UPDATE SET items = items + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER queue_source_empty AFTER UPDATE ON queue_sources WHEN new.items = 0 BEGIN
    DELETE FROM queue_sources WHERE source = new.source;
END;

CREATE TRIGGER queue_source_removed AFTER DELETE ON queue_items BEGIN
    UPDATE queue_sources SET items = items - 1, bytes = bytes - old.bytes
    WHERE source = coalesce(
            (SELECT owner FROM queues WHERE id = old.queue),
            old.author, substr(old.publisher, 1, instr(old.publisher || '/', '/') - 1)
    );
END;

CREATE TRIGGER roster_contact_added AFTER INSERT ON roster WHEN new.listed = 1 BEGIN
    UPDATE accounts SET roster_version = lower(hex(randomblob(8))) WHERE id = new.account;
END;

CREATE TRIGGER roster_contact_changed AFTER UPDATE ON roster
WHEN (old.listed, old.subscription, old.ask, old.approved, old.name, old.groups)
    IS NOT (new.listed, new.subscription, new.ask, new.approved, new.name, new.groups) BEGIN
    UPDATE accounts SET roster_version = lower(hex(randomblob(8))) WHERE id = new.account;
END;

CREATE TRIGGER roster_contact_removed AFTER DELETE ON roster WHEN old.listed = 1 BEGIN
    UPDATE accounts SET roster_version = lower(hex(randomblob(8))) WHERE id = old.account;
END;

CREATE TRIGGER share_given AFTER UPDATE OF owner ON queues
WHEN old.owner <> new.owner AND new.items > 0 BEGIN
    UPDATE queue_sources SET items = items - new.items, bytes = bytes - new.bytes
    WHERE source = old.owner;
    INSERT INTO queue_sources (source, items, bytes) VALUES (new.owner, new.items, new.bytes)
    ON CONFLICT (source) DO UPDATE
    SET items = items + excluded.items, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER share_left AFTER DELETE ON subscriptions WHEN old.queue IS NOT NULL BEGIN
    UPDATE queues SET owner = (
        SELECT substr(s.jid, 1, instr(s.jid || '/', '/') - 1) FROM subscriptions AS s
        WHERE s.queue = old.queue ORDER BY s.id LIMIT 1
    )
    WHERE id = old.queue AND owner = substr(old.jid, 1, instr(old.jid || '/', '/') - 1)
        AND EXISTS (SELECT 1 FROM subscriptions WHERE queue = old.queue)
        AND NOT EXISTS (
            SELECT 1 FROM subscriptions WHERE queue = old.queue AND account = old.account
        );
END;

CREATE VIEW held AS
SELECT id, source, sender, msg_id, destination, recipient, digest, bytes, since, body
FROM custody WHERE released IS NULL;

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
