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
        for kind in FAULTS[name].shows or (None,):
            for place in _places(plan, truth, name, kind):
                yield {
                    "fault": name,
                    "kind": kind,
                    "gateway": "" if kind in OF_THE_FLEET else plan.name,
                    "subject": _subject(plan, name),
                    "place": place,
                    "from": iso(plan.settings.start + round(begin * 1000)),
                    "to": iso(plan.settings.start + round(end * 1000)),
                    "clock_from": iso(plan.clock.wall(begin)),
                    "clock_to": iso(plan.clock.wall(end)),
                    "size": _size(plan, name),
                    "detail": FAULTS[name].about,
                }


def _places(
    plan: Plan, truth: GatewayTruth, fault: str, kind: str | None
) -> Iterator[dict[str, str]]:
    """Generate, for each problem of a fault, the report's columns that locate it (`epoch`, ...)."""
    first = plan.life.runs[0].epoch
    if fault == "clone":
        lanes = ((each, lane) for each, lane in sorted(truth.lanes.items()) if lane.forks)
        yield from ({"epoch": epoch, "lane": lane} for (epoch, lane), _ in lanes)
    elif kind in ("unexplained", "declared"):
        yield {"epoch": first, "lane": _READINGS}
    elif kind == "torn":
        yield {"epoch": first}
    elif fault.startswith("sensor"):
        sort = SORTS[SUBJECT]
        yield {"source": _device(plan), "sensor": f"{topic(sort)} {sort.name}"}
    elif fault.startswith("queue"):
        yield {"queue": QUEUE}
    elif fault == "refusals":
        yield {"source": refused(plan), "rule": RULE}
    elif fault == "repeats":
        yield {"source": refused(plan)}
    elif fault == "version-errors":
        yield {"version": FAULTY}
    else:
        yield {}


def _device(plan: Plan) -> str:
    return device(plan, SUBJECT).partition("/")[0]


def _size(plan: Plan, fault: str) -> float | None:
    """Return a fault's size: seconds of a step, ppm of a drift, or bytes of growth per day."""
    if fault in ("clock-years", "clock-step"):
        return plan.clock.steps[0][1]
    if fault == "clock-drift":
        return plan.clock.drift * 1e6
    return float(daily_growth(plan.settings.days)) if fault == "disk-full" else None


def _subject(plan: Plan, fault: str) -> str:
    """Return the subject of a fault: a lane, device, queue, version, or the gateway."""
    if fault.startswith("sensor"):
        return _device(plan)
    named = {
        "gap": _READINGS,
        "evictions": _READINGS,
        "refusals": refused(plan),
        "repeats": refused(plan),
        "queue-stuck": QUEUE,
        "queue-dead": QUEUE,
        "version-errors": FAULTY,
    }
    return named.get(fault, plan.name)
