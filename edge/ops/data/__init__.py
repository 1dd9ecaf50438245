"""Stored nodes, queues, dead letters, events and payloads, and backups of all that is stored."""
