"""The temporary table and the usage of the event log's segments."""

from edge.engine.store.tables import Tables

TABLES = Tables(
    temporary="""
CREATE TEMPORARY TABLE notices (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    since REAL NOT NULL, -- service seconds: begin of the present minute
    events INTEGER NOT NULL -- sent in it
) STRICT;
""",
    totals={
        ("backlog_bytes",): "SELECT coalesce(sum(bytes), 0) FROM segments WHERE state = 'waiting'",
        ("recent_bytes",): """
SELECT coalesce(sum(bytes), 0) FROM segments WHERE state = 'acknowledged'
""",
    },
    waiting={"segments": "SELECT count(*) FROM segments WHERE state = 'waiting'"},
)
