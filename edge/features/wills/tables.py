"""The usage of wills."""

from edge.engine.store.tables import Tables

TABLES = Tables(totals={("will_bytes",): "SELECT coalesce(sum(bytes), 0) FROM wills"})
