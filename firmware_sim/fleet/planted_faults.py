"""List the simulated faults: for each, the problem that a report must show, its place and time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from firmware_sim.fleet.faults import FAULTS, OF_THE_FLEET
from firmware_sim.fleet.plan import FAULTY, Plan
from firmware_sim.fleet.sealing import daily_growth
from firmware_sim.fleet.sensors import SORTS, SUBJECT, device, topic
from firmware_sim.fleet.system_events import QUEUE, RULE
from firmware_sim.fleet.system_events import subject as refused
from firmware_sim.fleet.times import iso

if TYPE_CHECKING:
    from firmware_sim.fleet.truth import GatewayTruth

_READINGS: Final = "readings"


def planted(plan: Plan, truth: GatewayTruth) -> Iterator[dict[str, Any]]:
    """Generate the problems that a report must show for a gateway's faults.

    A fault that reports do not show has `kind` None. A copied card (`clone`) is one problem in
    each lane with contradicting segments.
    """
    for name in plan.faults:
        begin, end = plan.window(name) or (0.0, 0.0)
        subject, place = _place(plan, name)
        places = [place]
        if name == "clone":
            lanes = sorted(key for key, lane in truth.lanes.items() if lane.forks)
            places = [{"epoch": epoch, "lane": lane} for epoch, lane in lanes]
        for kind in _shown(name, plan.settings.days) or (None,):
            for place in places:
                yield {
                    "fault": name,
                    "kind": kind,
                    "gateway": "" if kind in OF_THE_FLEET else plan.name,
                    "subject": subject,
                    "place": place,
                    "from": iso(plan.settings.start + round(begin * 1000)),
                    "to": iso(plan.settings.start + round(end * 1000)),
                    "clock_from": iso(plan.clock.wall(begin)),
                    "clock_to": iso(plan.clock.wall(end)),
                    "size": _size(plan, name),
                    "detail": FAULTS[name].about,
                }


def _shown(fault: str, days: int) -> tuple[str, ...]:
    """Return the kinds of problems that a report of so many days must show for a fault.

    One day is too short for a trend of the storage, and for the hours that a flat line is compared
    with (the sensor may seem anomalous). At its end, events that a gateway dropped on it still mean
    that its storage is full.
    """
    shows = FAULTS[fault].shows
    if days > 1:
        return shows
    if fault in ("disk-full", "sensor-flat"):
        return ()
    return (*shows, "disk_full_soon") if fault == "evictions" else shows


def _place(plan: Plan, fault: str) -> tuple[str, dict[str, str]]:
    """Return a fault's subject, and the report's columns that locate it (`epoch`, ...)."""
    epoch, pump, sort = plan.life.runs[0].epoch, refused(plan), SORTS[SUBJECT]
    sensor = device(plan, SUBJECT).partition("/")[0]
    if fault.startswith("sensor"):
        return sensor, {"source": sensor, "sensor": f"{topic(sort)} {sort.name}"}
    places = {
        "gap": (_READINGS, {"epoch": epoch, "lane": _READINGS}),
        "evictions": (_READINGS, {"epoch": epoch, "lane": _READINGS}),
        "restored": (plan.name, {"epoch": epoch}),
        "queue-stuck": (QUEUE, {"queue": QUEUE}),
        "queue-dead": (QUEUE, {"queue": QUEUE}),
        "refusals": (pump, {"source": pump, "rule": RULE}),
        "repeats": (pump, {"source": pump}),
        "version-errors": (FAULTY, {"version": FAULTY}),
    }
    return places.get(fault, (plan.name, {}))


def _size(plan: Plan, fault: str) -> float | None:
    """Return a fault's size: seconds of a step, ppm of a drift, or bytes of growth per day."""
    if fault in ("clock-years", "clock-step"):
        return plan.clock.steps[0][1]
    if fault == "clock-drift":
        return plan.clock.drift * 1e6
    return float(daily_growth(plan.settings.days)) if fault == "disk-full" else None
