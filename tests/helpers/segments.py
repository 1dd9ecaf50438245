"""Create segments: headers, and events of typical sensors."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sync.segment import Event, SegmentHeader

EPOCH = "01J8ZQ4M7T5W3VX2A9B6C1D0EF"
START = 1_790_000_000_000


def header(first: int = 1, last: int = 1, **changes: Any) -> SegmentHeader:
    """Return a valid header for the events `first` to `last`."""
    base = SegmentHeader(
        gateway="gw7.site.example",
        epoch=EPOCH,
        lane="readings",
        first_seq=first,
        last_seq=last,
        previous=bytes(32),
        boot="01J8ZQ4M7T0000000000000000",
        sealed_at=START + 300_000,
        service_seconds=86_400.5,
        clock=True,
        firmware="Debian 12, Linux 6.6.31",
        software="0.1.0",
        config_hash=bytes(range(32)),
        disk_used=12_345_678,
    )
    return replace(base, **changes)


def readings(count: int, seed: int = 1) -> list[Event]:
    """Return readings of 20 devices, two fields each: jittered times, decimals, a few tags."""
    chance = random.Random(seed)
    time = START
    levels = [chance.uniform(5, 80) for _ in range(20)]
    events: list[Event] = []
    while len(events) < count:
        device = chance.randrange(20)
        time += int(chance.expovariate(1 / 350))
        qos = chance.choice((2, 2, 2, 1))
        latency = int(chance.lognormvariate(4, 0.8)) if qos == 2 else 0
        tags = {"node": f"n{device}", "timestamp": iso(time - latency - chance.randrange(40))}
        for name, unit, places in (("temperature", "Cel", 2), ("pressure", "bar", 3)):
            levels[device] += chance.gauss(0, 0.2)
            event = Event(
                seq=len(events) + 1,
                time=time,
                clock=True,
                kind="reading",
                source=f"pump{device:02d}@gw7.site.example/fw",
                name=name,
                value=round(levels[device], places),
                unit=unit,
                qos=qos,
                latency_ms=latency,
                tags=tags,
            )
            events.append(event)
    return events[:count]


def logs(count: int, seed: int = 1) -> list[Event]:
    """Return log events of 20 devices: ids, texts with numbers, more tags."""
    chance = random.Random(seed)
    time = START
    events = []
    texts = ("valve open at {} bar", "filter at {} over its limit", "battery {} %", "door closed")
    for seq in range(1, count + 1):
        device = chance.randrange(20)
        time += int(chance.expovariate(1 / 350))
        latency = int(chance.lognormvariate(4, 0.8))
        event = Event(
            seq=seq,
            time=time,
            clock=True,
            kind="log",
            source=f"pump{device:02d}@gw7.site.example/fw",
            name=f"{device:02d}-{seq:06d}",
            level=chance.choice(["Informational"] * 8 + ["Warning", "Error"]),
            text=chance.choice(texts).format(round(chance.uniform(1, 90), 1)),
            qos=2,
            latency_ms=latency,
            tags={
                "timestamp": iso(time - latency - chance.randrange(40)),
                "subject": f"pump{device:02d}",
                "module": chance.choice(("io", "net", "main")),
            },
        )
        events.append(event)
    return events


def iso(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"
