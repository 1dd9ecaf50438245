"""Spark ingest: read landed segments into the tables."""
