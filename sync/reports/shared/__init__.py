"""Shared code of the reports: how a report is declared, computed and shown."""
