"""The temporary tables of presence and the usage of rosters."""

from edge.engine.store.tables import Tables

TABLES = Tables(
    temporary="""
CREATE TEMPORARY TABLE presences (
    generation INTEGER PRIMARY KEY REFERENCES sessions (generation) ON DELETE CASCADE,
    stanza BLOB NOT NULL -- the available presence that the session broadcast last
) STRICT;
CREATE TEMPORARY TABLE interested ( -- sessions that have requested their roster
    generation INTEGER PRIMARY KEY REFERENCES sessions (generation) ON DELETE CASCADE
) STRICT;
CREATE TEMPORARY TABLE directed (
    generation INTEGER NOT NULL REFERENCES sessions (generation) ON DELETE CASCADE,
    target TEXT NOT NULL, -- recipient of directed presence
    PRIMARY KEY (generation, target)
) STRICT, WITHOUT ROWID;
""",
    largest={
        ("roster_items",): """
SELECT a.name, count(*) FROM roster AS r JOIN accounts AS a ON a.id = r.account
WHERE r.listed = 1 GROUP BY r.account
""",
    },
)
