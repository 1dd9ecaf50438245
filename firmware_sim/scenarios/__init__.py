"""Test scenarios with many simulated devices at a gateway, and their verdicts."""
