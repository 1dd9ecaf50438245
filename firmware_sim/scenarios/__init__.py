"""Runs of many simulated devices, one scenario a module."""
