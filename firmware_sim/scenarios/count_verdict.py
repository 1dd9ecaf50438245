"""The verdict of a `count` run: compare the devices' outboxes with the gateway's event log.

A message is identified by (source, n): the device's full JID and its number in the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from firmware_sim.device.sender_rules import LIVE, State

Key = tuple[str, int]

SHOWN: Final = 20
"""Maximum number of examples listed for each kind of difference; all differences are counted."""


def fault_lines(faults: Mapping[str, Sequence[str]], *, exact: bool) -> list[str]:
    """Format each kind of fault: its number and up to `SHOWN` examples. Add the verdict."""
    lines = []
    for name, rows in faults.items():
        lines += [f"{name}: {len(rows)}", *(f"  {row}" for row in list(rows)[:SHOWN])]
    return [*lines, f"{'verdict':<12}{'exact' if exact else 'NOT exact':>10}"]


def faults_as_json(faults: Mapping[str, Sequence[str]], *, exact: bool) -> dict[str, Any]:
    """Return the counts and examples of a run's faults as fields of a JSON object."""
    return {
        "faults": {name: len(rows) for name, rows in faults.items()},
        "examples": {name: list(rows)[:SHOWN] for name, rows in faults.items()},
        "exact": exact,
    }


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a run: numbers of messages, and up to `SHOWN` examples of each problem.

    Without an event log, `logged` is None, and the numbers from comparing messages with it are 0.
    """

    planned: int
    sent: int
    delivered: int
    in_doubt: int
    in_doubt_logged: int
    failed: int
    pending: int
    logged: int | None
    duplicates: int
    missing: int
    unexpected: int
    examples: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Return whether exactly the planned messages were sent, delivered, and logged once."""
        whole = self.planned == self.sent == self.delivered == self.logged
        return whole and not (self.duplicates or self.missing or self.unexpected)

    @property
    def passed(self) -> bool:
        """Return whether the run is `exact` or, without an event log, delivered all messages."""
        return self.exact or (self.logged is None and self.planned == self.delivered)

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as a JSON object."""
        return {**asdict(self), "exact": self.exact}

    def lines(self) -> list[str]:
        """Format the verdict as a table for people."""
        rows = [
            ("planned", self.planned, ""),
            ("sent", self.sent, "accepted by the devices' outboxes"),
            ("delivered", self.delivered, "according to the devices"),
            (
                "logged",
                self.logged if self.logged is not None else "-",
                "distinct events in the gateway's log",
            ),
            ("duplicates", self.duplicates, "logged more than once"),
            ("missing", self.missing, "delivered according to the devices, but not logged"),
            ("unexpected", self.unexpected, "logged, but failed or never sent"),
            ("in doubt", self.in_doubt, f"of which logged: {self.in_doubt_logged}"),
            ("failed", self.failed, "certainly not delivered"),
            ("pending", self.pending, "still in an outbox"),
        ]
        table = [f"{name:<12}{count:>10}  {note}".rstrip() for name, count, note in rows]
        for name, keys in self.examples.items():
            table += [f"  {name}: {key}" for key in keys]
        word = "none" if self.logged is None else "exact" if self.exact else "NOT exact"
        return [*table, f"{'verdict':<12}{word:>10}"]


def judge(planned: int, believed: Mapping[Key, State], logged: Iterable[Key] | None) -> Verdict:
    """Compare the states of messages in the devices' outboxes with the gateway's event log.

    Args:
        planned: number of messages that the run was to send.
        believed: the state of each sent message according to its device.
        logged: the events of the run in the event log, with repetitions; None if there is no log.
    """
    times = Counter(logged or ())
    states = Counter(believed.values())
    found: dict[str, list[Key]] = {
        "duplicate": [key for key, count in times.items() if count > 1],
        "missing": [
            key
            for key, state in believed.items()
            if logged is not None and state is State.DONE and key not in times
        ],
        "unexpected": [k for k in times if believed.get(k, State.FAILED) is State.FAILED],
        "in doubt": [k for k, s in believed.items() if s is State.IN_DOUBT],
    }
    return Verdict(
        planned=planned,
        sent=len(believed),
        delivered=states[State.DONE],
        in_doubt=states[State.IN_DOUBT],
        in_doubt_logged=sum(key in times for key in found["in doubt"]),
        failed=states[State.FAILED],
        pending=sum(states[state] for state in LIVE),
        logged=None if logged is None else len(times),
        duplicates=sum(count - 1 for count in times.values()),
        missing=len(found["missing"]),
        unexpected=len(found["unexpected"]),
        examples={
            name: [f"{source} n={n}" for source, n in sorted(keys)[:SHOWN]]
            for name, keys in found.items()
            if keys
        },
    )
