"""The temporary table of presence and the usage of rosters."""

from edge.engine.tables import Tables

TABLES = Tables(
    temporary="""
CREATE TEMPORARY TABLE directed (
    generation INTEGER NOT NULL,
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
