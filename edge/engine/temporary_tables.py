"""The temporary tables of the gateway's connection, which end with the process.

Commands beside the gateway do not see them. Lasting tables are in `migrations`.
"""

from __future__ import annotations

from typing import Final

TABLES: Final = """
CREATE TEMPORARY TABLE sessions (
    generation INTEGER PRIMARY KEY,
    full TEXT NOT NULL UNIQUE,
    bare TEXT NOT NULL,
    account TEXT NOT NULL,
    grant INTEGER, -- the account's grant at log-in; NULL if the log-in was to another server
    available INTEGER NOT NULL DEFAULT 0, -- has sent initial presence (RFC 6121, section 4.2)
    priority INTEGER NOT NULL DEFAULT 0,
    presence BLOB, -- the last broadcast presence
    interested INTEGER NOT NULL DEFAULT 0, -- has requested its roster
    detached INTEGER NOT NULL DEFAULT 0, -- waits to be resumed (XEP-0198)
    qos TEXT, -- namespace of the supported quality of service; '' for none, NULL if unknown
    pubsub_unavailable INTEGER NOT NULL DEFAULT 0, -- to the publish-subscribe service
    since REAL NOT NULL -- service seconds: when it was bound
) STRICT;
CREATE INDEX temp.sessions_by_bare ON sessions (bare);
CREATE TEMPORARY TABLE seen (
    account TEXT PRIMARY KEY, -- a session of it began or ended since the last heartbeat
    wall INTEGER NOT NULL -- and when, in ms since 1970 UTC
) STRICT, WITHOUT ROWID;
CREATE TEMPORARY TABLE directed (
    generation INTEGER NOT NULL,
    target TEXT NOT NULL, -- recipient of directed presence
    PRIMARY KEY (generation, target)
) STRICT, WITHOUT ROWID;
CREATE TEMPORARY TABLE under_way (
    kind TEXT NOT NULL,
    id INTEGER NOT NULL, -- of a row whose stanza was sent to the session
    generation INTEGER NOT NULL,
    PRIMARY KEY (generation, kind, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX temp.under_way_by_row ON under_way (kind, id);
CREATE TEMPORARY TABLE asked (
    number INTEGER PRIMARY KEY AUTOINCREMENT, -- of the request, a part of its id
    generation INTEGER NOT NULL UNIQUE,
    hash TEXT, -- announced capabilities (XEP-0115): all three, or none
    node TEXT,
    ver TEXT,
    by_node INTEGER NOT NULL, -- the request names the node
    times INTEGER NOT NULL DEFAULT 0, -- number of requests
    due REAL -- service seconds: when to ask again
) STRICT;
CREATE INDEX temp.asked_due ON asked (due) WHERE due IS NOT NULL;
CREATE TEMPORARY TABLE capabilities (
    hash TEXT NOT NULL,
    ver TEXT NOT NULL,
    qos TEXT NOT NULL, -- namespace of the supported quality of service, '' for none
    used INTEGER NOT NULL UNIQUE, -- rises with each use
    PRIMARY KEY (hash, ver)
) STRICT, WITHOUT ROWID;
CREATE TEMPORARY TABLE notices (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    since REAL NOT NULL, -- service seconds: begin of the present minute
    events INTEGER NOT NULL -- sent in it
) STRICT;
CREATE TEMPORARY TABLE folded (
    kind TEXT NOT NULL, -- of the event
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    topic TEXT NOT NULL,
    tags TEXT NOT NULL, -- a JSON object
    count INTEGER NOT NULL, -- occurrences since the last log
    last REAL NOT NULL, -- service seconds
    due REAL NOT NULL, -- service seconds from which it may be logged
    PRIMARY KEY (kind, name, source, topic, tags)
) STRICT;
CREATE TEMPORARY TABLE fullness (
    one INTEGER PRIMARY KEY CHECK (one = 1), -- the database has no room for new messages
    since REAL NOT NULL -- service seconds
) STRICT;
CREATE TEMPORARY TABLE commands (
    number INTEGER PRIMARY KEY, -- rises; the lowest is the oldest
    id TEXT NOT NULL UNIQUE, -- the sessionid of XEP-0050
    generation INTEGER NOT NULL, -- the session that began it
    node TEXT NOT NULL, -- the command
    since REAL NOT NULL -- service seconds
) STRICT;
CREATE INDEX temp.commands_by_session ON commands (generation);
CREATE TEMPORARY TABLE returns (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    due REAL -- service seconds until which earlier sessions may return; NULL afterwards
) STRICT;
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
"""
