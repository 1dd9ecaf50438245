"""The temporary tables of service discovery."""

from edge.engine.store.tables import Tables

TABLES = Tables(
    temporary="""
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
""",
)
