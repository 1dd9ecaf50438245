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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from firmware_sim.device.sender_rules import LIVE, State
from firmware_sim.scenarios.count_verdict import Key, fault_lines, faults_as_json
from firmware_sim.scenarios.custody_plan import Addressing, PlannedMessage

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

    Attributes:
        believed: the state of each accepted message according to its sender.
        ran: the executed messages; those of one `where` are in the order of first execution.
        reported: the messages that are dead letters at the gateway, each with the value True if it
            was certainly not delivered.
        waiting: the number of messages of levels 1 and 2 that remain in the gateway's outboxes.
        absent: the names of the devices that never connected.
        repeated: the number of repeated offers of messages of level 1 to absent devices; the
            gateway possibly keeps one more copy for each.
    """

    believed: Mapping[Key, State]
    ran: Sequence[Execution]
    reported: Mapping[Key, bool]
    waiting: int
    absent: frozenset[str]
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class CustodyVerdict:
    """The numbers of messages by outcome and level (0, 1, 2), and the faults by name.

    `waiting` is the number of messages that the gateway keeps for absent devices. By
    the senders' records, it is `expected`, and up to `repeated` more: repeated offers of level 1.
    """

    counts: Mapping[str, tuple[int, int, int]]
    waiting: int
    expected: int
    repeated: int = 0
    faults: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Return whether there is no fault, and `waiting` is in its range (see the class)."""
        explained = self.expected <= self.waiting <= self.expected + self.repeated
        return not self.faults and explained

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as a JSON object."""
        return {
            "levels": {name: list(row) for name, row in self.counts.items()},
            "waiting": self.waiting,
            "waiting_expected": self.expected,
            "waiting_repeated": self.repeated,
            **faults_as_json(self.faults, exact=self.exact),
        }

    def lines(self) -> list[str]:
        """Format the verdict as a table for people."""
        table = [f"{'level':<12}{0:>8}{1:>8}{2:>8}"]
        for name, row in self.counts.items():
            table.append(f"{name:<12}" + "".join(f"{n:>8}" for n in row) + f"  {_NOTES[name]}")
        kept = f"the gateway keeps {self.waiting} messages for devices that never connected"
        more = f", and up to {self.repeated} more copies of level 1" if self.repeated else ""
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
    """Compare the plan of a run with the evidence, and return the verdict.

    Args:
        planned: all planned messages.
        evidence: the evidence of the run.

    Returns:
        The counts and the faults; an executed message that was not planned is a fault.
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
