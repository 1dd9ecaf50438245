"""Sums up the reports' rows, and says what is wrong in words, with what to do about it.

Pure functions of rows: no file, no page, no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from sync.central.rendering.words import count, duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sync.central.reports.gather import Findings, Rows

Weight = Literal["wrong", "notice"]
"""`wrong` is for what must be zero; `notice` for what somebody should know."""

MAX_PROBLEMS: Final = 100
"""Problems that are told one by one, the gravest first: nobody reads more; the tables have all."""

_SUMMED: Final = (
    "expected",
    "received",
    "missing",
    "declared",
    "unexplained",
    "duplicates",
    "repeated_segments",
    "forks",
    "chain_breaks",
)


class Problem(NamedTuple):
    """Something that is not as it should be: how grave, where, what, and what to do."""

    weight: Weight
    where: str
    what: str
    remedy: str


def totals(found: Findings) -> dict[str, Any]:
    """Sum up: events by lane and kind, and every count of completeness over all gateways."""
    lanes: dict[str, dict[str, int]] = {}
    for row in found.totals:
        lanes.setdefault(row["lane"], {})[row["kind"]] = row["events"]
    return {
        "gateways": len({row["gateway"] for row in found.availability}),
        "segments": found.segments,
        "events": sum(row["events"] for row in found.totals),
        "lanes": lanes,
        **{name: sum(row[name] for row in found.completeness) for name in _SUMMED},
        "bad_segments": found.refused.get("bad", 0),
        "outages": sum(row["outages"] for row in found.availability),
    }


def problems(found: Findings) -> list[Problem]:
    """Tell what is wrong, and after it what should be known."""
    told = [
        *_in_lanes(found.completeness),
        *_bad(found.refused),
        *_gateways(found.availability),
        *_told(found.notices),
    ]
    told.sort(key=lambda problem: problem.weight != "wrong")
    return told


def _in_lanes(rows: Rows) -> Iterator[Problem]:
    for row in rows:
        where = f"{row['gateway']}, {row['lane']}, epoch {row['epoch']}"
        for name, (weight, what, remedy) in _LANE_RULES.items():
            if row[name]:
                yield Problem(weight, where, what.format(count(row[name])), remedy)


_LANE_RULES: Final[dict[str, tuple[Weight, str, str]]] = {
    "unexplained": (
        "wrong",
        "Events that did not come, and nothing says why: {}.",
        "Let the gateway send what it still holds and ingest again. If the number stays, keep a "
        "copy of the gateway's folder before anything is changed there: it shows where they went.",
    ),
    "duplicates": (
        "wrong",
        "Events that are in the tables more than once: {}.",
        "The ingest must not let this happen. Keep the tables as they are and report it.",
    ),
    "forks": (
        "wrong",
        "Segments that contradict what came before: {}.",
        "Two gateways write under one name, or a database was put back to an older state. Find "
        "the copy, and give it a name of its own. The files are in the quarantine.",
    ),
    "chain_breaks": (
        "wrong",
        "Segments that do not follow on the one before them: {}.",
        "The gateway's database was changed under it. Treat its numbers with care from there on.",
    ),
    "declared": (
        "notice",
        "Events that the gateway itself dropped, and said so: {}.",
        "Its backlog was full. Give it a better link, a larger cap, or fewer events.",
    ),
}


def _bad(refused: dict[str, int]) -> Iterator[Problem]:
    number = refused.get("bad", 0)
    if number:
        yield Problem(
            "wrong",
            "landing",
            f"Files that are no valid segments: {count(number)}.",
            "The table of the quarantine says why each was refused. What a gateway holds still it "
            "does not send again by itself: compare with the events missing above.",
        )


def _gateways(rows: Rows) -> Iterator[Problem]:
    for row in rows:
        where = row["gateway"]
        if row["state"] == "silent":
            yield Problem(
                "wrong",
                where,
                "Nothing arrives, and it did not say that it would stop.",
                "See whether it has power and a link. What it holds comes when it is back.",
            )
        if row["state"] == "unknown":
            yield Problem(
                "notice",
                where,
                "Segments arrive, but no heartbeat ever did.",
                "Its system lane may be behind: wait for the backlog, then ingest again.",
            )
        if row["outages"]:
            yield Problem(
                "notice",
                where,
                f"Outages: {count(row['outages'])}, {duration(row['outage_s'])} in all.",
                "Look at its power supply and at its own journal around those times.",
            )
        if row["unclean_restarts"]:
            yield Problem(
                "notice",
                where,
                f"Starts without a clean stop before: {count(row['unclean_restarts'])}.",
                "What it had acknowledged is safe. Many of them wear out its card: check its power "
                "supply.",
            )


def _told(rows: Rows) -> Iterator[Problem]:
    refused: dict[str, int] = {}
    for row in rows:
        if row["kind"] == "limit":
            refused[row["gateway"]] = refused.get(row["gateway"], 0) + row["times"]
            continue
        what, remedy = _MESSAGES.get(row["name"], (f"Messages, {row['name']}: {{}}.", _ELSE))
        yield Problem("notice", row["gateway"], what.format(count(row["times"])), remedy)
    for gateway, times in refused.items():
        what = f"Refusals by its limits: {count(times)}."
        remedy = "The table of messages lost and refusals says by which rules."
        yield Problem("notice", gateway, what, remedy)


_ELSE: Final = "Its events of kind message, in the system lane, say why."

_MESSAGES: Final = {
    "dead": (
        "Messages that are dead, delivered to nobody: {}.",
        "Look at the table dead of the gateway: it keeps them, with the reason.",
    ),
    "dead_evicted": (
        "Dead messages that it no longer keeps: {}.",
        "It had too many. Look at the table dead of the gateway for the cause, in those left.",
    ),
    "expired": (
        "Messages that expired, as their sender never asked for delivery: {}.",
        "Look at the device that sent them: it does not finish assured delivery.",
    ),
    "evicted": (
        "Messages that were evicted, as their sender was at its limit: {}.",
        "Look at the device that sent them: it does not finish assured delivery.",
    ),
}


def verdict(told: Iterable[Problem], events: int) -> tuple[str, str]:
    """Give the page's first words: a class (`empty`, `wrong`, `notice`, `good`) and a sentence."""
    weights = [problem.weight for problem in told]
    if not events:
        return "empty", "Nothing has arrived yet."
    if "wrong" in weights:
        number = weights.count("wrong")
        return "wrong", f"{count(number)} {'thing is' if number == 1 else 'things are'} wrong."
    if weights:
        return "notice", "All events are accounted for; something is worth knowing."
    return "good", "All events are accounted for."
