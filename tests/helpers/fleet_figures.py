"""Holds the figures of a report against the truth about a simulated fleet: all of them, exactly.

`report` is what report.json holds, `truth` what truth.json does. Each function gives what the truth
says and what the report does of one table, in one shape, keyed by what its rows are of. Lags alone
are compared with the tolerance that the report declares.
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
COMPLETENESS = {name: name for name in (*_SAME, "chain_breaks")} | {
    "first_seq": "first",
    "last_seq": "last",
    "repeated_segments": "repeated",
}
"""The report's columns, and the words of the truth."""


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
    """Put the rows of a table by their key; no two have the same."""
    listed = list(rows)
    chosen = {tuple(plain(row[each]) for each in key): of(row, names) for row in listed}
    assert len(chosen) == len(listed), f"two rows have the same {tuple(key)}"
    return chosen


def by_gateway(truth: Json, name: str) -> Iterator[Json]:
    """Give the rows that the truth has of each gateway under a name, with the gateway."""
    for gateway in truth["gateways"]:
        found = gateway[name]
        for row in found if isinstance(found, list) else [found]:
            yield {"gateway": gateway["gateway"], **row}


def same(true: Rows, told: Rows, what: str) -> None:
    """Require that both are the same, and say of what they differ."""
    assert told.keys() == true.keys(), (what, told.keys() ^ true.keys())
    for key, row in true.items():
        wrong = {name: (row[name], told[key][name]) for name in row if told[key][name] != row[name]}
        assert not wrong, f"{what} {key}: the truth and the report: {wrong}"


PLAIN_TABLES = {
    "availability": ("availability", ("gateway",)),
    "outages": ("outages", ("gateway", "begin")),
    "clock": ("clocks", ("gateway",)),
    "delivery": ("delivery", ("gateway", "qos")),
    "queues": ("queues", ("gateway", "queue")),
    "notices": ("notices", ("gateway", "kind", "name")),
}
"""What the truth has of a gateway under a name, the report's table, and what its rows are of."""


def check_tables(truth: Json, tables: Json) -> None:
    """Compare the tables whose rows the truth has in the same words."""
    for name, (table, key) in PLAIN_TABLES.items():
        true = list(by_gateway(truth, name))
        columns = tuple(true[0]) if true else ()
        same(keyed(true, key, columns), keyed(tables[table], key, columns), table)


def check_completeness(truth: Json, tables: Json, again: Counter[tuple[str, str, str]]) -> None:
    """Compare what came of each lane; `again` are segments of a lane that landed once more."""
    true = {
        (row["gateway"], row["epoch"], row["lane"]): {
            column: plain(row[word]) for column, word in COMPLETENESS.items()
        }
        for row in by_gateway(truth, "lanes")
    }
    for lane, number in again.items():
        true[lane]["repeated_segments"] += number
    key = ("gateway", "epoch", "lane")
    told = keyed(tables["completeness"], key, [*COMPLETENESS, "duplicates"])
    same({lane: row | {"duplicates": 0} for lane, row in true.items()}, told, "completeness")


def check_duplicates(truth: Json, tables: Json, again: Counter[tuple[str, str, str]]) -> None:
    """Compare offers and segments that were repeated."""
    names = ("times", "since", "until")
    offers = {
        (row["gateway"], "offers", row["source"]): of(row, names)
        for row in by_gateway(truth, "repeats")
    }
    told = keyed(tables["duplicates"], ("gateway", "what", "source"), names)
    same(offers, {key: row for key, row in told.items() if key[1] == "offers"}, "duplicates")
    segments: Counter[tuple[str, str]] = Counter()
    arrived: dict[tuple[str, str], list[datetime]] = {}
    for row in by_gateway(truth, "lanes"):
        lane = row["gateway"], row["lane"]
        segments[lane] += row["repeated"]
        arrived.setdefault(lane, []).extend(map(datetime.fromisoformat, row["again"]))
    for (gateway, _, name), number in again.items():
        segments[gateway, name] += number
    found = {(key[0], key[2]): row for key, row in told.items() if key[1] == "segments"}
    assert {lane: row["times"] for lane, row in found.items()} == dict(+segments)
    for lane, times in arrived.items():
        if times and not any((each[0], each[2]) == lane for each in again):
            assert (found[lane]["since"], found[lane]["until"]) == (min(times), max(times)), lane


