"""Scenarios with many simulated devices, one module for each, and their verdicts."""
