"""The usage of wills."""

from edge.engine.store.tables import Tables

TABLES = Tables(
    totals={("will_bytes",): "SELECT coalesce(sum(bytes), 0) FROM wills"},
    largest={
        ("will_bytes_per_account",): """
SELECT a.name, sum(w.bytes) FROM wills AS w JOIN accounts AS a ON a.id = w.account
GROUP BY w.account
"""
    },
)