def check_refusals(truth: Json, tables: Json) -> None:
    """Compare refusals by source and rule: each source of a simulated fleet has one gateway."""
    names = ("times", "since", "until")
    true = {
        (row["source"], row["rule"]): of(row, names) | {"gateways": 1, "which": row["gateway"]}
        for row in by_gateway(truth, "refusals")
    }
    key = ("source", "rule")
    same(true, keyed(tables["refusals"], key, [*names, "gateways", "which"]), "refusals")


def check_sensors(truth: Json, tables: Json, sums: dict[tuple[str, str], tuple[int, str]]) -> None:
    """Compare each sensor's readings, its last one, and their sum (`sums` of the events)."""
    true = {
        (row["gateway"], row["source"].split("/")[0], row["name"]): of(row, ("readings", "last"))
        for row in by_gateway(truth, "sensors")
    }
    told = {
        (row["gateway"], row["source"], row["sensor"].split()[-1]): of(row, ("readings", "last"))
        for row in tables["sensors"]
    }
    same(true, told, "sensors")
    assert sums == {
        (row["source"], row["name"]): (row["readings"], row["sum"])
        for row in by_gateway(truth, "sensors")
    }


def check_lag(truth: Json, tables: Json) -> None:
    """Compare how late events were: counts and the greatest exactly, percentiles as declared."""
    told = {(row["gateway"], row["clock"]): row for row in tables["lag"]}
    true = {(row["gateway"], row["clock"]): row for row in by_gateway(truth, "lag")}
    assert told.keys() == true.keys()
    for of_key, row in true.items():
        assert told[of_key]["events"] == row["events"], of_key
        assert round(told[of_key]["max_s"] * 1000) == row["max_ms"], of_key
        for share in ("p50", "p95", "p99"):
            exact, given = row[f"{share}_ms"], round(told[of_key][f"{share}_s"] * 1000)
            assert exact <= given <= exact + LAG * abs(exact) + 1, (of_key, share, exact, given)


def check_growth(truth: Json, tables: Json, shipped: dict[str, int]) -> None:
    """Compare what gateways ship and keep; `shipped` are the bytes of all accepted segments."""
    true = list(by_gateway(truth, "growth"))
    columns = [name for name in true[0] if name != "shipped"]
    given, told = (keyed(rows, ("gateway",), columns) for rows in (true, tables["growth"]))
    same(given, told, "growth")
    assert shipped == {row["gateway"]: row["shipped"] for row in true}


def check_versions(truth: Json, tables: Json) -> None:
    """Compare who ran which version, when it was seen, and its errors; which of them is worse."""
    key = ("version",)
    names = [*truth["versions"][0]]
    same(keyed(truth["versions"], key, names), keyed(tables["versions"], key, names), "versions")
    worse = {each["place"]["version"] for each in truth["planted"] if "version" in each["place"]}
    assert {row["version"] for row in tables["versions"] if row["worse"]} == worse


def check_quarantine(truth: Json, tables: Json) -> None:
    """Compare the files that were not taken: where each lay, when it came, its size, its fate."""
    true = {
        (f"landing/{row['path']}",): of(row, ("arrived", "size")) | {"fork": row["fate"] == "fork"}
        for row in by_gateway(truth, "refused")
    }
    told = {
        (row["path"],): of(row, ("arrived", "size")) | {"fork": row["reason"] == "fork"}
        for row in tables["quarantine"]
    }
    same(true, told, "quarantine")


def check_totals(truth: Json, report: Json, landed_again: int) -> None:
    true, told = truth["totals"], report["totals"]
    names = ("gateways", "segments", "events", "lanes", "expected", "received", "missing")
    for name in (*names, "declared", "unexplained", "forks", "chain_breaks"):
        assert told[name] == true[name], name
    assert told["duplicates"] == 0
    assert told["repeated_segments"] == true["repeated"] + landed_again
    assert told["bad_segments"] == true["bad"]
    assert told["outages"] == sum(len(gateway["outages"]) for gateway in truth["gateways"])
