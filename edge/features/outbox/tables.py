"""The usage of outboxes and of dead letters."""

from edge.engine.store.tables import Tables

TABLES = Tables(
    totals={
        ("outbox_messages", "outbox_bytes"): "SELECT count(*), coalesce(sum(bytes), 0) FROM outbox",
        ("dead_messages", "dead_bytes"): "SELECT messages, bytes FROM dead_total",
    },
    largest={
        ("outbox_messages_per_account", "outbox_bytes_per_account"): """
SELECT name, sum(messages), sum(bytes) FROM (
    SELECT recipient AS name, count(*) AS messages, sum(bytes) AS bytes FROM held
    WHERE recipient IS NOT NULL GROUP BY recipient
    UNION ALL
    SELECT a.name, count(*), sum(o.bytes) FROM outbox AS o JOIN accounts AS a ON a.id = o.account
    GROUP BY o.account
) GROUP BY name
""",
        ("outbox_messages_per_source", "outbox_bytes_per_source"): """
SELECT source, count(*), sum(bytes) FROM outbox GROUP BY source
""",
    },
    waiting={
        "outbox": "SELECT count(*) FROM outbox",
        "dead": "SELECT messages FROM dead_total",
        "in_doubt": "SELECT count(*) FROM dead WHERE state = 'in doubt'",
    },
    waiting_by_account={
        "outbox": """
SELECT a.name, count(*) FROM outbox AS o JOIN accounts AS a ON a.id = o.account
GROUP BY o.account
""",
    },
    by_session="""
SELECT full, sum(sent = 0), sum(sent) FROM (
    SELECT CASE state WHEN 'queued' THEN only ELSE session END AS full, state <> 'queued' AS sent
    FROM outbox
) WHERE full IS NOT NULL GROUP BY full
""",
    latest="SELECT since FROM outbox ORDER BY id DESC LIMIT 1",
)
