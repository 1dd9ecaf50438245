"""The faults that can be simulated in a fleet, and the problems that reports must show for each.

Each fault affects one gateway, or as many as are asked for, except `version-errors`, which affects
all gateways with the software version `plan.FAULTY`. Two faults share a gateway only if their
groups differ and there are more faults than gateways. The modules that call `Plan.window` implement
the faults.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that is active from `begin` to `end`, as fractions (0 to 1) of the simulated time.

    `about` is its description. Two faults of one `group` never affect the same gateway; a fault
    that is `alone` shares its gateway with no other fault. `shows` are the kinds of problems that
    the report must show for this gateway, or for the fleet if they are in `OF_THE_FLEET`.
    """

    about: str
    group: str
    begin: float
    end: float
    shows: tuple[str, ...] = ()
    alone: bool = False


FAULTS: Final[dict[str, Fault]] = {
    "clock-years": Fault(
        "the clock of the gateway is years behind and unsynchronised; then it is set",
        "time",
        0.0,
        0.4,
        ("clock_unsynchronised", "misdated"),
        alone=True,
    ),
    "clock-step": Fault(
        "the clock of the gateway is set forward by a quarter of an hour",
        "time",
        0.5,
        0.5,
        ("clock_step",),
    ),
    "clock-unsynchronised": Fault(
        "the clock of the gateway is not synchronised", "time", 0.3, 0.9, ("clock_unsynchronised",)
    ),
    "clock-drift": Fault("the clock of the gateway drifts", "time", 0.0, 1.0, ("clock_drift",)),
    "outage": Fault(
        "a power cut lasts for hours", "time", 0.45, 0.5, ("outage", "unclean_restart"), alone=True
    ),
    "unclean-restart": Fault(
        "the gateway crashes and starts again", "time", 0.6, 0.6, ("unclean_restart",)
    ),
    "silent": Fault(
        "the gateway fails and sends nothing more", "time", 0.8, 1.0, ("silent",), alone=True
    ),
    "restored": Fault(
        "a backup is restored, and a new epoch begins", "time", 0.55, 0.55, ("torn",), alone=True
    ),
    "gap": Fault("segments of readings never arrive", "chain", 0.35, 0.4, ("unexplained",)),
    "evictions": Fault(
        "the backlog is full, and readings are dropped and reported as lost",
        "chain",
        0.3,
        0.45,
        ("declared",),
    ),
    "clone": Fault("a second gateway runs from a copy of the card", "chain", 0.5, 0.75, ("fork",)),
    "duplicates": Fault("segments arrive twice", "chain", 0.1, 0.9),
    "corrupt": Fault(
        "damaged copies of segments arrive before the intact ones",
        "chain",
        0.2,
        0.8,
        ("bad_segment",),
    ),
    "minor-version": Fault("some segments are of a newer minor version", "chain", 0.2, 0.8),
    "queue-stuck": Fault(
        "no worker takes the items of a queue", "signs", 0.3, 1.0, ("queue_stuck",)
    ),
    "queue-dead": Fault("items of a queue become dead", "signs", 0.2, 0.8, ("queue_dead",)),
    "sensor-silent": Fault(
        "a sensor sends no more readings", "signs", 0.6, 1.0, ("sensor_silent",)
    ),
    "sensor-flat": Fault(
        "a sensor always sends the same value", "signs", 0.3, 1.0, ("sensor_flat",)
    ),
    "sensor-anomaly": Fault(
        "a sensor sends implausible values", "signs", 0.7, 0.8, ("sensor_anomaly",)
    ),
    "refusals": Fault(
        "requests of a device are refused repeatedly", "signs", 0.7, 0.95, ("refusals",)
    ),
    "repeats": Fault("a device repeats its offers", "signs", 0.2, 0.9, ("repeats",)),
    "version-errors": Fault(
        "a software version logs many errors", "fleet", 0.6, 1.0, ("version_errors",)
    ),
    "disk-full": Fault(
        "the folder of the gateway grows to its limit", "disk", 0.0, 1.0, ("disk_full_soon",)
    ),
}
"""All faults, by their names in `--faults`."""

OF_THE_FLEET: Final = ("bad_segment", "version_errors")
"""The kinds of problems that reports show without a gateway, because a damaged file does not always
name its gateway, and many gateways have the same version."""


def spread(
    faults: Iterable[str], gateways: int, seed: int, per_fault: int = 1
) -> list[tuple[str, ...]]:
    """Return the faults of each gateway, distributed evenly; omit those for which none is free."""
    order = list(range(gateways))
    random.Random(f"{seed}/faults").shuffle(order)  # noqa: S311 - repeatable
    placed: list[list[str]] = [[] for _ in range(gateways)]
    chosen = [name for name in FAULTS if name in set(faults)]
    chosen *= per_fault
    for name in sorted(chosen, key=lambda name: not FAULTS[name].alone):  # they need a free one
        free = [at for at in order if not placed[at]]
        free = free or [at for at in order if _is_compatible(name, placed[at])]
        if free:
            placed[min(free, key=lambda at: len(placed[at]))].append(name)
    return [tuple(names) for names in placed]


def _is_compatible(name: str, others: list[str]) -> bool:
    fault = FAULTS[name]
    return not any(
        fault.alone or FAULTS[other].alone or FAULTS[other].group == fault.group for other in others
    )
