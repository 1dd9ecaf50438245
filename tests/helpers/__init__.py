"""Shared code of tests: real servers and clients on loopback, never fakes of our own code."""
