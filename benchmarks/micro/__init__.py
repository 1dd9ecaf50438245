"""Micro benchmarks of single functions, by pytest-benchmark."""
