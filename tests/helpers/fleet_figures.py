"""Compare all figures of a report with the truth about a simulated fleet.

`report` is the content of report.json, `truth` that of truth.json. Each function compares one table
exactly: the expected rows and the reported ones, both by key. Only percentiles of lag are compared
with a tolerance, which the report declares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

Json = dict[str, Any]
Rows = dict[tuple[Any, ...], Json]

LAG = 0.02
"""The share by which a percentile of lag may be above the exact one."""

_SAME = ("state", "since", "expected", "received", "missing", "declared", "unexplained", "forks")
SENSORS = 5_000
"""Maximum number of sensors in the report's table, silent ones first."""

COMPLETENESS = {name: name for name in (*_SAME, "chain_breaks")} | {
    "first_seq": "first",
    "last_seq": "last",
    "repeated_segments": "repeated",
}
"""The report's columns and their names in the truth."""


def plain(value: Any) -> Any:
    """Make times and lengths comparable however they are written."""
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, str) and value[10:11] == "T" and value[:4].isdecimal():
        return datetime.fromisoformat(value)
    return value


def of(row: Mapping[str, Any], names: Iterable[str]) -> Json:
    return {name: plain(row[name]) for name in names}


def keyed(rows: Iterable[Mapping[str, Any]], key: Iterable[str], names: Iterable[str]) -> Rows:
    """Return the rows of a table by their keys, which must be unique."""
    listed = list(rows)
    chosen = {tuple(plain(row[each]) for each in key): of(row, names) for row in listed}
    assert len(chosen) == len(listed), f"two rows have the same {tuple(key)}"
    return chosen


def by_gateway(truth: Json, name: str) -> Iterator[Json]:
    """Yield the rows that the truth has under a name for each gateway, with the gateway."""
    for gateway in truth["gateways"]:
        found = gateway[name]
        for row in found if isinstance(found, list) else [found]:
            yield {"gateway": gateway["gateway"], **row}


def same(expected: Rows, reported: Rows, table: str) -> None:
    """Require the same rows, and name the differences."""
    assert reported.keys() == expected.keys(), (table, reported.keys() ^ expected.keys())
    for key, row in expected.items():
        pairs = {name: (row[name], reported[key][name]) for name in row}
        wrong = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        assert not wrong, f"{table} {key}: the truth and the report: {wrong}"


PLAIN_TABLES = {
    "availability": ("availability", ("gateway",)),
    "outages": ("outages", ("gateway", "begin")),
    "clock": ("clocks", ("gateway",)),
    "delivery": ("delivery", ("gateway", "qos")),
    "queues": ("queues", ("gateway", "queue")),
    "sessions": ("sessions", ("gateway", "protocol", "version", "transport")),
    "notices": ("notices", ("gateway", "kind", "name")),
}
"""Names in the truth, each with the report's table and the columns of its key."""


def check_tables(truth: Json, tables: Json) -> None:
    """Compare the tables whose columns have the same names in the truth."""
    for name, (table, key) in PLAIN_TABLES.items():
        expected = list(by_gateway(truth, name))
        columns = tuple(expected[0]) if expected else ()
        same(keyed(expected, key, columns), keyed(tables[table], key, columns), table)


def check_completeness(truth: Json, tables: Json, copies: Counter[tuple[str, str, str]]) -> None:
    """Compare the completeness of lanes; `copies` counts their segments that landed twice."""
    expected = {
        (row["gateway"], row["epoch"], row["lane"]): {
            column: plain(row[word]) for column, word in COMPLETENESS.items()
        }
        for row in by_gateway(truth, "lanes")
    }
    for lane, number in copies.items():
        expected[lane]["repeated_segments"] += number
    key = ("gateway", "epoch", "lane")
    reported = keyed(tables["completeness"], key, [*COMPLETENESS, "duplicates"])
    same(
        {lane: row | {"duplicates": 0} for lane, row in expected.items()}, reported, "completeness"
    )


def check_duplicates(truth: Json, tables: Json, copies: Counter[tuple[str, str, str]]) -> None:
    """Compare repeated offers and repeated segments."""
    names = ("times", "since", "until")
    offers = {
        (row["gateway"], "offers", row["source"]): of(row, names)
        for row in by_gateway(truth, "repeats")
    }
    reported = keyed(tables["duplicates"], ("gateway", "what", "source"), names)
    same(offers, {key: row for key, row in reported.items() if key[1] == "offers"}, "duplicates")
    segments: Counter[tuple[str, str]] = Counter()
    arrived: dict[tuple[str, str], list[datetime]] = {}
    for row in by_gateway(truth, "lanes"):
        lane = row["gateway"], row["lane"]
        segments[lane] += row["repeated"]
        arrived.setdefault(lane, []).extend(map(datetime.fromisoformat, row["again"]))
    for (gateway, _, name), number in copies.items():
        segments[gateway, name] += number
    found = {(key[0], key[2]): row for key, row in reported.items() if key[1] == "segments"}
    assert {lane: row["times"] for lane, row in found.items()} == dict(+segments)
    for lane, times in arrived.items():
        if times and not any((each[0], each[2]) == lane for each in copies):
            assert (found[lane]["since"], found[lane]["until"]) == (min(times), max(times)), lane


