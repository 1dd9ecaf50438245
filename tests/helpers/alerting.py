"""Create events and segments of gateways for tests of the alerts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sync.alerts.state import Event, FleetState, Segment, add_arrival, add_event, add_segment

GATEWAY = "gw.example"
EPOCH = "01JD0000000000000000000000"
NOON = 1_763_726_400_000
"""2025-11-21 12:00:00 UTC, in milliseconds."""

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
USUAL_MS = 2_000
"""Usual time from sealing to arrival, in milliseconds."""


@dataclass
class GatewayEvents:
    """A gateway whose events are added to the state, one segment of a lane for each batch.

    `delay` (ms) is the time from sealing to arrival, `ahead` (ms) how far its clock is ahead.
    """

    gateway: str = GATEWAY
    epoch: str = EPOCH
    delay: int = USUAL_MS
    ahead: int = 0
    last: dict[str, int] = field(default_factory=dict)

    def segment(
        self, lane: str, events: Iterable[tuple[int, dict[str, Any]]]
    ) -> tuple[Segment, list[Event]]:
        """Make a segment of events, given by their true times and further fields."""
        event_list = []
        rows = list(events)
        first = self.last.get(lane, 0) + 1
        arrived = rows[-1][0] + self.delay
        for seq, (at, fields) in enumerate(rows, first):
            unset = dict.fromkeys(("source", "topic", "name", "value"))
            row = {**unset, "kind": "reading", "tags": {}, **fields}
            event_list.append(
                Event(
                    gateway=self.gateway,
                    epoch=self.epoch,
                    lane=lane,
                    seq=seq,
                    time=at + self.ahead,
                    arrived=arrived,
                    **row,
                )
            )
        self.last[lane] = last = first + len(rows) - 1
        sealed = rows[-1][0] + self.ahead
        return Segment(self.epoch, first, last, sealed, rows[-1][0] / 1000, arrived), event_list


def add_to_state(state: FleetState, segment: Segment, events: list[Event]) -> None:
    """Add a segment and its events to the state, as a batch of the tables does."""
    gateway = add_arrival(state, events[0].gateway, segment.arrived)
    assert gateway is not None
    add_segment(gateway, events[0].lane, segment)
    for event in events:
        add_event(gateway, event)


def heartbeat_event() -> dict[str, Any]:
    return {"kind": "system", "name": "heartbeat", "value": 60.0}


def system_event(name: str) -> dict[str, Any]:
    return {"kind": "system", "name": name}


def depth_event(
    items: int, delivered: int = 0, delayed: int = 0, queue: str = "jobs"
) -> dict[str, Any]:
    tags = {"delivered": str(delivered), "delayed": str(delayed), "members": "2"}
    return {"kind": "queue", "name": "depth", "topic": queue, "value": float(items), "tags": tags}


def refusal_event(
    times: int, rule: str = "rate", source: str = "pump@gw.example"
) -> dict[str, Any]:
    return {"kind": "limit", "name": rule, "source": source, "value": float(times)}


def reading_event(
    sensor: str = "temperature", source: str = "probe@gw.example/fw"
) -> dict[str, Any]:
    return {"source": source, "topic": "cellar", "name": sensor, "value": 20.5}
