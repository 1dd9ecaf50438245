"""From the reports' rows to what people and programs read: a page, CSV and JSON. Knows no Spark."""
