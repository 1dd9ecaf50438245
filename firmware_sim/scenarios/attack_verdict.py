"""The verdict of an attack: memory, response times, honest messages, and logged refusals.

The refusals of an attack are found in the gateway's event log by its source (account or address).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from firmware_sim.scenarios.count_verdict import Verdict

MIB: Final = 1024 * 1024

_SESSION_BYTES: Final = 114 * 1024
"""Maximum memory of a connection, in bytes: 50 KiB with TLS, and a send buffer of 64 KiB."""


class Refusals(NamedTuple):
    """The number of refusals that the gateway logged, by source (account or address) and rule."""

    counts: Mapping[tuple[str, str], int]

    @classmethod
    def of(cls, events: Iterable[Mapping[str, Any]]) -> Refusals:
        """Count the refusals in the events of kind `limit`."""
        found: Counter[tuple[str, str]] = Counter()
        for event in events:
            if event.get("kind") == "limit":
                key = (str(event.get("source") or ""), str(event["name"]))
                found[key] += round(event.get("value") or 1)
        return cls(found)

    def by(self, source: str, rules: Sequence[str]) -> Mapping[str, int]:
        """Return the number of refusals of a source by each of `rules`, omitting zeros."""
        found = {rule: self.counts.get((source, rule), 0) for rule in rules}
        return {rule: count for rule, count in found.items() if count}

    def total(self, source: str) -> int:
        """Return the number of refusals of a source by any rule."""
        return sum(count for (who, _), count in self.counts.items() if who == source)


class AttackResult(NamedTuple):
    """The counts of one attack: stanzas sent, errors received, connections closed, and refusals.

    `logged` counts the logged refusals by each expected rule, `total` those by any rule.
    """

    name: str
    sent: int
    refused: int
    closed: int
    logged: Mapping[str, int]
    total: int

    @property
    def reported(self) -> bool:
        """Return whether the log has an expected rule, and all refusals that the attack met."""
        return bool(self.logged) and self.total >= self.refused + self.closed


class ResponseTimes(NamedTuple):
    """The response times of one phase: their number, and in seconds the percentiles and maximum."""

    answers: int
    p50: float
    p99: float
    most: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> ResponseTimes:
        """Summarise response times in seconds; all values are 0 if there are none."""
        row = sorted(seconds)
        if not row:
            return cls(0, 0.0, 0.0, 0.0)
        return cls(len(row), _at(row, 0.5), _at(row, 0.99), row[-1])


@dataclass(frozen=True, slots=True)
class AttackVerdict:
    """The result of an attack.

    `idle`, `peak` and `ceiling` are bytes of the gateway's resident memory. `times` is the allowed
    ratio of the 99th percentile of response times during the attack to that of the calmer quiet
    phase; if it is infinite, response times are not judged.
    """

    idle: int
    peak: int
    ceiling: int
    quiet: tuple[ResponseTimes, ResponseTimes]
    busy: ResponseTimes
    times: float
    honest: Verdict
    attacks: tuple[AttackResult, ...]
    survived: bool

    @property
    def ratio(self) -> float:
        """The p99 of response times under attack, divided by the lower one of the quiet phases."""
        calm = min((times.p99 for times in self.quiet if times.answers), default=0.0)
        return self.busy.p99 / calm if calm else math.inf

    @property
    def faults(self) -> list[str]:
        """Descriptions of the faults of the run; empty if there are none."""
        found = {
            "the gateway ended early, failed to stop, or printed a traceback": not self.survived,
            "the gateway used more memory than the ceiling": self.peak > self.ceiling,
            f"p99 under attack is more than {self.times:g} times the quiet p99": self.ratio
            > self.times,
            "an honest device lost or repeated a message": not self.honest.exact,
        }
        unreported = [
            f"refusals are missing in the event log: {row.name}"
            for row in self.attacks
            if not row.reported
        ]
        return [word for word, is_so in found.items() if is_so] + unreported

    @property
    def passed(self) -> bool:
        """Return whether the run had no fault."""
        return not self.faults

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as a JSON object."""
        return {
            "memory_mib": {
                "idle": round(self.idle / MIB, 1),
                "peak": round(self.peak / MIB, 1),
                "ceiling": round(self.ceiling / MIB, 1),
            },
            "quiet_ms": [_milliseconds(times) for times in self.quiet],
            "attack_ms": _milliseconds(self.busy),
            "p99_ratio": round(self.ratio, 2) if math.isfinite(self.ratio) else None,
            "honest": self.honest.as_json(),
            "attacks": [row._asdict() | {"told": row.reported} for row in self.attacks],
            "faults": self.faults,
            "passed": self.passed,
        }

    def lines(self) -> list[str]:
        """Format the verdict as tables for people."""
        head = f"{'attack':<32}{'sent':>9}{'refused':>9}{'closed':>8}  logged, by rule"
        table = [head, *(_row(row) for row in self.attacks)]
        table += ["", f"{'answers':<12}{'number':>8}{'p50 ms':>9}{'p99 ms':>9}{'most ms':>9}"]
        before, after = self.quiet
        table += [_answers("quiet", before), _answers("attacked", self.busy)]
        table += [_answers("quiet again", after)]
        allowed = f"of {self.times:g} allowed" if math.isfinite(self.times) else "not judged"
        table.append(f"p99 under attack is {self.ratio:.2f} times the quiet p99, {allowed}")
        table.append(
            f"memory {self.idle / MIB:.1f} MiB idle, {self.peak / MIB:.1f} MiB at most,"
            f" of {self.ceiling / MIB:.1f} MiB allowed"
        )
        table += ["", "honest devices:", *self.honest.lines()[:-1]]
        table += [f"  fault: {fault}" for fault in self.faults]
        return [*table, f"{'verdict':<12}{'passed' if self.passed else 'NOT passed':>10}"]


def ceiling(limits: Mapping[str, float], idle: int, accounts: int) -> int:
    """Return the allowed resident memory of the gateway in bytes, computed from its limits.

    It is the sum of its idle memory, the unacknowledged stanzas of all sessions, twice the bytes
    that can wait for a commit, and the memory of all connections that unauthenticated peers and the
    `accounts` can have.
    """
    sessions = min(limits["sessions"], accounts * limits["sessions_per_account"])
    connections = limits["unauthenticated"] + sessions
    buffers = limits["unacknowledged_total_bytes"] + 2 * limits["waiting_bytes"]
    return round(idle + buffers + connections * _SESSION_BYTES)


def _at(row: Sequence[float], part: float) -> float:
    return row[min(len(row) - 1, math.ceil(part * len(row)) - 1)]


def _milliseconds(times: ResponseTimes) -> dict[str, float]:
    found = times._asdict()
    return {"answers": found.pop("answers"), **{k: round(1000 * v, 2) for k, v in found.items()}}


def _answers(name: str, times: ResponseTimes) -> str:
    return f"{name:<12}{times.answers:>8}" + "".join(f"{1000 * s:>9.1f}" for s in times[1:])


def _row(row: AttackResult) -> str:
    logged = ", ".join(f"{rule} {count}" for rule, count in row.logged.items())
    word = logged if row.reported else f"{logged or 'nothing'}  NOT ALL LOGGED"
    return f"{row.name:<32}{row.sent:>9}{row.refused:>9}{row.closed:>8}  {word}"
