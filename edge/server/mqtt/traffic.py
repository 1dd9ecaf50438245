"""Counts of what the connections of a listener have received and sent since its start."""

from __future__ import annotations


class Traffic:
    """The numbers of packets of all types, and their bytes."""

    __slots__ = ("bytes_received", "bytes_sent", "received", "sent")

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
        self.bytes_received = 0
        self.bytes_sent = 0
