"""Simulated devices, and the sender half of quality of service for firmware written in Python."""
