"""What the gateway costs, measured: `python -m benchmarks`, or `make bench`."""
