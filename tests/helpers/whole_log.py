"""Read the whole event log of a gateway: its own events and the segments that have landed."""

from __future__ import annotations

from pathlib import Path

from edge.ops.data import events
from sync.common.fleet_folder import FleetFolder
from sync.segment import Event, Identity, SegmentError, decode
from tests.helpers.fleet import GATEWAY, landed


def read_log(gateway: Path, fleet: FleetFolder) -> tuple[dict[str, dict[int, Event]], list[str]]:
    """Read the gateway's log, by lane and number, from its database and the segments that landed.

    Return it, and what is wrong: an event that differs between the two, another epoch, or a gap.
    """
    log: dict[str, dict[int, Event]] = {}
    own = [(entry.epoch, entry.lane, entry.event) for entry in events.read(gateway)]
    shipped = [
        (*name[1:3], event)
        for name, data in segments(fleet).items()
        if name.gateway == GATEWAY
        for event in decode(data).events
    ]
    wrong = []
    for _epoch, lane, event in own + shipped:
        if log.setdefault(lane, {}).setdefault(event.seq, event) != event:
            wrong.append(f"event {event.seq} of lane {lane} is two different events")
    epochs = {epoch for epoch, _lane, _event in own + shipped}
    if len(epochs) > 1:
        wrong.append(f"there are {len(epochs)} epochs")
    for lane, entries in log.items():
        if sorted(entries) != list(range(1, len(entries) + 1)):
            wrong.append(f"lane {lane} is not 1 to {len(entries)}")
    return log, wrong


def segments(fleet: FleetFolder) -> dict[Identity, bytes]:
    """Return the segments that have landed. Raises SegmentError if one is not whole."""
    found = landed(fleet)
    for name, data in found.items():
        if decode(data).header.identity != name:
            raise SegmentError("identity", f"{name} is another segment")
    return found
