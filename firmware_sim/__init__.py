"""Simulated devices, and a firmware library with quality of service."""
