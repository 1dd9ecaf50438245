"""Benchmark: messages from device to device through the gateway's custody, assured on both hops."""

from __future__ import annotations

from typing import Final

from benchmarks import load, server
from benchmarks.exchanges import saturated
from benchmarks.load import Measurement
from benchmarks.report import Settings, Topic, milliseconds, number, table

PAIRS: Final = (1, 25, 250)


def measure(settings: Settings) -> Topic:
    """Measure pairs of devices, and as many devices that exchange with the gateway's event log."""
    folder = settings.folder / "relay"
    server.prepare(folder, 2 * max(PAIRS))
    with server.gateway(folder) as gateway:
        found = [(pairs, *_run(settings, gateway, pairs)) for pairs in PAIRS]
    blocks = (
        "A device offers the gateway an assured message for another device's bare JID, and the"
        " gateway forwards it as assured: eight stanzas and four durable steps. Each pair has one"
        " message in flight; its latency is from the offer until the recipient receives the"
        " `deliver`. The last columns, from the same run, are exchanges with the gateway itself"
        " on as many connections as there are pairs, and the number of exchanges that cost as"
        " much as one message.",
        table(
            (
                *("pairs", "messages/s", "median, ms", "99 %, ms", "event loop", "database"),
                *("saturated", "exchanges/s", "exchanges per message"),
            ),
            [_row(*each) for each in found],
        ),
    )
    return Topic("relay", "Messages from device to device, assured on both hops", blocks)


def _run(settings: Settings, gateway: server.Server, pairs: int) -> tuple[Measurement, Measurement]:
    host, port, _ca = gateway.address
    times = (settings.choose(2.0, 0.2), settings.choose(6.0, 0.5), gateway.pid)
    relayed = load.run("benchmarks.relay_load", load.Plan(host, port, pairs, *times))
    options = load.exchange_options(gateway.address, pairs)
    return relayed, load.measure_exchanges(options, *times)


def _row(pairs: int, relayed: Measurement, exchanged: Measurement) -> tuple[object, ...]:
    used = (relayed.server_main, relayed.server_others)
    return (
        pairs,
        number(relayed.rate),
        milliseconds(relayed.median),
        milliseconds(relayed.slow),
        *(f"{100 * seconds / relayed.seconds:.0f}" for seconds in used),
        saturated(relayed),
        number(exchanged.rate),
        number(exchanged.rate / relayed.rate) if relayed.rate else "-",
    )
