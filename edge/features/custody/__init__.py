"""Custody: acknowledged and assured messages, as their receiver (XEP QoS)."""
