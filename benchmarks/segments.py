"""Benchmark: segments against gzipped JSON lines and row-wise CBOR, in bytes and encoding time.

All three contain the same events, without what a segment's header states once, and are compressed
by zlib at level 6; absent values take no space in any of them.
"""

from __future__ import annotations

import gzip
import json
import statistics
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import cbor2
import msgspec

from benchmarks import fleet_data
from benchmarks.report import Goal, Settings, Topic, number, table
from firmware_sim.fleet.plan import Plan, make_plans
from sync.segment import Event, SegmentHeader, encode

SIZES: Final = {500: 1.6, 2_000: 1.8}
"""Events of a segment, and the required ratio of both alternatives' sizes to its size."""

FASTER: Final = 3.0
"""Required ratio of the encoding speed to that of both alternatives."""

SMALL: Final = {"readings": 14, "logs": 2, "system": 5}
"""Events of each lane in five minutes of a gateway with 4,000 readings per day."""

DAYS: Final = 9
"""Days that are simulated: in so many a gateway logs 2,000 events."""

ROUNDS: Final = 20
"""Rounds in which all formats alternate."""

_LEVEL: Final = 6


class Mix(NamedTuple):
    """Events of one kind; all sizes are taken from their beginning."""

    name: str
    lane: str
    events: Sequence[Event]


def mixes() -> list[Mix]:
    """Return the lanes of a simulated gateway, and readings with more fields than it logs."""
    fleet = fleet_data.fleet(1, DAYS)
    lanes = {
        lane: fleet_data.events_of(fleet, lane, max(SIZES))
        for lane in ("readings", "logs", "system")
    }
    tagged = [event._replace(tags=_tags(event)) for event in lanes["readings"]]
    return [
        Mix("readings", "readings", lanes["readings"]),
        Mix("readings with device times", "readings", tagged),
        Mix("logs", "logs", lanes["logs"]),
        Mix("system", "system", lanes["system"]),
    ]


