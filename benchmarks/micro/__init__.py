"""Measurements of single functions, by pytest-benchmark."""
