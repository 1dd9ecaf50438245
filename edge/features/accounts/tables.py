"""The temporary table of accounts."""

from edge.engine.store.tables import Tables

TABLES = Tables(
    temporary="""
CREATE TEMPORARY TABLE seen (
    account TEXT PRIMARY KEY, -- a session of it began or ended since the last heartbeat
    wall INTEGER NOT NULL -- and when, in ms since 1970 UTC
) STRICT, WITHOUT ROWID;
""",
)
