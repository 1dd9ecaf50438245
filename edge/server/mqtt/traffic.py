"""Counts of the connections and sessions of MQTT since the start, and their load averages."""

from __future__ import annotations

from math import exp
from typing import Any, Final

from edge.server.registry import Registry

COUNTED: Final = {
    "messages/received": "received",
    "messages/sent": "sent",
    "publish/received": "publications_received",
    "publish/sent": "publications_sent",
    "bytes/received": "bytes_received",
    "bytes/sent": "bytes_sent",
    "connections": "begun_sessions",
    "sockets": "connections",
}
"""The attribute of `Traffic` for each name of an average."""

MINUTES: Final = (1, 5, 15)


class Traffic:
    """The numbers of packets of all types and their bytes, of publications, of connections and
    sessions, and the most sessions at one time.

    Attributes:
        registries: those of all listeners.
    """

    __slots__ = (
        "begun_sessions", "bytes_received", "bytes_sent", "connections", "most_sessions",
        "publications_received", "publications_sent", "received", "registries", "sent",
    )  # fmt: skip

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
        self.publications_received = 0
        self.publications_sent = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.connections = 0
        self.begun_sessions = 0
        self.most_sessions = 0
        self.registries: list[Registry[Any]] = []

    def note_session(self) -> None:
        """Record that a session has begun."""
        self.begun_sessions += 1
        sessions = sum(len(registry.sessions()) for registry in self.registries)
        self.most_sessions = max(self.most_sessions, sessions)


class LoadAverages:
    """Moving averages of counts per minute with exponential weights, as mosquitto makes them.

    Args:
        now: the event loop's time.

    Attributes:
        values: the averages by name, such as `bytes/sent/5min`.
    """

    def __init__(self, traffic: Traffic, now: float) -> None:
        self._traffic = traffic
        self._updated = now
        self._counts = dict.fromkeys(COUNTED, 0)
        self.values = {f"{name}/{minutes}min": 0.0 for name in COUNTED for minutes in MINUTES}

    def update(self, now: float) -> None:
        """Add what was counted since the last update."""
        seconds, self._updated = max(now - self._updated, 1e-3), now
        for name, attribute in COUNTED.items():
            count: int = getattr(self._traffic, attribute)
            rate = (count - self._counts[name]) * 60 / seconds
            self._counts[name] = count
            for minutes in MINUTES:
                key = f"{name}/{minutes}min"
                self.values[key] = rate + exp(-seconds / (60 * minutes)) * (self.values[key] - rate)
