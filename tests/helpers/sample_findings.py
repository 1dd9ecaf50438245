"""The findings of an invented fleet, always the same, for tests and screenshots.

Most gateways have no problems; the first ones have one problem of each kind of weight `wrong`.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Final

from sync.reports.shared.findings import Findings
from tests.helpers import sample_rows as rows_of
from tests.helpers.sample_rows import DAYS, FLAT, NOW, OUTAGE, Row, ago

_DEVICES: Final = (
    ("pump1", "pumps/1 temperature", "°C", 41.0, 3.0),
    ("pump1", "pumps/1 pressure", "bar", 4.2, 0.2),
    ("meter", "hall/meter power", "kW", 118.0, 40.0),
    ("door", "hall/door humidity", "%", 55.0, 8.0),
)


def sample(gateways: int = 12) -> Findings:
    """Return the findings of so many gateways, at least eight, over the last seven days."""
    chance = random.Random(20251121)
    rows: dict[str, list[Row]] = {}
    for at in range(gateways):
        for name, more in _gateway(f"gw-{at + 1:03d}.example", at, chance).items():
            rows.setdefault(name, []).extend(more)
    kinds = {"readings": "reading", "logs": "log", "system": "system"}
    received = dict.fromkeys(kinds, 0)
    for row in rows["completeness"]:
        received[row["lane"]] += row["received"]
    files = {"accepted": gateways * 2016, "bad": 2, "fork": 1}
    rows |= {
        "totals": [
            {"lane": lane, "kind": kind, "events": received[lane]} for lane, kind in kinds.items()
        ],
        "files_by_fate": [{"fate": fate, "files": number} for fate, number in files.items()],
        "quarantine": _quarantine(),
        "refusals": _refusals(),
        "versions": _versions(gateways),
    }
    return Findings(NOW, rows, since=(NOW - timedelta(days=DAYS - 1)).date())


def _gateway(name: str, at: int, chance: random.Random) -> dict[str, list[Row]]:
    rows = {
        "availability": [rows_of.availability(name, at)],
        "outages": rows_of.outages(name, at),
        "duplicates": rows_of.duplicates(name, at),
        "completeness": rows_of.completeness(name, at, chance),
        "delivery": rows_of.delivery(name, at, chance),
        "lag": rows_of.lag(name, at, chance),
        "sessions": rows_of.sessions(name, at),
        "notices": rows_of.notices(name, at),
        "queues": rows_of.queues(name, at),
        "trends": [rows_of.trends(name, at, chance)],
        "clocks": [rows_of.clock(name, at, chance)],
        "growth": [rows_of.growth(name, at, chance)],
        "stretches": rows_of.stretches(name, at),
        "activity": rows_of.activity(name, at, chance),
        "queue_depths": rows_of.depths(name, at, chance),
        "clock_offsets": rows_of.offsets(name, at, chance),
    }
    return rows | _sensors(name, at, chance)


def _sensors(name: str, at: int, chance: random.Random) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {"sensors": [], "anomalies": [], "sensor_series": []}
    for number, (device, sensor, unit, usual, swing) in enumerate(_DEVICES):
        place = {"gateway": name, "source": f"{device}@{name}", "sensor": sensor}
        silent = at == OUTAGE and number == 3
        flat, odd = at == FLAT and number == 0, at == FLAT and number == 2
        rows["sensors"].append(place | _silence(silent=silent))
        rows["anomalies"].append(place | _anomaly(unit, usual, swing, flat=flat, odd=odd))
        for hours in range(24 * DAYS, 20 if silent else 0, -3):
            wave = (hours % 24 - 12) / 12
            mean = usual if flat and hours < 40 else usual + swing * (wave + chance.random() / 3)
            mean += 6 * swing if odd and hours == 30 else 0
            rows["sensor_series"].append(
                place
                | {"at": ago(hours).timestamp(), "mean": mean}
                | {"low": mean - swing / 4, "high": mean + swing / 4}
            )
    return rows


def _silence(*, silent: bool) -> Row:
    last, silence_s = (ago(20), 72_000.0) if silent else (ago(0.01), 9.0)
    row = {"state": "silent" if silent else "ok", "last": last, "silence_s": silence_s}
    usual = {"readings": 60_480, "interval_s": 10.0, "limit_s": 900.0, "told_until": ago(0.01)}
    return row | usual


def _anomaly(unit: str, usual: float, swing: float, *, flat: bool, odd: bool) -> Row:
    flat_values = (ago(40), ago(0.01), 14_400, usual) if flat else (None,) * 4
    names = ("flat_since", "flat_until", "flat_readings", "flat_value")
    return (
        {"unit": unit, "state": "flat" if flat else "anomalous" if odd else "ok"}
        | {"constant": False, "hours": 24 * DAYS, "anomalous_hours": 1 if odd else 0}
        | dict(zip(names, flat_values, strict=True))
        | {"worst_at": ago(30), "worst_value": usual + (6 if odd else 1) * swing, "usual": usual}
        | {"z": 14.2 if odd else 1.1, "basis": "history"}
    )


def _refusals() -> list[Row]:
    return [
        {"source": source, "rule": rule, "times": times, "since": ago(150), "until": ago(2)}
        | {"gateways": len(which), "which": ", ".join(which)}
        | {"latest": latest, "usual": usual, "surge": surge}
        for source, rule, times, which, latest, usual, surge in (
            ("label7@gw-005.example", "rate", 1_240, ["gw-005.example"], 1_190, 9.0, True),
            (None, "login", 14, ["gw-002.example", "gw-003.example"], 2, 2.0, False),
        )
    ]


def _versions(gateways: int) -> list[Row]:
    old: Row = {"version": "0.1.0", "gateways": gateways, "current": gateways - 3}
    old |= {"first_seen": ago(24 * DAYS), "last_seen": ago(0.01), "errors": 210}
    old |= {"gateway_days": DAYS * gateways - 6.0, "events": 5_000_000, "per_thousand": 0.042}
    old |= {"per_day": 2.7, "worse": False, "caution": False}
    old |= dict.fromkeys(("before", "compared", "higher", "ratio"))
    new: Row = {"version": "0.2.0", "gateways": 3, "current": 3, "first_seen": ago(48)}
    new |= {"gateway_days": 6.0, "events": 372_000, "errors": 96, "per_thousand": 0.258}
    new |= {"before": "0.1.0", "per_day": 16.0, "compared": 3, "higher": 3, "ratio": 5.9}
    return [old, old | new | {"worse": True}]


def _quarantine() -> list[Row]:
    folder = "landing/gw-004.example/01JD0000000000000000000000/readings"
    return [
        {"arrived": ago(hours), "path": path, "size": size, "reason": reason, "detail": detail}
        for hours, path, size, reason, detail in (
            (5, f"{folder}/8001-10000.seg", 15_220, "fork", "another one has these numbers"),
            (20, "landing/gw-007.example/x/readings/1-2.seg", 812, "checksum", "not that of it"),
            (90, "landing/lost+found/x/y/1-2.seg", 4, "magic", "no segment at all"),
        )
    ]
