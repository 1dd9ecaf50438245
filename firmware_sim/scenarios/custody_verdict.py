"""The verdict of a custody run: what senders believe, what ran where, what the gateway keeps.

Each message must have an outcome that its level promises; anything unexplained is a fault.

- Level 2 runs exactly once; or not at all and is reported: failed or in doubt at its sender, dead
  or in doubt at the gateway, or waiting there for a device that never connected.
- Level 1 runs at least once, or is reported in the same ways.
- Level 0 runs at most once for each time that the gateway may send it: it may be lost.
- From one sender to one account, levels 1 and 2 first run in the order of sending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from firmware_sim.device.sender_rules import LIVE, State
from firmware_sim.scenarios.count_verdict import Key, fault_lines, faults_as_json
from firmware_sim.scenarios.custody_plan import Addressing, PlannedMessage

GATEWAY: Final = ""
"""The place of a message that reached the gateway's log; otherwise it is the device's name."""


class Execution(NamedTuple):
    """A message that ran: which, where, and how often there."""

    key: Key
    where: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class CustodyEvidence:
    """The findings after the run.

    Attributes:
        believed: the state of each accepted message at its sender.
        ran: the messages that ran, those of each place in the order in which they ran there.
        reported: the gateway's dead letters; the value is true if the message was certainly not
            delivered.
        waiting: how many messages of levels 1 and 2 the gateway still keeps for accounts.
        absent: the devices that never connected.
        repeated: how often messages of level 1 to absent devices were sent again; the gateway may
            keep another copy each time.
    """

    believed: Mapping[Key, State]
    ran: Sequence[Execution]
    reported: Mapping[Key, bool]
    waiting: int
    absent: frozenset[str]
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class CustodyVerdict:
    """Counts by level (0, 1, 2) of the outcomes of messages, and the faults by name.

    `waiting` must be at least `expected`, and at most `repeated` more.
    """

    counts: Mapping[str, tuple[int, int, int]]
    waiting: int
    expected: int
    repeated: int = 0
    faults: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Return whether every message kept the promise of its level, and all that waits is
        explained."""
        explained = self.expected <= self.waiting <= self.expected + self.repeated
        return not self.faults and explained

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "levels": {name: list(row) for name, row in self.counts.items()},
            "waiting": self.waiting,
            "waiting_expected": self.expected,
            "waiting_repeated": self.repeated,
            **faults_as_json(self.faults, exact=self.exact),
        }

    def lines(self) -> list[str]:
        """Format it as a table for people."""
        table = [f"{'level':<12}{0:>8}{1:>8}{2:>8}"]
        for name, row in self.counts.items():
            table.append(f"{name:<12}" + "".join(f"{n:>8}" for n in row) + f"  {_NOTES[name]}")
        kept = f"the gateway keeps {self.waiting} for devices that never connected"
        more = f", and up to {self.repeated} twice, at level 1" if self.repeated else ""
        table.append(f"{kept}; {self.expected} expected{more}")
        return table + fault_lines(self.faults, exact=self.exact)


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


def judge(
    planned: Iterable[tuple[Key, PlannedMessage]], evidence: CustodyEvidence
) -> CustodyVerdict:
    """Judge a run.

    Args:
        planned: all messages of the run.
        evidence: what was found.

    Returns:
        The counts and the faults; a message that ran without being planned is a fault.
    """
    plan = dict(planned)
    counts: dict[str, list[int]] = {name: [0, 0, 0] for name in _NOTES}
    faults: dict[str, list[str]] = {}
    places: dict[Key, Counter[str]] = {}
    for ran in evidence.ran:
        places.setdefault(ran.key, Counter())[ran.where] += ran.times
    for key, message in plan.items():
        where = places.pop(key, Counter())
        found = _found(message, evidence, key, where[message.recipient])
        for name in found:
            counts[name][message.level] += 1
        again = where[message.recipient] - 1
        counts["again"][message.level] += max(again, 0)
        strays = where.total() - where[message.recipient]
        for fault in _faults(message, evidence, key, where[message.recipient], strays):
            faults.setdefault(fault, []).append(_format_some(key, message))
    for key in places:
        faults.setdefault("executed, but never planned", []).append(f"{key[0]} n={key[1]}")
    for line in _disordered(plan, evidence.ran):
        faults.setdefault("out of order", []).append(line)
    expected = counts["waiting"][1] + counts["waiting"][2]
    rows = {name: (row[0], row[1], row[2]) for name, row in counts.items()}
    return CustodyVerdict(rows, evidence.waiting, expected, evidence.repeated, faults)


def _found(message: PlannedMessage, evidence: CustodyEvidence, key: Key, runs: int) -> list[str]:
    """Return the rows of the table that a message counts in."""
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
    """Return how a message breaks its level's promise."""
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
    """Return messages that first ran after a later one of the same sender to the same account."""
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
