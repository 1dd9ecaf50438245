-- Nodes of publish-subscribe (XEP-0060). A name is also a topic, with levels separated by "/".
CREATE TABLE nodes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL, -- bare JID of its creator, for the limits
    config TEXT NOT NULL, -- JSON: options that differ from the default
    items INTEGER NOT NULL DEFAULT 0, -- number and bytes of its items, kept by triggers
    bytes INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX nodes_by_owner ON nodes (owner);

CREATE TABLE affiliations (
    node INTEGER NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    jid TEXT NOT NULL, -- bare
    affiliation TEXT NOT NULL
        CHECK (affiliation IN ('owner', 'publisher', 'publish-only', 'member', 'outcast')),
    PRIMARY KEY (node, jid)
) STRICT, WITHOUT ROWID;

CREATE INDEX affiliations_by_jid ON affiliations (jid, node);

-- Items of nodes that are not queues.
CREATE TABLE items (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- position, rises with each publication
    node INTEGER NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    item TEXT NOT NULL, -- the ItemID
    publisher TEXT NOT NULL, -- full JID
    wall INTEGER NOT NULL, -- ms since 1970 UTC
    expires REAL, -- service seconds; NULL: never
    bytes INTEGER NOT NULL, -- the charge for the limits
    body BLOB NOT NULL, -- the payload; empty if it has none
    UNIQUE (node, item)
) STRICT;

CREATE INDEX items_by_node ON items (node, id);

CREATE INDEX items_expire ON items (expires) WHERE expires IS NOT NULL;

CREATE TABLE items_total (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    items INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

INSERT INTO items_total VALUES (1, 0, 0);

CREATE TRIGGER item_added AFTER INSERT ON items BEGIN
    UPDATE nodes SET items = items + 1, bytes = bytes + new.bytes WHERE id = new.node;
    UPDATE items_total SET items = items + 1, bytes = bytes + new.bytes;
END;

CREATE TRIGGER item_removed AFTER DELETE ON items BEGIN
    UPDATE nodes SET items = items - 1, bytes = bytes - old.bytes WHERE id = old.node;
    UPDATE items_total SET items = items - 1, bytes = bytes - old.bytes;
END;

-- Queues: of queue nodes (XEP-0254) and of shared subscriptions (MQTT-234), one for each name and filter.
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
    bytes INTEGER NOT NULL DEFAULT 0,
    CHECK ((node IS NULL) = (share IS NOT NULL AND filter IS NOT NULL)),
    UNIQUE (share, filter)
) STRICT;

-- Subscriptions to a node or to all nodes that match a filter; plain or as a member of a queue.
CREATE TABLE subscriptions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    subid TEXT NOT NULL UNIQUE,
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    jid TEXT NOT NULL, -- bare or full
    node INTEGER REFERENCES nodes (id) ON DELETE CASCADE, -- or
    filter TEXT, -- for names of nodes
    queue INTEGER REFERENCES queues (id) ON DELETE CASCADE, -- the queue whose member it is
    qos INTEGER NOT NULL DEFAULT 0 CHECK (qos IN (0, 1, 2)),
    requests INTEGER, -- most items in flight to a member
    presence INTEGER NOT NULL DEFAULT 0 CHECK (presence IN (0, 1)), -- it ends with the session
    options TEXT NOT NULL DEFAULT '{}', -- JSON: further options
    CHECK ((node IS NULL) = (filter IS NOT NULL))
) STRICT;

CREATE INDEX subscriptions_by_node ON subscriptions (node) WHERE node IS NOT NULL;

CREATE INDEX subscriptions_by_queue ON subscriptions (queue) WHERE queue IS NOT NULL;

CREATE INDEX subscriptions_by_account ON subscriptions (account);

CREATE INDEX subscriptions_by_jid ON subscriptions (jid);

