"""The usage of custody."""

from edge.engine.store.tables import Tables

TABLES = Tables(
    totals={
        ("held_messages", "held_bytes"): "SELECT count(*), coalesce(sum(bytes), 0) FROM held",
    },
    largest={
        ("held_messages_per_source", "held_bytes_per_source"): """
SELECT source, count(*), sum(bytes) FROM held GROUP BY source
""",
        ("released_keys",): """
SELECT source, sum(keys) FROM (
    SELECT source, length(keys) / 8 AS keys FROM released_latest -- 8 bytes of a key
    UNION ALL SELECT source, sum(length(keys)) / 8 FROM released_pages GROUP BY source
    UNION ALL SELECT source, count(*) FROM custody WHERE released IS NOT NULL GROUP BY source
) GROUP BY source
""",
    },
    waiting={"held": "SELECT count(*) FROM held"},
    waiting_by_account={"held": "SELECT source, count(*) FROM held GROUP BY source"},
    latest="SELECT since FROM held ORDER BY id DESC LIMIT 1",
)