def check_refusals(truth: Json, tables: Json) -> None:
    """Compare refusals by source and rule: each source of a simulated fleet has one gateway."""
    names = ("times", "since", "until")
    expected = {
        (row["source"], row["rule"]): of(row, names) | {"gateways": 1, "which": row["gateway"]}
        for row in by_gateway(truth, "refusals")
    }
    key = ("source", "rule")
    same(expected, keyed(tables["refusals"], key, [*names, "gateways", "which"]), "refusals")


def check_sensors(truth: Json, tables: Json, sums: dict[tuple[str, str], tuple[int, str]]) -> None:
    """Compare listed sensors' readings and last ones; and, by `sums`, the events of all sensors."""
    expected = {
        (row["gateway"], row["source"].split("/")[0], row["name"]): of(row, ("readings", "last"))
        for row in by_gateway(truth, "sensors")
    }
    reported = {
        (row["gateway"], row["source"], row["sensor"].split()[-1]): of(row, ("readings", "last"))
        for row in tables["sensors"]
    }
    assert len(reported) == len(tables["sensors"]) == min(len(expected), SENSORS)
    listed = {key: row for key, row in expected.items() if key in reported}
    same(listed, reported, "sensors")
    assert sums == {
        (row["source"], row["name"]): (row["readings"], row["sum"])
        for row in by_gateway(truth, "sensors")
    }


def check_lag(truth: Json, tables: Json) -> None:
    """Compare the lag of events: counts and maxima exactly, percentiles with the tolerance."""
    reported = {(row["gateway"], row["clock"]): row for row in tables["lag"]}
    expected = {(row["gateway"], row["clock"]): row for row in by_gateway(truth, "lag")}
    assert reported.keys() == expected.keys()
    for key, row in expected.items():
        assert reported[key]["events"] == row["events"], key
        assert round(reported[key]["max_s"] * 1000) == row["max_ms"], key
        for share in ("p50", "p95", "p99"):
            exact, estimate = row[f"{share}_ms"], round(reported[key][f"{share}_s"] * 1000)
            assert exact <= estimate <= exact + LAG * abs(exact) + 1, (key, share, exact, estimate)


def check_growth(truth: Json, tables: Json, shipped: dict[str, int]) -> None:
    """Compare shipped and stored bytes; `shipped` are the bytes of all accepted segments."""
    rows = list(by_gateway(truth, "growth"))
    columns = [name for name in rows[0] if name != "shipped"]
    expected, reported = (keyed(each, ("gateway",), columns) for each in (rows, tables["growth"]))
    same(expected, reported, "growth")
    assert shipped == {row["gateway"]: row["shipped"] for row in rows}


def check_versions(truth: Json, tables: Json) -> None:
    """Compare each version's gateways, times and errors, and which versions are worse."""
    key = ("version",)
    names = [*truth["versions"][0]]
    same(keyed(truth["versions"], key, names), keyed(tables["versions"], key, names), "versions")
    worse = {each["place"]["version"] for each in truth["planted"] if "version" in each["place"]}
    assert {row["version"] for row in tables["versions"] if row["worse"]} == worse


def check_quarantine(truth: Json, tables: Json) -> None:
    """Compare the refused files: their paths, arrival times and sizes, and which are forks."""
    expected = {
        (f"landing/{row['path']}",): of(row, ("arrived", "size")) | {"fork": row["fate"] == "fork"}
        for row in by_gateway(truth, "refused")
    }
    reported = {
        (row["path"],): of(row, ("arrived", "size")) | {"fork": row["reason"] == "fork"}
        for row in tables["quarantine"]
    }
    same(expected, reported, "quarantine")


def check_totals(truth: Json, report: Json, landed_again: int) -> None:
    expected, reported = truth["totals"], report["totals"]
    names = ("gateways", "segments", "events", "lanes", "expected", "received", "missing")
    for name in (*names, "declared", "unexplained", "forks", "chain_breaks"):
        assert reported[name] == expected[name], name
    assert reported["duplicates"] == 0
    assert reported["repeated_segments"] == expected["repeated"] + landed_again
    assert reported["bad_segments"] == expected["bad"]
    assert reported["outages"] == sum(len(gateway["outages"]) for gateway in truth["gateways"])