-- Items of queues: waiting, locked by a worker, or dead.
CREATE TABLE queue_items (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- position in the queue
    queue INTEGER NOT NULL REFERENCES queues (id) ON DELETE CASCADE,
    node TEXT NOT NULL, -- the name of the node that it was published to
    item TEXT NOT NULL, -- the ItemID
    publisher TEXT NOT NULL, -- full JID
    state TEXT NOT NULL DEFAULT 'ready'
        CHECK (state IN ('ready', 'delayed', 'locked', 'dead')),
    priority INTEGER NOT NULL DEFAULT 0, -- highest first
    wall INTEGER NOT NULL, -- ms since 1970 UTC: when it was published
    since REAL NOT NULL, -- service seconds, as all below
    due REAL, -- delayed: when it is ready
    expires REAL,
    deliveries INTEGER NOT NULL DEFAULT 0,
    spared INTEGER NOT NULL DEFAULT 0, -- deliveries that do not count, by an operator
    slot INTEGER, -- assignment by hash: the publisher's slot
    subscription INTEGER, -- locked: the member
    holder TEXT, -- its full JID; ready: the member that returned it and does not get it at once
    locked REAL, -- since when it is locked
    until REAL, -- when the lock ends
    outbox INTEGER, -- of a share, at level 1 or 2: its row in the outbox
    reason TEXT, -- dead: why
    bytes INTEGER NOT NULL -- the charge for the limits
) STRICT;

CREATE INDEX queue_items_in_line ON queue_items (queue, state, priority DESC, id);

CREATE INDEX queue_items_by_item ON queue_items (queue, item);

CREATE INDEX queue_items_by_slot ON queue_items (queue, slot, state, priority DESC, id)
    WHERE slot IS NOT NULL;

CREATE INDEX queue_items_held ON queue_items (holder) WHERE state = 'locked';

CREATE INDEX queue_items_until ON queue_items (until) WHERE state = 'locked' AND until IS NOT NULL;

CREATE INDEX queue_items_due ON queue_items (due) WHERE state = 'delayed';

CREATE INDEX queue_items_expire ON queue_items (expires)
    WHERE expires IS NOT NULL AND state IN ('ready', 'delayed');

CREATE INDEX queue_items_sent ON queue_items (outbox) WHERE outbox IS NOT NULL;

-- Bodies in a table of their own, because the rows above are written several times.
CREATE TABLE queue_bodies (
    id INTEGER PRIMARY KEY REFERENCES queue_items (id) ON DELETE CASCADE,
    body BLOB NOT NULL -- the payload; empty if it has none
) STRICT;

-- Earlier holders of an item, which are notified when it is assigned to another or deleted (XEP-0254).
CREATE TABLE queue_receivers (
    item INTEGER NOT NULL REFERENCES queue_items (id) ON DELETE CASCADE,
    jid TEXT NOT NULL, -- full
    PRIMARY KEY (item, jid)
) STRICT, WITHOUT ROWID;

CREATE TABLE queues_total (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    items INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

INSERT INTO queues_total VALUES (1, 0, 0);

CREATE TRIGGER queue_item_added AFTER INSERT ON queue_items BEGIN
    UPDATE queues SET items = items + 1, bytes = bytes + new.bytes WHERE id = new.queue;
    UPDATE queues_total SET items = items + 1, bytes = bytes + new.bytes;
END;

CREATE TRIGGER queue_item_removed AFTER DELETE ON queue_items BEGIN
    UPDATE queues SET items = items - 1, bytes = bytes - old.bytes WHERE id = old.queue;
    UPDATE queues_total SET items = items - 1, bytes = bytes - old.bytes;
END;

-- Notifications to workers that must not be lost: an item is deleted or unlocked (XEP-0254).
CREATE TABLE notifications (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    jid TEXT NOT NULL, -- full JID of the session
    since REAL NOT NULL, -- service seconds
    bytes INTEGER NOT NULL,
    stanza BLOB NOT NULL
) STRICT;

CREATE INDEX notifications_by_account ON notifications (account, id, bytes);

CREATE INDEX notifications_by_age ON notifications (since);

-- Outbox rows of subscriptions: the item of a queue, and the only session that may receive it.
ALTER TABLE outbox ADD COLUMN queue_item INTEGER;

ALTER TABLE outbox ADD COLUMN only TEXT; -- full JID; NULL: any session of the account

-- A message for a session that is not bound does not block the outbox; the index finds such messages
-- without reading rows.
DROP INDEX outbox_by_account;

CREATE INDEX outbox_by_account ON outbox (account, state, source, id, bytes, only);
