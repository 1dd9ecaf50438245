"""Events of a simulated gateway before they get their sequence numbers, and streams of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from sync.segment import Event

if TYPE_CHECKING:
    from firmware_sim.fleet.plan import Plan

Timed = tuple[float, Event]
"""A true moment, in seconds since the simulation began, and the event at this moment (`seq` 0)."""

Stream = Iterator[Timed]
"""Events with their true moments, earliest first."""


def event_at(plan: Plan, moment: float, kind: str, name: str, **fields: Any) -> Timed:
    """Return an event at a true moment, dated by the gateway's clock; `fields` are of `Event`."""
    clock = plan.clock
    event = Event(0, clock.wall(moment), clock.synchronised(moment), kind, name=name, **fields)
    return moment, event


def numbered(first: int, events: Iterable[Event]) -> list[Event]:
    """Return the events with the sequence numbers from `first` on."""
    return [event._replace(seq=seq) for seq, event in enumerate(events, first)]
