"""The findings of one gateway without problems, for tests that change a detail."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sync.reports.shared.findings import Findings, Rows

NOON = datetime(2025, 11, 21, 12, tzinfo=UTC)
BEGIN = NOON.timestamp()

LANE: dict[str, Any] = {
    "gateway": "gw.example",
    "epoch": "01A",
    "lane": "logs",
    "state": "open",
    "since": NOON,
    "first_seq": 1,
    "last_seq": 20_000,
    "expected": 20_000,
    "received": 20_000,
    "missing": 0,
    "declared": 0,
    "unexplained": 0,
    "duplicates": 0,
    "repeated_segments": 0,
    "forks": 0,
    "chain_breaks": 0,
}
GATEWAY: dict[str, Any] = {
    "gateway": "gw.example",
    "state": "running",
    "first_seen": NOON,
    "last_seen": NOON,
    "running_share": 0.99999,
    "running_s": 3600.0,
    "stopped_s": 0.0,
    "outage_s": 0.0,
    "unknown_s": 0.0,
    "outages": 0,
    "longest_gap_s": None,
    "restarts": 0,
    "unclean_restarts": 0,
    "clock_steps": 0,
    "reachable_share": 1.0,
    "silent_after_s": 750.0,
    "silences": 0,
    "longest_silence_s": None,
    "last_arrival": NOON,
}
DELIVERY = {
    "gateway": "gw.example",
    "qos": 2,
    "events": 20_000,
    "p50_ms": 12,
    "p95_ms": 80,
    "p99_ms": 500,
    "max_ms": 61_000,
}


def findings(as_of: datetime = NOON, **tables: Rows) -> Findings:
    """Return findings with these tables alone."""
    return Findings(as_of, tables)


def whole(**changes: Rows) -> Findings:
    """Return the findings of a fleet without problems, except for the tables in `changes`."""
    tables: dict[str, Rows] = {
        "availability": [GATEWAY],
        "completeness": [LANE],
        "delivery": [DELIVERY],
        "totals": [{"lane": "logs", "kind": "log", "events": 20_000}],
        "files_by_fate": [{"fate": "accepted", "files": 10}],
        "stretches": [
            {"gateway": "gw.example", "begin": BEGIN, "end": BEGIN + 3600, "state": "running"}
        ],
        "activity": [
            {
                "gateway": "gw.example",
                "begin": int(BEGIN),
                "lane": "logs",
                "step_s": 3600,
                "events": 20_000,
            }
        ],
    }
    return Findings(NOON, tables | changes)
