"""Generate the events of the lane `readings`: temperatures, meters and doors.

Reports must not call the values anomalous, except during a simulated anomaly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from math import pi, sin
from operator import itemgetter
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from firmware_sim.fleet.faults import FAULTS
from firmware_sim.fleet.rows import Stream, event_at
from firmware_sim.fleet.settings import DAY_S

if TYPE_CHECKING:
    from firmware_sim.fleet.plan import Plan


class SensorType(NamedTuple):
    """A type of sensor: the name, unit and decimals of its values, and how these vary.

    Values vary by `swing` around `middle` during a day, plus or minus `noise`. The `middle` of
    sensors of one type varies by plus or minus `spread`. `grows` is the increase per hour.
    """

    name: str
    unit: str | None
    decimals: int
    middle: float
    swing: float
    noise: float
    spread: float
    grows: float = 0.0


TEMPERATURE: Final = SensorType("temperature", "Cel", 2, 18.0, 6.0, 0.4, 2.0)
SORTS: Final = (
    TEMPERATURE,
    TEMPERATURE,
    TEMPERATURE,
    SensorType("humidity", "%RH", 1, 55.0, 8.0, 1.5, 4.0),
    SensorType("pressure", "bar", 3, 2.4, 0.1, 0.02, 0.05),
    SensorType("energy", "kWh", 1, 5_000.0, 0.0, 0.0, 4_000.0, grows=1.7),
    SensorType("energy", "kWh", 1, 5_000.0, 0.0, 0.0, 4_000.0, grows=0.9),
    SensorType("door", None, 0, 0.0, 0.0, 0.0, 0.0),
)
"""The type of each sensor of a gateway. The value of the last is 1 if a door is open, else 0."""

SUBJECT: Final = 0
"""The index in `SORTS` of the only sensor that planned sensor faults affect."""

_JITTER: Final = 0.2  # the share by which an interval is shorter or longer
_UNHEARD: Final = 0.3  # the share of readings that a copy of a gateway does not hear
_SPIKE: Final = 60.0  # beyond its value, in its unit: ten times what a day brings
_DOORS: Final = 0.5  # the share of looks at a door between which it was opened or closed
_ASSURED, _ACKNOWLEDGED = 0.7, 0.9  # shares of readings, the second with the one before
_LATENCY: Final = (4.0, 0.6)  # of the logarithm of milliseconds in custody: mean and deviation


def device(plan: Plan, place: int) -> str:
    """Return the JID of the device with a sensor of the type `SORTS[place]`."""
    return f"{SORTS[place].name}-{place + 1}@{plan.name}/fw"


def topic(sort: SensorType) -> str:
    """Return the topic of the readings of a type of sensor."""
    return f"sensors/{sort.name}"


def readings(plan: Plan) -> Stream:
    """Generate all readings that reach the gateway, in order."""
    sensors = (_sensor(plan, place) for place in range(len(SORTS)))
    return merge(*sensors, key=itemgetter(0))


def _sensor(plan: Plan, place: int) -> Stream:
    sort = SORTS[place]
    dice = plan.chance(f"sensor {place}")
    source, about = device(plan, place), topic(sort)
    scale = 10**sort.decimals
    value = _door(dice) if sort.name == "door" else _value(plan, place, dice)
    for moment in _moments(plan, place, dice):
        qos, latency = _delivery(dice)
        yield event_at(
            plan,
            moment,
            "reading",
            sort.name,
            source=source,
            topic=about,
            value=round(value(moment) * scale) / scale,
            unit=sort.unit,
            qos=qos,
            latency_ms=latency,
        )


def _moments(plan: Plan, place: int, dice: Random) -> Iterator[float]:
    """Return the moments at which a sensor sends; all sensors send about equally often."""
    silent = plan.window("sensor-silent") if place == SUBJECT else None
    end = silent[0] if silent else plan.settings.length
    interval = DAY_S * len(SORTS) / plan.settings.readings
    moment = dice.uniform(0, interval)
    for run in plan.life.runs:
        while moment < run.on:
            moment += interval
        last = min(run.off, end)
        while moment < last:
            if moment < plan.copied or dice.random() > _UNHEARD:
                yield moment
            moment += interval * dice.uniform(1 - _JITTER, 1 + _JITTER)


def _value(plan: Plan, place: int, dice: Random) -> Callable[[float], float]:
    sort = SORTS[place]
    middle = sort.middle + dice.uniform(-sort.spread, sort.spread)
    phase, noise = dice.uniform(-0.1, 0.1), sort.noise

    def value(moment: float) -> float:
        at = _frozen(plan, place, moment)
        day = sort.swing * sin(2 * pi * at / DAY_S + phase)
        odd = _SPIKE if place == SUBJECT and plan.within("sensor-anomaly", at) else 0.0
        grown = sort.grows * at / 3_600
        return middle + day + grown + odd + (dice.uniform(-noise, noise) if at == moment else 0.0)

    return value


def _frozen(plan: Plan, place: int, moment: float) -> float:
    """Return the moment whose value the sensor sends: constant during the fault `sensor-flat`."""
    if place == SUBJECT and plan.within("sensor-flat", moment):
        return FAULTS["sensor-flat"].begin * plan.settings.length
    return moment


def _door(dice: Random) -> Callable[[float], float]:
    is_open = False

    def value(_moment: float) -> float:
        nonlocal is_open
        is_open ^= dice.random() < _DOORS
        return float(is_open)

    return value


def _delivery(dice: Random) -> tuple[int, int]:
    """Return a random quality of service level, and milliseconds in custody."""
    kind = dice.random()
    if kind < _ASSURED:
        return 2, int(dice.lognormvariate(*_LATENCY))
    return (1, int(20 * dice.random())) if kind < _ACKNOWLEDGED else (0, 0)
