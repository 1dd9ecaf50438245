"""What is wrong with queues, limits and sensors: what the gateways' own peers do, or do not.

Each function reads the rows of one report, and judges by what they say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sync.pages.problem import Problem
from sync.pages.text import (
    ABSENT,
    count,
    decimal,
    duration,
    moment,
    plain,
    plural,
)
from sync.reports import remedies
from sync.reports.gather import Rows

REPEATS: Final = 100
"""Repeated offers of a device from which on they are told of: some are made on any link."""


def of_queues(rows: Rows) -> Iterator[Problem]:
    """Tell which queues stand still, and which have items that no worker could take."""
    for row in rows:
        where = f"{row['gateway']}, queue {row['queue']}"
        if row["state"] == "stuck":
            yield Problem(
                "wrong",
                "queue_stuck",
                row["gateway"],
                where,
                f"No delivery since {moment(row['since'])} UTC; {plural(row['depth'], 'item')} "
                f"there, {plural(row['members'] or 0, 'member')}.",
                remedies.QUEUE_STUCK,
            )
        if row["dead"]:
            yield Problem(
                "wrong",
                "queue_dead",
                row["gateway"],
                where,
                f"Dead items: {count(row['dead'])}.",
                "`fieldpost queue show` at the gateway names them with the reason. When the worker "
                "is mended, `fieldpost queue requeue` lets them wait again; "
                "`fieldpost queue purge` deletes them for good.",
            )


def of_duplicates(rows: Rows) -> Iterator[Problem]:
    """Tell which devices offer the same messages again and again; of segments it is no matter."""
    for row in rows:
        if row["what"] == "offers" and row["times"] >= REPEATS:
            yield Problem(
                "notice",
                "repeats",
                row["gateway"],
                f"{row['gateway']}, {plain(row['source'])}",
                f"Messages that it offered again: {count(row['times'])}, the last one "
                f"{moment(row['until'])} UTC.",
                "Each counts once all the same. It does not hear that they were taken: look at its "
                "link, and at how long it waits for an answer.",
            )


def of_refusals(rows: Rows) -> Iterator[Problem]:
    """Tell who was refused by which rule: grave where there is far more of it than usual."""
    for row in rows:
        gateway = row["which"] if row["gateways"] == 1 else ""
        who = row["source"] or "a source that is not told"
        where = f"{gateway}, {who}" if gateway else f"{who} at {plural(row['gateways'], 'gateway')}"
        what = f"Refused by {row['rule']}: {count(row['times'])}"
        if row["surge"]:
            what += (
                f", {count(row['latest'])} of them on the latest day; "
                f"{decimal(row['usual'])} are usual"
            )
        yield Problem(
            "wrong" if row["surge"] else "notice",
            "refusals",
            gateway or "",
            where,
            f"{what}.",
            remedies.REFUSALS,
        )


def of_sensors(rows: Rows) -> Iterator[Problem]:
    """Tell which sensors fell silent."""
    for row in rows:
        if row["state"] == "silent":
            yield Problem(
                "wrong",
                "sensor_silent",
                row["gateway"],
                _sensor(row),
                f"Last reading {moment(row['last'])} UTC, silent for {duration(row['silence_s'])}; "
                f"every {duration(row['interval_s'])} is usual.",
                remedies.SENSOR_SILENT,
            )


def of_anomalies(rows: Rows) -> Iterator[Problem]:
    """Tell which sensors give the same value for too long, or one that is out of the ordinary."""
    for row in rows:
        if row["state"] == "flat":
            yield Problem(
                "notice",
                "sensor_flat",
                row["gateway"],
                _sensor(row),
                f"{_value(row, 'flat_value')} since {moment(row['flat_since'])} UTC, "
                f"{plural(row['flat_readings'], 'reading')}.",
                "Look at the sensor and its wiring: it reads something, but nothing changes.",
            )
        if row["state"] == "anomalous":
            yield Problem(
                "notice",
                "sensor_anomaly",
                row["gateway"],
                _sensor(row),
                f"{_value(row, 'worst_value')} in the hour from {moment(row['worst_at'])} UTC, "
                f"where {_value(row, 'usual')} is usual (robust z {decimal(row['z'])}).",
                "See whether what it measures is so. If not, calibrate the sensor or replace it.",
            )


def _sensor(row: dict[str, Any]) -> str:
    return f"{row['gateway']}, {plain(row['source'])}, {row['sensor']}"


def _value(row: dict[str, Any], name: str) -> str:
    written = decimal(row[name])
    return written if written == ABSENT or not row["unit"] else f"{written} {row['unit']}"
