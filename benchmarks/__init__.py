"""Benchmarks of the gateway and the centre: `python -m benchmarks`, or `make bench`."""
