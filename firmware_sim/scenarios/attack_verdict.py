"""The verdict of an attack: memory, response times, honest messages, and logged refusals.

The refusals of an attack are found in the gateway's event log by its source (account or address).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from firmware_sim.scenarios.verdict import Verdict, by_name, row

MIB: Final = 1024 * 1024

_SESSION_BYTES: Final = 114 * 1024
"""Maximum memory of a connection, in bytes: 50 KiB with TLS, and a send buffer of 64 KiB."""


def count_refusals(events: Iterable[Mapping[str, Any]]) -> Mapping[str, Counter[str]]:
    """Count the refusals in the events of kind `limit`, by source and rule."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for event in events:
        if event.get("kind") == "limit":
            found[event.get("source") or ""][event["name"]] += round(event.get("value") or 1)
    return found


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
        ordered = sorted(seconds)
        if not ordered:
            return cls(0, 0.0, 0.0, 0.0)
        return cls(len(ordered), _at(ordered, 0.5), _at(ordered, 0.99), ordered[-1])

    def in_milliseconds(self) -> dict[str, float]:
        """Return the number of response times, and their percentiles and maximum in ms."""
        found = self._asdict()
        return {"answers": found.pop("answers"), **{k: round(1e3 * v, 2) for k, v in found.items()}}


@dataclass(frozen=True, slots=True)
class AttackEvidence:
    """The measurements before, during and after an attack.

    `idle`, `peak` and `ceiling` are bytes of the gateway's resident memory. `times` is the allowed
    ratio of the 99th percentile of response times during the attack to that of the calmer quiet
    phase; if it is infinite, response times are not judged. `honest` is the verdict on the messages
    of the honest devices.
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


def judge(found: AttackEvidence) -> Verdict:
    """Return the verdict of an attack."""
    ratio = found.ratio
    memory = {name: round(getattr(found, name) / MIB, 1) for name in ("idle", "peak", "ceiling")}
    allowed = f"of {found.times:g} allowed" if math.isfinite(found.times) else "not judged"
    slower = f"p99 under attack is {ratio:.2f} times the quiet p99, {allowed}"
    used = (
        f"memory {memory['idle']} MiB idle, {memory['peak']} MiB at most,"
        f" of {memory['ceiling']} MiB allowed"
    )
    phases = zip(
        ("quiet", "attacked", "quiet again"),
        (found.quiet[0], found.busy, found.quiet[1]),
        strict=True,
    )
    return Verdict(
        {
            "memory_mib": memory,
            "quiet_ms": [times.in_milliseconds() for times in found.quiet],
            "attack_ms": found.busy.in_milliseconds(),
            "p99_ratio": round(ratio, 2) if math.isfinite(ratio) else None,
            "honest": found.honest.as_json(),
            "attacks": [each._asdict() | {"told": each.reported} for each in found.attacks],
        },
        [
            f"{'attack':<32}{'sent':>9}{'refused':>9}{'closed':>8}  logged, by rule",
            *(_line(each) for each in found.attacks),
            "",
            row("answers", "number", "p50 ms", "p99 ms", "most ms"),
            *(row(name, *times.in_milliseconds().values()) for name, times in phases),
            slower,
            used,
            "",
            "honest devices:",
            *found.honest.lines()[:-1],
        ],
        by_name(_faults(found, used, slower)),
        word="passed",
    )


def _faults(found: AttackEvidence, used: str, slower: str) -> Iterator[tuple[str, str]]:
    if not found.survived:
        yield "the gateway ended early, failed to stop, or printed a traceback", "see its log"
    if found.peak > found.ceiling:
        yield "the gateway used more memory than the ceiling", used
    if found.ratio > found.times:
        yield f"p99 under attack is more than {found.times:g} times the quiet p99", slower
    if not found.honest.exact:
        yield "an honest device lost or repeated a message", ", ".join(found.honest.faults)
    for each in found.attacks:
        if not each.reported:
            yield "refusals are missing in the event log", each.name


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


def _at(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1)]


def _line(each: AttackResult) -> str:
    logged = ", ".join(f"{rule} {count}" for rule, count in each.logged.items())
    word = logged if each.reported else f"{logged or 'nothing'}  NOT ALL LOGGED"
    return f"{each.name:<32}{each.sent:>9}{each.refused:>9}{each.closed:>8}  {word}"
