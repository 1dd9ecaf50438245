"""The temporary table of subscriptions and the usage of publish-subscribe."""

from edge.engine.store.tables import Tables

TABLES = Tables(
    temporary="""
CREATE TEMPORARY TABLE returns (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    due REAL -- service seconds until which earlier sessions may return; NULL afterwards
) STRICT;
""",
    totals={
        ("items", "items_bytes"): "SELECT items, bytes FROM items_total",
        ("nodes",): "SELECT count(*) FROM nodes",
        ("subscriptions",): "SELECT count(*) FROM subscriptions",
    },
    largest={
        ("nodes_per_account",): "SELECT owner, count(*) FROM nodes GROUP BY owner",
        ("affiliations",): """
SELECT n.name, count(*) FROM affiliations AS f JOIN nodes AS n ON n.id = f.node GROUP BY f.node
""",
        ("subscriptions_per_account",): """
SELECT a.name, count(*) FROM subscriptions AS s JOIN accounts AS a ON a.id = s.account
GROUP BY s.account
""",
        ("items_per_source", "items_bytes_per_source"): """
SELECT source, items, bytes FROM item_sources
""",
        ("items_per_node",): "SELECT name, items FROM nodes",
    },
)
