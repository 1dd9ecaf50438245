"""Presentation of the reports: HTML pages, plots, CSV and JSON."""
