"""The README's table that compares the gateway with other brokers."""

from __future__ import annotations

import textwrap
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks import machine
from benchmarks.peer_servers import LEVELS
from benchmarks.report import number, table

if TYPE_CHECKING:
    from benchmarks.load import Measurement
    from benchmarks.peers import PeerRuns

README: Final = Path(__file__).parents[1] / "README.md"
BEGIN: Final = "<!-- comparison: written by `python -m benchmarks.peers --write` -->\n"
END: Final = "<!-- end of comparison -->\n"

ROWS: Final = (
    ("gateway-mqtt", 2),
    ("mosquitto-sqlite", 2),
    ("mosquitto-save", 2),
    ("mosquitto-memory", 2),
    ("gateway-mqtt", 1),
    ("nats-sync", 1),
    ("nats", 1),
    ("rabbitmq", 1),
    ("prosody", 1),
)
"""Servers, each with the QoS of its messages."""

FEW, MANY = 50, 500
WIDTH: Final = 120
NOT_MEASURED: Final = "not measured"
HEAD: Final = (
    *("", "delivers", f"messages/s: {FEW} devices", f"{MANY} devices", "processor, µs"),
    *("acknowledges", "lost in power cuts"),
)

ABOUT: Final = (
    "Messages a second from {few} and {many} devices, each of which waits for an answer before its"
    " next message, and the server's processor time for one message of {few} devices, in one run on"
    " {processor}. The last column counts acknowledged messages that were missing after power cuts"
    " at random moments, replayed from recorded writes ([how](docs/explanation/power-cuts.md))."
    " A server that acknowledges before a sync answers sooner. Fieldpost is written in Python: on a"
    " slower processor, it falls further behind servers in C and Go"
    " ([all measurements](benchmarks/results/peers.md))."
)


def comparison(found: PeerRuns) -> str:
    """Return the table, and what its columns mean; nothing if no server was measured."""
    measured = {
        (name, case.qos, case.connections): runs
        for case, each in found.runs.items()
        if case.payload == "log" and not case.subscriber
        for name, runs in each.items()
    }
    rows: list[tuple[str, ...]] = []
    for name, qos in ROWS:
        few, many = (measured.get((name, qos, count), []) for count in (FEW, MANY))
        if few or many:
            label = found.peers[name].label.replace("the gateway", "**Fieldpost**")
            numbers = _rate(few), _rate(many), _processor(few)
            rows.append((label, LEVELS[qos], *numbers, *_losses(found, name)))
    about = ABOUT.format(few=FEW, many=MANY, processor=machine.processor())
    about = textwrap.fill(about, WIDTH, break_long_words=False, break_on_hyphens=False)
    return f"{table(HEAD, rows)}\n\n{about}\n" if rows else ""


def _rate(runs: list[Measurement]) -> str:
    return number(median(run.rate for run in runs)) if runs else NOT_MEASURED


def _processor(runs: list[Measurement]) -> str:
    used = [1e6 * (run.server_main + run.server_others) / run.exchanges for run in runs]
    return number(median(used)) if used else NOT_MEASURED


def _losses(found: PeerRuns, name: str) -> tuple[str, str]:
    """Return when a server acknowledges, and what it lost."""
    if (cuts := found.cuts.get(name)) is None or not cuts.cuts:
        return NOT_MEASURED, NOT_MEASURED
    when = "after a sync" if cuts.is_synced else "before a sync"
    return when, f"{cuts.missing} of {cuts.acknowledged}"


def write(text: str, readme: Path = README) -> None:
    """Replace the README's text between the two marks."""
    before, begin, rest = readme.read_text("utf-8").partition(BEGIN)
    _old, end, after = rest.partition(END)
    assert begin, readme
    assert end, readme
    readme.write_text(f"{before}{begin}{text}{end}{after}", "utf-8")
