"""Generate the events of the lane `logs`: log entries of a gateway's devices."""

from __future__ import annotations

from random import Random
from typing import Final

from firmware_sim.fleet.plan import FAULTY, Plan
from firmware_sim.fleet.rows import Stream, Timed, event_at
from firmware_sim.fleet.settings import DAY_S

LOGS: Final = 240
"""Number of log events of a gateway per day."""

_ERRORS: Final = 0.02  # the share of errors in good software
_MANY: Final = 0.4  # and in bad software
_WARNINGS: Final = 0.1
_PUMPS: Final = 4
_LATENCY: Final = (4.5, 0.7)  # of the logarithm of milliseconds in custody: mean and deviation
_TEXTS: Final = {
    "Informational": "valve open at {} bar",
    "Warning": "filter at {} over its limit",
    "Error": "no answer from the controller for {} s",
}


def logs(plan: Plan, *, faulty: bool) -> Stream:
    """Generate all log events in order; if `faulty`, software version `FAULTY` logs more errors."""
    dice = plan.chance("logs")
    number = 0
    for run in plan.life.runs:
        share = _MANY if faulty and run.version == FAULTY else _ERRORS
        moment = run.on + dice.expovariate(LOGS / DAY_S)
        while moment < min(run.off, plan.settings.length):
            number += 1
            yield _event(plan, dice, moment, number, share)
            moment += dice.expovariate(LOGS / DAY_S)


def _event(plan: Plan, dice: Random, moment: float, number: int, errors: float) -> Timed:
    pump = dice.randrange(_PUMPS) + 1
    kind = dice.random()
    level = "Error" if kind < errors else "Informational"
    if errors <= kind < errors + _WARNINGS:
        level = "Warning"
    module = dice.choice(("io", "net"))
    return event_at(
        plan,
        moment,
        "log",
        f"{pump}-{number:06d}",
        source=f"pump-{pump}@{plan.name}/fw",
        level=level,
        text=_TEXTS[level].format(dice.randrange(10, 900) / 10),
        qos=2,
        latency_ms=int(dice.lognormvariate(*_LATENCY)),
        tags={"subject": f"pump-{pump}", "module": module},
    )