def rows(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return events as maps without absent values."""
    return [
        {
            name: value
            for name, value in event._asdict().items()
            if value is not None and value != {}
        }
        for event in events
    ]


def as_json(events: Sequence[Event]) -> bytes:
    """Encode JSON lines with the standard library, compressed."""
    lines = (
        json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=dict)
        for row in rows(events)
    )
    return gzip.compress("\n".join(lines).encode(), _LEVEL)


def as_fast_json(events: Sequence[Event]) -> bytes:
    """Encode the same with msgspec, the fastest JSON encoder among the dependencies."""
    return gzip.compress(msgspec.json.Encoder().encode_lines(rows(events)), _LEVEL)


def as_cbor(events: Sequence[Event]) -> bytes:
    """Encode each event as a CBOR map, concatenated and compressed."""
    return zlib.compress(b"".join(cbor2.dumps(row) for row in rows(events)), _LEVEL)


OTHERS: Final[dict[str, Callable[[Sequence[Event]], bytes]]] = {
    "JSON": as_json,
    "JSON by msgspec": as_fast_json,
    "CBOR": as_cbor,
}
"""The alternatives to segments."""


class Comparison(NamedTuple):
    """Bytes and microseconds per event of one mix and size, by format; segments are `ours`."""

    mix: str
    size: int
    sizes: dict[str, float]
    times: dict[str, float]
    faster: dict[str, list[float]]

    def smaller(self, other: str) -> float:
        """Return the ratio of an alternative's size to a segment's."""
        return self.sizes[other] / self.sizes[OURS]


OURS: Final = "segment"


def compare(mix: Mix, size: int, rounds: int) -> Comparison:
    """Encode the same events in every format, alternating."""
    events = [event._replace(tags=dict(event.tags)) for event in mix.events[:size]]
    head = fleet_data.header(_plan(), mix.lane, 1, len(events), bytes(32))
    encoders = {OURS: _ours(head)} | OTHERS
    lengths = {name: len(encoder(events)) / len(events) for name, encoder in encoders.items()}
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    for _ in range(rounds):
        for name, encoder in encoders.items():
            began = time.process_time()
            encoder(events)
            seconds[name].append(time.process_time() - began)
    faster = {
        name: sorted(other / ours for other, ours in zip(seconds[name], seconds[OURS], strict=True))
        for name in OTHERS
    }
    times = {name: statistics.median(each) / len(events) for name, each in seconds.items()}
    return Comparison(mix.name, len(events), lengths, times, faster)


def measure(settings: Settings) -> Topic:
    """Measure every mix at every size."""
    rounds = round(settings.choose(ROUNDS, 2))
    found = [compare(mix, size, rounds) for mix in mixes() for size in SIZES]
    blocks = (
        "Events of a simulated gateway (`fieldpost-sim fleet`, no faults): readings of eight"
        " sensors; the same with a time and a node from the device; logs; and the gateway's own"
        " events, mostly heartbeats. JSON lines are compressed by gzip, CBOR maps by zlib, both"
        f" at level {_LEVEL}. Only a segment contains a checksum, the gateway, the epoch and the"
        " lane.",
        "Bytes per event:",
        table(
            ("events", "events per segment", OURS, *OTHERS, "smaller than JSON", "than CBOR"),
            [_sizes(each) for each in found],
        ),
        f"Processor time to encode, in us per event: medians of {rounds} rounds in which all"
        " formats alternate. Ratios are medians, with the smallest and the largest in brackets.",
        table(
            (
                "events",
                "events per segment",
                OURS,
                *OTHERS,
                *(f"faster than {name}" for name in OTHERS),
            ),
            [_times(each) for each in found],
        ),
        "Whole files that a gateway with few events seals every five minutes:",
        table(("events", "events per file", "bytes", "JSON", "times smaller"), _small_files()),
    )
    return Topic("segments", "Segments against JSON lines and CBOR", blocks, list(_goals(found)))


def _small_files() -> Iterable[tuple[object, ...]]:
    """Measure the size of files of few events, which is mostly their header."""
    for mix in mixes():
        if mix.name == mix.lane:
            events = mix.events[100 : 100 + SMALL[mix.lane]]
            numbered = [event._replace(seq=seq) for seq, event in enumerate(events, 1)]
            head = fleet_data.header(_plan(), mix.lane, 1, len(numbered), bytes(range(32)))
            ours, json_ = len(encode(head, numbered)), len(as_json(numbered))
            yield mix.name, len(numbered), ours, json_, f"{json_ / ours:.2f}"


def _plan() -> Plan:
    return make_plans(fleet_data.fleet(1, DAYS))[0]


def _goals(found: Sequence[Comparison]) -> Iterable[Goal]:
    for size, aim in SIZES.items():
        least = min(each.smaller(n) for each in found if each.size == size for n in OTHERS)
        text = f"with {size:,} events per segment at least {least:.2f} times smaller (goal: {aim})"
        yield Goal(text, least >= aim)
    for other in ("JSON", "CBOR"):
        least = min(statistics.median(each.faster[other]) for each in found)
        text = f"at least {least:.1f} times as fast to encode as {other} (goal: {FASTER:g})"
        yield Goal(text, least >= FASTER)


def _sizes(each: Comparison) -> tuple[object, ...]:
    smaller = (f"{each.smaller(name):.2f}" for name in ("JSON", "CBOR"))
    lengths = (number(length) for length in each.sizes.values())
    return each.mix, f"{each.size:,}", *lengths, *smaller


def _times(each: Comparison) -> tuple[object, ...]:
    times = (number(seconds * 1e6) for seconds in each.times.values())
    faster = (
        f"{statistics.median(ratios):.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})"
        for ratios in each.faster.values()
    )
    return each.mix, f"{each.size:,}", *times, *faster


def _tags(event: Event) -> dict[str, str]:
    sent = event.time - (event.latency_ms or 0) - event.seq * 7 % 40
    return {"node": event.topic or "", "timestamp": _iso(sent)}


def _iso(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:03d}Z"


def _ours(head: SegmentHeader) -> Callable[[Sequence[Event]], bytes]:
    return lambda events: encode(head, events)
