"""The temporary tables and the usage of queues."""

from edge.engine.store.tables import Tables

TABLES = Tables(
    temporary="""
CREATE TEMPORARY TABLE queue_members (
    subscription INTEGER NOT NULL,
    generation INTEGER NOT NULL, -- a session that may serve the subscription
    queue INTEGER NOT NULL,
    full TEXT NOT NULL, -- its full JID
    bare INTEGER NOT NULL, -- the subscription is of the account: any available session serves it
    needs INTEGER NOT NULL, -- needs quality of service (1) or not (0)
    plain INTEGER NOT NULL, -- the account accepts plain messages instead
    locks INTEGER NOT NULL, -- its items are locked, and counted by the locks
    capacity INTEGER NOT NULL, -- most items of the subscription in flight
    in_flight INTEGER NOT NULL, -- items of all its sessions
    mine INTEGER NOT NULL, -- items of this session
    bytes INTEGER NOT NULL, -- bytes of all items
    free INTEGER NOT NULL, -- has room for one more
    stalled INTEGER NOT NULL DEFAULT 0, -- blocked by another limit; tried again later
    turn INTEGER NOT NULL, -- of its last item; the lowest has been idle longest
    PRIMARY KEY (subscription, generation)
) STRICT, WITHOUT ROWID;
CREATE INDEX temp.queue_members_free ON queue_members (queue, in_flight, mine, turn) WHERE free = 1;
CREATE INDEX temp.queue_members_turn ON queue_members (queue, turn);
CREATE INDEX temp.queue_members_stalled ON queue_members (subscription) WHERE stalled = 1;
CREATE INDEX temp.queue_members_needing ON queue_members (generation) WHERE needs = 1 AND bare = 0;
CREATE INDEX temp.queue_members_by_session ON queue_members (generation);
CREATE TEMPORARY TABLE queue_work (
    queue INTEGER PRIMARY KEY,
    delivered INTEGER NOT NULL, -- items delivered to members since the last log
    redelivered INTEGER NOT NULL, -- of those, delivered before
    timeouts INTEGER NOT NULL -- locks that timed out
) STRICT;
CREATE TEMPORARY TABLE share_items (
    looked INTEGER PRIMARY KEY CHECK (looked = 1) -- items of the last process were returned
) STRICT;
""",
    totals={
        ("queue_items", "queue_bytes"): "SELECT items, bytes FROM queues_total",
    },
    largest={
        ("queue_items_per_source", "queue_bytes_per_source"): """
SELECT source, items, bytes FROM queue_sources
""",
        ("items_per_queue", "queue_bytes_per_queue"): """
SELECT coalesce(n.name, '$share:' || q.share || ':' || q.filter), q.items, q.bytes
FROM queues AS q LEFT JOIN nodes AS n ON n.id = q.node
""",
        ("notifications_per_account",): """
SELECT a.name, count(*) FROM notifications AS w JOIN accounts AS a ON a.id = w.account
GROUP BY w.account
""",
    },
    waiting={
        "queued": "SELECT items FROM queues_total",
        "queued_dead": """
SELECT coalesce(sum((
    SELECT count(*) FROM queue_items AS i WHERE i.queue = q.id AND i.state = 'dead'
)), 0) FROM queues AS q
""",
    },
)
