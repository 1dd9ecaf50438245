"""The README's table that compares the gateway with other brokers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.report import milliseconds, number, table

if TYPE_CHECKING:
    from benchmarks.load import Measurement
    from benchmarks.peers import PeerRuns

README: Final = Path(__file__).parents[1] / "README.md"
BEGIN: Final = "<!-- comparison: written by `python -m benchmarks.peers --write` -->\n"
END: Final = "<!-- end of comparison -->\n"

ROWS: Final = ("gateway-mqtt", "gateway", "mosquitto-sqlite", "nats-sync", "rabbitmq", "prosody")
CONNECTIONS: Final = 50
NOT_MEASURED: Final = "not measured"

ABOUT: Final = (
    "Exchanges a second and latency (99 %) with {count} connections, in one run on one machine"
    " ([all measurements, machine and versions](benchmarks/results/peers.md)). The last columns"
    " are what recorded writes show: whether a broker syncs a message before it acknowledges it,"
    " and how many acknowledged messages were missing after power cuts at random moments"
    " ([what each loses](docs/explanation/power-cuts.md))."
)


def comparison(found: PeerRuns) -> str:
    """Return the paragraph and the table, with the connections nearest to `CONNECTIONS`."""
    counts = {case.connections for case in found.runs}
    if not counts:
        return ""
    count = min(counts, key=lambda count: abs(count - CONNECTIONS))
    head = (
        *("", "at least once", "exactly once", "memory, MB", "acknowledges"),
        "missing after power cuts",
    )
    rows = (_row(found, name, count) for name in ROWS if name in found.peers)
    return f"{ABOUT.format(count=count)}\n\n{table(head, rows)}\n"


def _row(found: PeerRuns, name: str, count: int) -> Sequence[str]:
    rates: dict[int, str] = {}
    for case, runs in found.runs.items():
        if case[:2] == ("log", count) and name in runs and not case.subscriber:
            rates[case.qos] = _rate(runs[name])
    memory = f"{found.memory[name][1] / 1e6:.0f}" if name in found.memory else NOT_MEASURED
    when = lost = NOT_MEASURED
    if (cuts := found.cuts.get(name)) is not None and cuts.cuts:
        when = "after a sync" if cuts.is_synced else "before a sync"
        lost = f"{cuts.missing} of {cuts.acknowledged}"
    return found.peers[name].label, rates.get(1, ""), rates.get(2, ""), memory, when, lost


def _rate(runs: Sequence[Measurement]) -> str:
    slow = milliseconds(median(run.slow for run in runs))
    return f"{number(median(run.rate for run in runs))}/s, {slow} ms"


def write(text: str, readme: Path = README) -> None:
    """Replace the README's text between the two marks."""
    before, begin, rest = readme.read_text("utf-8").partition(BEGIN)
    _old, end, after = rest.partition(END)
    assert begin, readme
    assert end, readme
    readme.write_text(f"{before}{begin}{text}{end}{after}", "utf-8")
