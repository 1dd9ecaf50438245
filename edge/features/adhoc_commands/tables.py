"""The temporary table of ad-hoc commands."""

from edge.engine.store.tables import Tables

TABLES = Tables(
    temporary="""
CREATE TEMPORARY TABLE commands (
    number INTEGER PRIMARY KEY, -- rises; the lowest is the oldest
    id TEXT NOT NULL UNIQUE, -- the sessionid of XEP-0050
    generation INTEGER NOT NULL, -- the session that began it
    command TEXT NOT NULL,
    since REAL NOT NULL -- service seconds
) STRICT;
CREATE INDEX temp.commands_by_session ON commands (generation);
""",
)
