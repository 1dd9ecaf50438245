"""The temporary tables of the gateway's own connection: what ends with the process.

What lasts stands in `migrations`; a command beside the gateway does not see what is here.
"""

from __future__ import annotations

from typing import Final

TABLES: Final = """
CREATE TEMPORARY TABLE sessions (
    generation INTEGER PRIMARY KEY,
    full TEXT NOT NULL UNIQUE,
    bare TEXT NOT NULL,
    account TEXT NOT NULL,
    grant INTEGER, -- that of the account at its log-in; NULL if that was to another server
    available INTEGER NOT NULL DEFAULT 0, -- has sent initial presence (RFC 6121, section 4.2)
    priority INTEGER NOT NULL DEFAULT 0,
    presence BLOB, -- the last one that it broadcast
    interested INTEGER NOT NULL DEFAULT 0, -- has asked for its roster
    detached INTEGER NOT NULL DEFAULT 0, -- waits to be resumed (XEP-0198)
    qos TEXT -- the namespace in which it takes quality of service, '' for none, NULL if not known
) STRICT;
CREATE INDEX temp.sessions_by_bare ON sessions (bare);
CREATE TEMPORARY TABLE directed (
    generation INTEGER NOT NULL,
    target TEXT NOT NULL, -- whom the session sent presence to of its own
    PRIMARY KEY (generation, target)
) STRICT, WITHOUT ROWID;
CREATE TEMPORARY TABLE under_way (
    kind TEXT NOT NULL,
    id INTEGER NOT NULL, -- of a row that was handed to a session
    generation INTEGER NOT NULL,
    PRIMARY KEY (generation, kind, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX temp.under_way_by_row ON under_way (kind, id);
CREATE TEMPORARY TABLE asked (
    number INTEGER PRIMARY KEY AUTOINCREMENT, -- of the question, in its id
    generation INTEGER NOT NULL UNIQUE,
    hash TEXT, -- what its presence announced (XEP-0115): all three, or none
    node TEXT,
    ver TEXT,
    by_node INTEGER NOT NULL, -- the question names the node
    times INTEGER NOT NULL DEFAULT 0, -- how often it was asked
    due REAL -- service seconds: when the answer is late
) STRICT;
CREATE INDEX temp.asked_due ON asked (due) WHERE due IS NOT NULL;
CREATE TEMPORARY TABLE capabilities (
    hash TEXT NOT NULL,
    ver TEXT NOT NULL,
    qos TEXT NOT NULL, -- the namespace in which quality of service is taken, '' for none
    used INTEGER NOT NULL UNIQUE, -- the highest was used last
    PRIMARY KEY (hash, ver)
) STRICT, WITHOUT ROWID;
CREATE TEMPORARY TABLE notices (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    since REAL NOT NULL, -- service seconds: when the present minute began
    events INTEGER NOT NULL -- told in it
) STRICT;
CREATE TEMPORARY TABLE folded (
    kind TEXT NOT NULL, -- of the event that tells it
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    topic TEXT NOT NULL,
    tags TEXT NOT NULL, -- a JSON object
    count INTEGER NOT NULL, -- how often since it was told last
    last REAL NOT NULL, -- service seconds
    due REAL NOT NULL, -- service seconds from which on it may be told
    PRIMARY KEY (kind, name, source, topic, tags)
) STRICT;
CREATE TEMPORARY TABLE fullness (
    one INTEGER PRIMARY KEY CHECK (one = 1), -- the database has no room for new messages
    since REAL NOT NULL -- service seconds
) STRICT;
CREATE TEMPORARY TABLE commands (
    number INTEGER PRIMARY KEY, -- rises: the lowest was begun first
    id TEXT NOT NULL UNIQUE, -- what both sides call it (XEP-0050: the session's)
    generation INTEGER NOT NULL, -- the session that has begun it
    node TEXT NOT NULL, -- which command it is
    since REAL NOT NULL -- service seconds
) STRICT;
CREATE INDEX temp.commands_by_session ON commands (generation);
CREATE TEMPORARY TABLE returns (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    due REAL -- service seconds until which sessions of before may come back; NULL when it is over
) STRICT;
CREATE TEMPORARY TABLE queue_members (
    subscription INTEGER NOT NULL,
    generation INTEGER NOT NULL, -- a session that the subscription may be served by
    queue INTEGER NOT NULL,
    full TEXT NOT NULL, -- its full JID
    bare INTEGER NOT NULL, -- the subscription is of the account: by any session that is available
    needs INTEGER NOT NULL, -- quality of service (1), or none (0)
    plain INTEGER NOT NULL, -- its account takes plain messages instead
    locks INTEGER NOT NULL, -- what it has is locked, and so counted by that
    capacity INTEGER NOT NULL, -- how many items the subscription takes at a time
    in_flight INTEGER NOT NULL, -- how many it has, by all its sessions
    mine INTEGER NOT NULL, -- of those, how many by this one
    bytes INTEGER NOT NULL, -- of all
    free INTEGER NOT NULL, -- it has room for one more
    stalled INTEGER NOT NULL DEFAULT 0, -- it had none elsewhere, and is tried again later
    turn INTEGER NOT NULL, -- of its last item: the lowest is idle for longest
    PRIMARY KEY (subscription, generation)
) STRICT, WITHOUT ROWID;
CREATE INDEX temp.queue_members_free ON queue_members (queue, in_flight, mine, turn) WHERE free = 1;
CREATE INDEX temp.queue_members_turn ON queue_members (queue, turn);
CREATE INDEX temp.queue_members_stalled ON queue_members (subscription) WHERE stalled = 1;
CREATE INDEX temp.queue_members_needing ON queue_members (queue) WHERE needs = 1;
CREATE INDEX temp.queue_members_by_session ON queue_members (generation);
CREATE TEMPORARY TABLE queue_work (
    queue INTEGER PRIMARY KEY,
    delivered INTEGER NOT NULL, -- items given to members since the centre was told last
    redelivered INTEGER NOT NULL, -- of those, that were given before
    timeouts INTEGER NOT NULL -- locks whose time was over
) STRICT;
CREATE TEMPORARY TABLE share_items (
    looked INTEGER PRIMARY KEY CHECK (looked = 1) -- what the last process left is taken back
) STRICT;
"""
"""Who is there, what they have been handed and what they can do: it ends with the process."""
