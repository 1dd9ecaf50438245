"""Custody: the receiving side of acknowledged and assured messages (XEP QoS)."""
