"""What is wrong with what arrived: lanes with holes or forks, bad files, lost messages, lateness.

Each function reads the rows of one report, and judges by what they say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from sync.pages.problem import Kind, Problem, Weight
from sync.pages.text import count, duration, moment, plain, plural
from sync.reports.gather import Rows


class _Rule(NamedTuple):
    """What is said where a count of a lane is not zero."""

    weight: Weight
    kind: Kind
    what: str
    remedy: str


_LANES: Final = {
    "unexplained": _Rule(
        "wrong",
        "unexplained",
        "Events that did not come, and nothing says why: {}.",
        "See at the gateway, with `fieldpost uplink status`, what it still holds; let it send "
        "that, and run `fieldpost-fleet ingest` again. If the number stays, keep a copy of the "
        "gateway's folder before anything is changed there: it shows where they went.",
    ),
    "duplicates": _Rule(
        "wrong",
        "duplicate",
        "Events that are in the tables more than once: {}.",
        "The ingest must not let this happen. Keep the tables as they are and report it.",
    ),
    "forks": _Rule(
        "wrong",
        "fork",
        "Segments that contradict what came before: {}.",
        "Two gateways write under one name, or a database was put back to an older state. Find "
        "the copy, and enrol it under a name of its own with `fieldpost-fleet gateway add`. The "
        "files are in the quarantine: `fieldpost-fleet quarantine list` names them.",
    ),
    "chain_breaks": _Rule(
        "wrong",
        "chain_break",
        "Segments that do not follow on the one before them: {}.",
        "The gateway's database was changed under it. Treat its numbers with care from there on, "
        "and look in its journal for who put a file back.",
    ),
    "declared": _Rule(
        "notice",
        "declared",
        "Events that the gateway itself dropped, and said so: {}.",
        "Its backlog was full. Give it a better link, a larger cap under `[limits]`, or fewer "
        "events: `fieldpost uplink status` says which lane fills it.",
    ),
}


_WENT_ON: Final = (
    "It has begun a new epoch since: what it counts now is taken, and nothing has to be done there "
    "for that. "
)
"""What is said of a fork where it is so, before what to do."""


def of_completeness(rows: Rows) -> Iterator[Problem]:
    """Tell what is not zero in a lane, and, once for each epoch, that it was torn."""
    torn = set()
    newest: dict[str, str] = {}
    for row in rows:
        newest[row["gateway"]] = max(row["epoch"], newest.get(row["gateway"], ""))
    for row in rows:
        where = f"{row['gateway']}, {row['lane']}, epoch {row['epoch']}"
        for name, rule in _LANES.items():
            if row[name]:
                what = rule.what.format(count(row[name]))
                went_on = name == "forks" and row["epoch"] < newest[row["gateway"]]
                remedy = f"{_WENT_ON if went_on else ''}{rule.remedy}"
                yield Problem(rule.weight, rule.kind, row["gateway"], where, what, remedy)
        epoch = (row["gateway"], row["epoch"])
        if row["state"] == "torn" and epoch not in torn:
            torn.add(epoch)
            yield Problem(
                "notice",
                "torn",
                row["gateway"],
                f"{row['gateway']}, epoch {row['epoch']}",
                f"Its last event came at {moment(row['since'])} UTC, without a clean stop, and a "
                "later epoch has begun.",
                "What it wrote after that and did not send is not known here. If its old card or "
                "database is still there, `fieldpost uplink export` takes what is left from it.",
            )


def of_refused(refused: dict[str, int]) -> Iterator[Problem]:
    """Tell that files were no segments; of the fleet as one, since such a file may name nobody."""
    number = refused.get("bad", 0)
    if number:
        yield Problem(
            "wrong",
            "bad_segment",
            "",
            "landing",
            f"{plural(number, 'file')} could not be read.",
            "`fieldpost-fleet quarantine list` says why each was refused. What a gateway holds "
            "still it does not send again by itself: compare with the events that are missing.",
        )


_ELSE: Final = "Its events of kind message, in the system lane, say why: `fieldpost events`."
_ASSURED: Final = "Look at the device that sent them: it does not finish assured delivery."
_MESSAGES: Final = {
    "dead": (
        "Messages that are dead, delivered to nobody: {}.",
        "`fieldpost dead list` at the gateway names them with the reason; `fieldpost dead requeue` "
        "sends them again once it is mended.",
    ),
    "dead_evicted": (
        "Dead messages that it no longer keeps: {}.",
        "It had too many. Look at `fieldpost dead list` for the cause, in those that are left.",
    ),
    "expired": ("Messages that expired, as their sender never asked for delivery: {}.", _ASSURED),
    "evicted": ("Messages that were evicted, as their sender was at its limit: {}.", _ASSURED),
}
_NOT_LOST: Final = ("queue_dead", "repeated", "share_items_dead")
"""What messages are told to be that other reports tell of: items of queues, and repeats."""


def of_notices(rows: Rows) -> Iterator[Problem]:
    """Tell of messages that went nowhere, each name by itself, as its remedy is another."""
    for row in rows:
        if row["kind"] != "message" or row["name"] in _NOT_LOST:
            continue
        times, gateway = count(row["times"]), row["gateway"]
        known = _MESSAGES.get(row["name"])
        if known is None:  # a name from outside, in which braces may stand
            told, remedy = f"Messages, {plain(row['name'])}: {times}.", _ELSE
        else:
            told, remedy = known[0].format(times), known[1]
        yield Problem("notice", "message_lost", gateway, gateway, told, remedy)


LATE_S: Final = 7_200.0
"""Seconds of median lag beyond which the link does not keep up: what an outage of the link held
back is less than half of the events, and a clock that was set by an hour makes no more."""


def of_lag(rows: Rows) -> Iterator[Problem]:
    """Tell whose events come late for the most part, by clocks that are synchronised."""
    for row in rows:
        if row["clock"] and row["p50_s"] > LATE_S:
            yield Problem(
                "notice",
                "backlog",
                row["gateway"],
                row["gateway"],
                f"Half of its events come {duration(row['p50_s'])} after they happened, or later.",
                "Its link does not keep up: `fieldpost uplink status` at the gateway says what "
                "waits and how fast it goes. Give it a better link, or send fewer events.",
            )
