"""What is wrong with gateways themselves: silent, out, restarted, their clocks, disks, versions.

Each function reads the rows of one report, and judges by what they say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sync.pages.problem import Kind, Problem, Weight
from sync.pages.text import (
    count,
    days,
    decimal,
    duration,
    moment,
    plural,
    ppm,
    share,
    signed,
    size,
)
from sync.reports import remedies
from sync.reports.gather import Rows


def of_gateway(gateway: str, weight: Weight, kind: Kind, what: str, remedy: str) -> Problem:
    """Make a problem of a whole gateway."""
    return Problem(weight, kind, gateway, gateway, what, remedy)


def of_availability(rows: Rows) -> Iterator[Problem]:
    """Tell who is silent, who was out, and who started without having stopped."""
    for row in rows:
        gateway = row["gateway"]
        if row["state"] == "silent":
            yield of_gateway(
                gateway,
                "wrong",
                "silent",
                f"Nothing arrived since {moment(row['last_arrival'])} UTC, and it did not say that "
                "it would stop.",
                remedies.SILENT,
            )
        if row["state"] == "unknown":
            yield of_gateway(
                gateway,
                "notice",
                "unknown",
                "Segments arrive, but no heartbeat ever did.",
                "Its system lane may be behind: wait for the backlog, then run "
                "`fieldpost-fleet ingest` again.",
            )
        if row["outages"]:
            yield of_gateway(
                gateway,
                "notice",
                "outage",
                f"Outages: {count(row['outages'])}, {duration(row['outage_s'])} in all.",
                "Look at its power supply, and with `journalctl -u fieldpost` at its journal "
                "around the times that the gateway's page shows.",
            )
        if row["unclean_restarts"]:
            yield of_gateway(
                gateway,
                "notice",
                "unclean_restart",
                f"Starts without a clean stop before: {count(row['unclean_restarts'])}.",
                "What it had acknowledged is safe. Many of them wear out its card: check its power "
                "supply.",
            )


_CLOCKS: Final[dict[str, tuple[Kind, str]]] = {
    "stepping": (
        "clock_step",
        "Times and intervals of those moments are not to be trusted. See what sets its clock: two "
        "time services at once, or a clock chip with an empty battery.",
    ),
    "unsynchronised": (
        "clock_unsynchronised",
        "See with `timedatectl` at the gateway whether it reaches a time server, and whether the "
        "network lets NTP through.",
    ),
    "skewed": (
        "clock_drift",
        "Its clock counts as synchronised and is off all the same: see with `timedatectl` at the "
        "gateway which time server it follows.",
    ),
    "drifting": (
        "clock_drift",
        "Give it a time server that it can reach, or a better clock chip: it is off by more each "
        "day.",
    ),
}


def of_clocks(rows: Rows) -> Iterator[Problem]:
    """Tell whose clock is set oddly, not synchronised, off, or too fast or too slow."""
    for row in rows:
        if row["state"] in _CLOCKS:
            kind, remedy = _CLOCKS[row["state"]]
            yield of_gateway(row["gateway"], "notice", kind, _clock_told(row), remedy)


def _clock_told(row: dict[str, Any]) -> str:
    if row["state"] == "stepping":
        times = plural(row["odd_steps"], "time")
        return f"Set {times} without need, by {signed(row['step_max_s'])} at most."
    if row["state"] == "unsynchronised":
        part = share(row["unsynchronised_share"])
        return f"Not synchronised for {duration(row['unsynchronised_s'])}, {part} of its time."
    if row["state"] == "skewed":
        side = "ahead of" if row["skew_s"] > 0 else "behind"
        return f"It is {duration(abs(row['skew_s']))} {side} the centre's clock."
    drift = row["drift_ppm"] if row["drift_ppm"] is not None else row["gain_ppm"]
    a_day = "" if drift is None else f", {duration(abs(drift) * 86_400 / 1e6)} a day"
    return f"It drifts by {ppm(drift)}{a_day}."


def of_growth(rows: Rows) -> Iterator[Problem]:
    """Tell whose storage is full, or will be soon."""
    for row in rows:
        if row["state"] not in ("full", "soon"):
            continue
        what = f"{size(row['disk_used'])} of {size(row['cap'])} used"
        if row["evicted"]:
            what += f", {plural(row['evicted'], 'event')} given up for want of room"
        if row["state"] == "soon":
            span = f"{days(row['days_low'])} to {days(row['days_high'])}"
            what += f"; full in {days(row['days_left'])} ({span})"
        yield of_gateway(
            row["gateway"],
            "wrong",
            "disk_full_soon",
            f"{what}.",
            "`fieldpost status` at the gateway says which limit is nearly used up, and "
            "`fieldpost uplink status` whether it ships what it holds. Mend its link, or raise the "
            "cap in its configuration if its card has room.",
        )


def of_versions(rows: Rows) -> Iterator[Problem]:
    """Tell which version errs more than the one before it. It is of no gateway."""
    for row in rows:
        if row["worse"]:
            often = f"{decimal(row['ratio'])} times" if row["ratio"] is not None else "many times"
            yield Problem(
                "wrong",
                "version_errors",
                "",
                f"version {row['version']}",
                f"{often} as many errors a day as {row['before']}, more on {count(row['higher'])} "
                f"of {plural(row['compared'], 'gateway')} that ran both.",
                "Look for what is new in the logs of those gateways with `fieldpost events`, and "
                "let no more of them have this version until it is known.",
            )
