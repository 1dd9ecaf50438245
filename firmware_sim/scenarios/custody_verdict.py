"""The verdict of a custody run: compare the senders, the recipients and the gateway.

A device executes the messages that it receives; the gateway executes its own by logging them.
Each message must have an outcome that its level permits; any other outcome is a fault.

- Level 2: executed exactly once; or not executed, but reported: failed or in doubt at its sender,
  dead or in doubt at the gateway, or waiting at the gateway for a device that never connected.
- Level 1: executed at least once, or reported in the same ways.
- Level 0: may be lost or repeated, but is executed only by its recipient.
- Order: messages of levels 1 and 2 from one sender to one account are first executed in the order
  of sending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from firmware_sim.device.sender_rules import LIVE, State
from firmware_sim.scenarios.custody_plan import Addressing, PlannedMessage
from firmware_sim.scenarios.record import Key
from firmware_sim.scenarios.verdict import Verdict, by_name, row

GATEWAY: Final = ""
"""The value of `Execution.where` for a message to the gateway, which executes it by logging it."""


class Execution(NamedTuple):
    """The `times` that the message `key` was executed at `where`, a device's name or `GATEWAY`."""

    key: Key
    where: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class CustodyEvidence:
    """The evidence collected after a run.

    `believed` is the state of each accepted message according to its sender. `ran` are the executed
    messages; those of one `where` are in the order of first execution. `reported` are the dead
    letters at the gateway, with the value True if the message was certainly not delivered.
    `waiting` is the number of messages of levels 1 and 2 that remain in the gateway's outboxes.
    `absent` are the names of the devices that never connected. `repeated` is the number of repeated
    offers of messages of level 1 to them; the gateway possibly keeps one more copy for each.
    """

    believed: Mapping[Key, State]
    ran: Sequence[Execution]
    reported: Mapping[Key, bool]
    waiting: int
    absent: frozenset[str]
    repeated: int = 0


_NOTES: Final = {
    "planned": "to be sent",
    "sent": "accepted by the outboxes of their senders",
    "ran": "distinct messages executed by a device or logged by the gateway",
    "again": "repeated executions",
    "failed": "reported to their sender as not delivered",
    "in doubt": "reported to their sender as perhaps delivered",
    "dead": "kept by the gateway as dead letters",
    "waiting": "waiting for devices that never connected",
    "lost": "neither executed nor reported",
}


def judge(planned: Iterable[tuple[Key, PlannedMessage]], evidence: CustodyEvidence) -> Verdict:
    """Compare the plan of a run, all planned messages, with the evidence; return the verdict."""
    plan = dict(planned)
    counts: dict[str, list[int]] = {name: [0, 0, 0] for name in _NOTES}
    places: dict[Key, Counter[str]] = {}
    for ran in evidence.ran:
        places.setdefault(ran.key, Counter())[ran.where] += ran.times
    for key, message in plan.items():
        runs = places.get(key, Counter())[message.recipient]
        for name in _found(message, evidence, key, runs):
            counts[name][message.level] += 1
        counts["again"][message.level] += max(runs - 1, 0)
    expected = counts["waiting"][1] + counts["waiting"][2]
    kept = f"the gateway keeps {evidence.waiting} messages for devices that never connected"
    more = f", and up to {evidence.repeated} more copies of level 1" if evidence.repeated else ""
    kept = f"{kept}; {expected} expected{more}"
    faults = by_name(_all_faults(plan, places, evidence))
    if not expected <= evidence.waiting <= expected + evidence.repeated:
        faults["the gateway keeps more or fewer messages than expected"] = [kept]
    return Verdict(
        {
            "levels": counts,
            "waiting": evidence.waiting,
            "waiting_expected": expected,
            "waiting_repeated": evidence.repeated,
        },
        [
            row("level", 0, 1, 2),
            *(row(name, *levels, note=_NOTES[name]) for name, levels in counts.items()),
            kept,
        ],
        faults,
    )


def _all_faults(
    plan: Mapping[Key, PlannedMessage],
    places: Mapping[Key, Counter[str]],
    evidence: CustodyEvidence,
) -> Iterator[tuple[str, str]]:
    for key, message in plan.items():
        where = places.get(key, Counter())
        runs = where[message.recipient]
        for fault in _faults(message, evidence, key, runs, where.total() - runs):
            yield fault, _format_some(key, message)
    for source, number in places.keys() - plan.keys():
        yield "executed, but never planned", f"{source} n={number}"
    yield from (("out of order", line) for line in _disordered(plan, evidence.ran))


def _found(message: PlannedMessage, evidence: CustodyEvidence, key: Key, runs: int) -> list[str]:
    """Return the names of the rows of the verdict's table in which a message is counted."""
    state = evidence.believed.get(key)
    names = ["planned"]
    if state is not None:
        names.append("sent")
    if runs:
        names.append("ran")
    if state is State.FAILED:
        names.append("failed")
    if state is State.IN_DOUBT:
        names.append("in doubt")
    if key in evidence.reported:
        names.append("dead")
    if state is State.DONE and not runs and key not in evidence.reported:
        away = message.way is Addressing.ACCOUNT and message.recipient in evidence.absent
        names.append("waiting" if away and message.level else "lost")
    return names


def _faults(
    message: PlannedMessage, evidence: CustodyEvidence, key: Key, runs: int, strays: int
) -> Iterable[str]:
    """Return the faults of a message, run `runs` times by its recipient and `strays` by others."""
    state, level = evidence.believed.get(key), message.level
    if strays:
        yield "executed at a place that is not its recipient"
    if level == 0:
        return
    if state is None:
        yield "never accepted by its sender's outbox"
    elif state in LIVE:
        yield "still in its sender's outbox"
    elif state in (State.FAILED, State.IN_DOUBT) and message.way is not Addressing.SESSION:
        yield f"{state.value}, although the gateway takes custody"
    if runs and state in (None, State.FAILED):
        yield "executed, although its sender recorded that it failed"
    if runs and evidence.reported.get(key, False):
        yield "executed, although the gateway reports it as not delivered"
    if level == 2 and runs > 1:
        yield "assured, but executed more than once"
    if state is State.DONE and "lost" in _found(message, evidence, key, runs):
        yield "missing: delivered according to its sender, but not executed or kept anywhere"


def _disordered(plan: Mapping[Key, PlannedMessage], ran: Iterable[Execution]) -> Iterable[str]:
    """Describe messages executed only after a later message from that sender to that recipient."""
    seen: set[Key] = set()
    last: dict[tuple[str, str], int] = {}
    for key, where, _ in ran:
        message = plan.get(key)
        if message is None or key in seen or message.way is Addressing.SESSION or not message.level:
            continue
        seen.add(key)
        source, number = key
        before = last.get((source, where), 0)
        if number < before:
            yield f"{_format_some(key, message)} after n={before}"
        last[source, where] = max(before, number)


def _format_some(key: Key, message: PlannedMessage) -> str:
    to = message.recipient or "the gateway"
    return f"{key[0]} n={key[1]} level {message.level} {message.way.name.lower()} {to}"
