"""The usage of the offline store."""

from edge.engine.store.tables import Tables

TABLES = Tables(
    totals={
        ("offline_total_messages", "offline_total_bytes"): """
SELECT messages, bytes FROM offline_total
""",
    },
    largest={
        ("offline_messages", "offline_bytes"): """
SELECT (SELECT a.name FROM accounts AS a WHERE a.id = o.account), count(*), sum(o.bytes)
FROM offline AS o GROUP BY o.account
""",
        ("offline_messages_per_source", "offline_bytes_per_source"): """
SELECT source, count(*), sum(bytes) FROM offline GROUP BY source
""",
    },
    waiting={"offline": "SELECT messages FROM offline_total"},
    waiting_by_account={
        "offline": """
SELECT a.name, count(*) FROM offline AS o JOIN accounts AS a ON a.id = o.account
GROUP BY o.account
""",
    },
    latest="SELECT since FROM offline ORDER BY id DESC LIMIT 1",
)
