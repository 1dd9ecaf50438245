"""Counts of the connections and sessions of MQTT since the start."""

from __future__ import annotations

from edge.server.mqtt.session import MqttSession
from edge.server.registry import Registry


class Traffic:
    """The numbers of packets of all types and their bytes, and the most sessions at one time.

    Attributes:
        registries: those of all listeners.
    """

    __slots__ = (
        "bytes_received", "bytes_sent", "most_sessions", "received", "registries", "sent",
    )  # fmt: skip

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.most_sessions = 0
        self.registries: list[Registry[MqttSession]] = []

    def note_session(self) -> None:
        """Record that a session has begun."""
        sessions = sum(len(registry.sessions()) for registry in self.registries)
        self.most_sessions = max(self.most_sessions, sessions)
