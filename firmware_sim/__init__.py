"""Simulated devices, and both halves of quality of service for firmware written in Python."""
