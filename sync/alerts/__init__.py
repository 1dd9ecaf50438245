"""Alerts about problems in the fleet, raised within minutes after the ingest, without Spark."""
