"""Benchmark: exchanges through the gateway and other brokers, and what each loses in power cuts.

`python -m benchmarks.peers` measures what its options select, for example two checkouts against
each other: `python -m benchmarks.peers --other ../before --peers gateway --connections 50`. With
`--write`, it writes its page, and its short table in the README. The topic `mqtt` has the same
options.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Final, NamedTuple

from benchmarks import load, machine, native, payload, power_cuts, readme, report, usage
from benchmarks.load import Measurement
from benchmarks.peer import Target
from benchmarks.peer_servers import (
    CREATE,
    DURABLE,
    LEVELS,
    NODE,
    PEERS,
    PUBSUB,
    STREAM,
    Options,
    Peer,
)
from benchmarks.power_cuts import PowerCuts
from benchmarks.report import Goal, Settings, Topic, milliseconds, number, table
from benchmarks.server import Server
from edge.mqtt.packets import V5, V311

PAYLOADS: Final = {"log": payload.LOG_EVENT, "sensor": payload.SENSOR_DATA}

AWAY: Final = "away"
"""A subscriber that is not connected during a measurement."""

TITLES: Final = {"log": "Log events with a tag", "sensor": "Sensor data"}

DELAYED: Final = ("gateway", "other")
"""Servers that are also measured with slow fsync."""

MORE_OPTIONS: Final = {
    "pubsub": {"to": PUBSUB, "first": CREATE},
    "nats": {"to": NODE, "first": json.dumps(STREAM)},
    "amqp": {"to": NODE},
}
"""Options of the load generator by protocol."""

QUIET: Final = 0.05
"""Share of a core below which a server counts as idle."""

SETTLE_TIME: Final = 10.0
"""Seconds to wait until a server is idle after its measurement: a gateway may still be sealing."""

ABOUT: Final = (
    "One load generator in C, closed loop, with {window} exchange{s} in flight for each"
    " connection; each connection has an account of its own, and every answer is checked. Exactly"
    " once, an exchange is `assured`, `received`, `deliver`, empty result at the gateway, and QoS 2"
    " over MQTT. At least once, it is QoS 1 over MQTT, a message that a stream of NATS JetStream"
    " acknowledges, a persistent message that a quorum queue of RabbitMQ confirms, or an item"
    " published to Prosody. Over MQTT, sessions are persistent and messages retained, without a"
    " subscriber, or with one that is away and gets all messages after the measurement (its queue"
    " is empty at the start). The gateway's limits of rate and its card's write budget are raised,"
    " except in the default configuration: that reads 100 stanzas a second from a connection after"
    " the first 500, and batches commits above its budget."
)

ABOUT_MOSQUITTO: Final = (
    "The plugin `persist-sqlite` has `sync full` and `flush_period 0`, so that each change is"
    " committed to SQLite, except where it has its defaults; without it, mosquitto writes its whole"
    " file at each save, or keeps all in memory. After each measurement with MQTT, a subscriber"
    " counts the messages that the server has: all, if it was subscribed; else each connection's"
    " last one, because that is retained."
)

ABOUT_VALUES: Final = (
    "All servers run throughout, and are measured in turn in {rounds} round{s}, except RabbitMQ:"
    " that runs alone, after the others have ended. Values are medians"
    " of the rounds, with the lowest and highest in brackets; the ratio is that of the gateway's"
    " rate to this rate in the same round. Processor time is the server's, in us per exchange, of"
    " its main thread and of its other threads and processes; the"
    " generator's is in % of one core. The bytes written are those of /proc/PID/io, per exchange:"
    " whole pages, without the file system's journal."
)

ABOUT_MEMORY: Final = (
    "Resident memory of the server's processes: after its start, and with {sessions} sessions that"
    " are idle, without TLS unless the server's name says so."
)

ABOUT_SYNCS: Final = (
    "With a slower fsync, the last column compares the rate with what one sync a group allows:"
    " connections / (2 * delay + connections / rate without the delay). All connections share each"
    " group, an exchange needs two groups, and a group without the delay takes as long as its share"
    " of the rate that the gateway has in the same round without the delay."
)


class Plan(NamedTuple):
    """The selection to measure; for each of `fsync_ms` some servers also run with slow fsync."""

    peers: Sequence[str] = tuple(DURABLE)
    connections: Sequence[int] = (1, 50, 500)
    payloads: Sequence[str] = tuple(PAYLOADS)
    rounds: int = 5
    seconds: float = 2.0
    warm_up: float = 0.5
    window: int = 1
    fsync_ms: Sequence[float] = ()
    other: Path | None = None
    chroot: Path | None = None
    cuts: int = 20
    """Power cuts of each server."""
    base: str = "gateway"
    """The server with which all others are compared, or `gateway-mqtt` if it has no run."""
    qos: Sequence[int] = (1, 2)
    """Of MQTT; other protocols have one of them (`Peer.qos`)."""
    subscribers: Sequence[str] = ("",)
    """Of MQTT, for servers whose subscriber is not always the same."""
    version: int = V311
    """Of MQTT."""

    def quick(self) -> Plan:
        """Return a plan that only checks that everything runs."""
        few = tuple(min(count, 4) for count in self.connections[:2])
        return self._replace(
            connections=few,
            payloads=self.payloads[:1],
            rounds=1,
            seconds=0.3,
            warm_up=0.1,
            cuts=min(self.cuts, 1),
        )


class Case(NamedTuple):
    """A payload and a number of connections; for MQTT also the QoS and the subscriber."""

    payload: str
    connections: int
    qos: int = 2
    subscriber: str = ""

    @property
    def title(self) -> str:
        """The payload and the number of connections, for people."""
        plural = "s" if self.connections > 1 else ""
        return f"{TITLES[self.payload]}, {self.connections} connection{plural}"


class PeerRuns(NamedTuple):
    """The servers by name, and for each case the measurements of each, one a round."""

    peers: dict[str, Peer]
    runs: dict[Case, dict[str, list[Measurement]]]
    memory: Mapping[str, tuple[int, int]] = MappingProxyType({})
    """Of each server: its resident bytes after its start, and with idle sessions."""
    cuts: Mapping[str, PowerCuts] = MappingProxyType({})
    recovered: Mapping[tuple[str, int], Measurement] = MappingProxyType({})
    """By server and QoS of MQTT: what a server has kept that was killed and started again."""


def measure(settings: Settings) -> Topic:
    """Measure all servers that are installed."""
    plan = Plan(fsync_ms=(10, 20))
    plan = plan.quick() if settings.quick else plan
    return topic(plan, run(plan, settings.folder))


def run(plan: Plan, folder: Path) -> PeerRuns:
    """Measure all servers, in turn if they can run beside each other; then cut their power."""
    usage.raise_descriptors()
    peers = select(plan)
    together = [name for name, peer in peers.items() if not peer.alone]
    groups = [together, *([name] for name, peer in peers.items() if peer.alone)]
    runs: dict[Case, dict[str, list[Measurement]]] = {}
    for case in _cases(plan) if plan.rounds else ():
        if names := [name for name, peer in peers.items() if _takes(peer, case.qos)]:
            runs[case] = {name: [] for name in names}
    memory: dict[str, tuple[int, int]] = {}
    for names in filter(None, groups if plan.rounds else ()):
        chosen = {name: peers[name] for name in names}
        memory |= _measure_in_turn(plan, chosen, folder, runs)
    return PeerRuns(peers, runs, memory, cut_all(plan, peers, folder))


def _cases(plan: Plan) -> Iterator[Case]:
    for name in plan.payloads:
        for qos in plan.qos:
            for subscriber in plan.subscribers:
                if qos or subscriber != AWAY:  # no message of QoS 0 waits for a subscriber
                    for count in plan.connections:
                        yield Case(name, count, qos, subscriber)


def _takes(peer: Peer, qos: int) -> bool:
    return peer.protocol == "mqtt" or peer.qos == qos


def _measure_in_turn(
    plan: Plan,
    peers: dict[str, Peer],
    folder: Path,
    found: dict[Case, dict[str, list[Measurement]]],
) -> dict[str, tuple[int, int]]:
    """Start some servers and measure them in turn, with a different one first in each round.

    Add to the measurements; return the memory of each server.
    """
    names, memory = list(peers), {}
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(start(plan, peer, folder / name))
            for name, peer in peers.items()
        }
        for name, server in servers.items():
            idle = usage.resident(server.pid)
            case = Case(plan.payloads[0], max(plan.connections))
            options = load_options(plan, case, peers[name], server.address)
            memory[name] = idle, load.session_memory(options, server.pid)
        for turn in range(plan.rounds):
            first = turn % len(names)
            for case, runs in found.items():
                for name in filter(runs.__contains__, names[first:] + names[:first]):
                    server = servers[name]
                    options = load_options(plan, case, peers[name], server.address)
                    times = plan.warm_up, plan.seconds
                    measured = load.measure_exchanges(options, *times, server.pid)
                    runs[name].append(measured)
                    _settle(server.pid)
                    _report(
                        f"round {turn + 1}, {', '.join(map(str, case))}: {name}"
                        f" {measured.rate:.0f}/s, {measured.missing} missing"
                    )
    return memory


def cut_all(plan: Plan, peers: dict[str, Peer], folder: Path) -> dict[str, PowerCuts]:
    """Cut the power of each server whose cuts can be observed."""
    found: dict[str, PowerCuts] = {}
    for name, peer in peers.items():
        if plan.cuts and power_cuts.is_possible(peer):
            case = Case(plan.payloads[0], power_cuts.CONNECTIONS)
            options = _options(plan, peer, folder / f"{name}-cuts", case.connections)
            ask = partial(load_options, plan, case, peer)
            try:
                found[name] = power_cuts.measure(peer, options, ask, plan.cuts)
            except power_cuts.FAILURES as error:  # the measurements before it took long
                found[name] = PowerCuts(f"not observed: {type(error).__name__}")
                _report(f"power cuts: {name} failed: {error}")
            else:
                _report(f"power cuts: {name}, {found[name].missing} missing")
    return found


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def select(plan: Plan) -> dict[str, Peer]:
    """Return the servers to start: those that are selected and installed, and their variants."""
    root = plan.chroot
    chosen = {name: PEERS[name] for name in plan.peers if PEERS[name].is_installed(root)}
    if plan.other is not None:
        for name, peer in tuple(chosen.items()):
            if name.startswith("gateway"):
                label = peer.label.replace("the gateway", "the other checkout")
                chosen[name.replace("gateway", "other")] = peer._replace(
                    label=label, checkout=plan.other
                )
    for name, peer in tuple(chosen.items()):
        if name in DELAYED:
            for delay in plan.fsync_ms:
                label = f"{peer.label}, fsync {delay:g} ms slower"
                chosen[f"{name}+{delay:g}ms"] = peer._replace(label=label, fsync_delay=delay / 1000)
    return chosen


def start(plan: Plan, peer: Peer, folder: Path) -> AbstractContextManager[Server]:
    """Run a server with its data in a folder; one that exists is used again."""
    return peer.start(_options(plan, peer, folder, max(plan.connections)))


def _options(plan: Plan, peer: Peer, folder: Path, accounts: int) -> Options:
    return Options(folder, accounts, peer.checkout, peer.fsync_delay, plan.chroot)


def load_options(plan: Plan, case: Case, peer: Peer, address: Target) -> dict[str, object]:
    """Return the options of the load generator."""
    body = PAYLOADS[case.payload]
    options = load.exchange_options(address, case.connections, body, tls=peer.tls)
    options |= {"protocol": peer.protocol, "window": plan.window, "version": plan.version}
    options |= {"qos": case.qos, "subscriber": peer.subscriber or case.subscriber}
    return options | MORE_OPTIONS.get(peer.protocol, {})


def _settle(pid: int) -> None:
    """Wait until a server is idle, so that its work does not slow the next one."""
    end = time.monotonic() + SETTLE_TIME
    while time.monotonic() < end:
        before = usage.processor(pid)
        time.sleep(0.1)
        if sum(usage.processor(pid).since(before)) < 0.1 * QUIET:
            break


def topic(plan: Plan, found: PeerRuns) -> Topic:
    """Describe the results."""
    blocks = [versions(plan)]
    if plan.rounds:
        blocks.append(ABOUT.format(window=plan.window, s="s" if plan.window > 1 else ""))
        blocks += [ABOUT_MOSQUITTO, about_values(plan)]
    if plan.fsync_ms:
        blocks.append(ABOUT_SYNCS)
    blocks += case_blocks(plan, found, lambda case: f"{case.title}, {LEVELS[case.qos]}")
    if found.memory:
        blocks += _memory_blocks(plan, found)
    if found.cuts:
        by_label = {found.peers[name].label: each for name, each in found.cuts.items()}
        blocks += power_cuts.blocks(by_label)
    title = "Exchanges through the gateway and through other servers"
    return Topic("peers", title, blocks, goals(found), readme.comparison(found))


def _memory_blocks(plan: Plan, found: PeerRuns) -> Iterator[str]:
    sessions = max(plan.connections)
    yield "## Memory"
    yield ABOUT_MEMORY.format(sessions=sessions)
    yield table(
        ("", "idle, MB", f"{sessions} sessions, MB"),
        (
            (found.peers[name].label, f"{idle / 1e6:.1f}", f"{full / 1e6:.1f}")
            for name, (idle, full) in found.memory.items()
        ),
    )


def about_values(plan: Plan) -> str:
    """Return the paragraph about the values of the tables."""
    return ABOUT_VALUES.format(rounds=plan.rounds, s="s" if plan.rounds > 1 else "")


def case_blocks(plan: Plan, found: PeerRuns, title: Callable[[Case], str]) -> Iterator[str]:
    """Return a heading and a table for each case."""
    for case, runs in found.runs.items():
        yield f"## {title(case)}"
        yield _table(plan, case, found.peers, runs)


def versions(plan: Plan) -> str:
    """Return lines with the versions of the other checkout and of the programs."""
    other = plan.other
    lines = [] if other is None else [f"The other checkout: {machine.describe_checkout(other)}."]
    chosen = [PEERS[name] for name in plan.peers if PEERS[name].needs]
    for peer in {(peer.needs, peer.other_root): peer for peer in chosen}.values():
        where = " of the other system" if peer.other_root else ""
        version = "not installed, so not measured"
        if peer.is_installed(plan.chroot):
            version = _package_version(peer.needs, plan.chroot if peer.other_root else None)
        lines.append(f"{peer.needs}{where}: {version}.")
    if plan.cuts and shutil.which("strace") is None:
        lines.append("strace: not installed, so no power cuts.")
    return "  \n".join(lines)


def _package_version(name: str, root: Path | None) -> str:
    database = [] if root is None else [f"--admindir={root}/var/lib/dpkg"]
    command = ["dpkg-query", *database, "--show", "--showformat", "${Version}", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown version"
    return done.stdout


def _table(
    plan: Plan, case: Case, peers: dict[str, Peer], runs: dict[str, list[Measurement]]
) -> str:
    head = (
        *("", "exchanges/s", "gateway / this", "median, ms", "99 %, ms"),
        *("main thread, us", "others, us", "generator, %", "wrong answers"),
        *("missing messages", "repeated", "written, bytes"),
    )
    base = plan.base if plan.base in runs else "gateway-mqtt"
    rows: list[tuple[object, ...]] = []
    for name, each in runs.items():
        compared = ratios(runs, base, name)
        allowed = _of_allowed(plan.window * case.connections, name, peers[name], runs)
        rows.append(
            (
                peers[name].label,
                spread([run.rate for run in each], number),
                "" if name == base else spread(compared, "{:.2f}".format),
                milliseconds(median(run.median for run in each)),
                milliseconds(median(run.slow for run in each)),
                number(median(1e6 * run.server_main / run.exchanges for run in each)),
                number(
                    median(1e6 * (run.server_others + run.fronts) / run.exchanges for run in each)
                ),
                f"{median(100 * run.load / run.seconds for run in each):.0f}",
                *(sum(run.errors for run in each), sum(run.missing for run in each)),
                sum(run.repeated for run in each),
                number(median(run.written / run.exchanges for run in each)),
                *([spread(allowed, "{:.2f}".format)] if plan.fsync_ms else []),
            )
        )
    return table((*head, "of one sync a group") if plan.fsync_ms else head, rows)


def ratios(runs: dict[str, list[Measurement]], one: str, other: str) -> list[float]:
    """Return the ratios of two servers' rates, one a round; none if a server did not run."""
    if one not in runs or other not in runs:
        return []
    return [a.rate / b.rate for a, b in zip(runs[one], runs[other], strict=True)]


def _of_allowed(
    in_flight: int, name: str, peer: Peer, runs: dict[str, list[Measurement]]
) -> list[float]:
    """Return the rates of a gateway with slow fsync as shares of what one sync a group allows."""
    without = name.partition("+")[0]
    if not peer.fsync_delay or peer.protocol != "xmpp" or name not in runs:
        return []
    return [
        slow.rate * (2 * peer.fsync_delay + in_flight / fast.rate) / in_flight
        for slow, fast in zip(runs[name], runs[without], strict=True)
    ]


def spread(values: Sequence[float], show: Callable[[float], str]) -> str:
    """Format the median, and the lowest and the highest value."""
    if not values:
        return ""
    low, middle, high = min(values), median(values), max(values)
    return show(middle) if low == high else f"{show(middle)} ({show(low)} to {show(high)})"


AIMS: Final = (
    (2, 1, "gateway", "mosquitto-queue", 1.0),
    (2, 50, "gateway", "mosquitto-queue", 3.0),
    (2, 50, "other", "mosquitto-queue", 2.0),
    (2, 500, "gateway", "mosquitto-queue", 1.25),
    (2, 50, "gateway", "mosquitto-memory", 0.15),
    (1, 50, "gateway-mqtt", "prosody", 20.0),
    (2, 50, "gateway-tls", "gateway", 0.6),
)
"""QoS, connections, two servers, and the least ratio of their rates, for log events. The gateway
keeps every message, so the goals compare it with the mosquitto that does: without a subscriber,
what mosquitto saves is one retained message for each connection. The other checkout is taken for
the gateway in pure Python, beside a compiled one."""

SYNC_AIM: Final = 0.9
"""Least share of what one sync a group allows, with slow fsync and many connections."""


def rate_goals(found: PeerRuns, aims: Sequence[tuple[int, int, str, str, float]]) -> list[Goal]:
    """Compare the ratios of rates with what is wanted (as in `AIMS`), if they were measured."""
    reached: list[Goal] = []
    for qos, connections, one, other, aim in aims:
        if compared := ratios(found.runs.get(Case("log", connections, qos), {}), one, other):
            labels, ratio = (found.peers[one].label, found.peers[other].label), median(compared)
            text = (
                f"QoS {qos}, {connections} connections: {labels[0]} has {ratio:.2f} times the rate"
                f" of {labels[1]} (goal: {aim:g})"
            )
            reached.append(Goal(text, ratio >= aim))
    return reached


def goals(found: PeerRuns) -> list[Goal]:
    """Compare the ratios with what is wanted, as far as they were measured."""
    reached = rate_goals(found, AIMS)
    for case, runs in found.runs.items():
        for name, peer in found.peers.items():
            share = _of_allowed(case.connections, name, peer, runs)
            if share and case.payload == "log" and case.connections > 1 and "gateway" in name:
                ratio = median(share)
                text = (
                    f"{case.connections} connections: {peer.label}, has {ratio:.2f} of what one"
                    f" sync a group allows (goal: {SYNC_AIM})"
                )
                reached.append(Goal(text, ratio >= SYNC_AIM))
    return reached


def main(
    defaults: Plan,
    run: Callable[[Plan, Path], PeerRuns],
    topic: Callable[[Plan, PeerRuns], Topic],
) -> None:
    """Measure what the options select, and print a page; progress goes to standard error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=defaults.peers)
    parser.add_argument("--connections", nargs="+", type=int, default=defaults.connections)
    parser.add_argument("--payload", nargs="+", choices=PAYLOADS, default=["log"], dest="payloads")
    parser.add_argument("--qos", nargs="+", type=int, choices=(0, 1, 2), default=defaults.qos,
                        help="of MQTT")  # fmt: skip
    parser.add_argument("--subscribers", nargs="+", choices=("", AWAY, "live"),
                        default=defaults.subscribers, help="of MQTT")  # fmt: skip
    parser.add_argument("--version", type=int, choices=(V311, V5), default=defaults.version,
                        help="of MQTT")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=defaults.rounds,
                        help="of measurements; 0: power cuts alone")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=defaults.seconds, help="of a measurement")
    parser.add_argument("--warm-up", type=float, default=defaults.warm_up, help="seconds")
    parser.add_argument("--window", type=int, default=1, help="exchanges in flight a connection")
    parser.add_argument("--fsync-ms", nargs="+", type=float, default=(), metavar="MS",
                        help="measure also with an fsync that takes so much longer")  # fmt: skip
    parser.add_argument("--other", type=Path, metavar="DIR", help="a second checkout to measure")
    parser.add_argument("--chroot", type=Path, metavar="DIR",
                        help="the root folder of a Debian system with mosquitto 2.1 and NATS 2.10"
                        " or later, for the peers mosquitto-sqlite and nats-sync")  # fmt: skip
    parser.add_argument("--cuts", type=int, default=defaults.cuts, help="power cuts of each server")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements")
    parser.add_argument("--quick", action="store_true", help="only check that everything runs")
    parser.add_argument("--write", action="store_true",
                        help="write the page, and the table in the README")  # fmt: skip
    options = vars(parser.parse_args())
    file, quick, write = (options.pop(name) for name in ("json", "quick", "write"))
    plan = defaults._replace(**options)
    if plan.other is not None:
        plan = plan._replace(other=plan.other.resolve())
    if plan.chroot is not None:
        plan = plan._replace(chroot=plan.chroot.resolve())
    plan = plan.quick() if quick else plan
    native.FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=native.FOLDER) as folder:
        head = machine.describe(Path(folder), _command())
        found = run(plan, Path(folder))
    if file is not None:
        file.write_text(json.dumps(_as_json(plan, found), indent=1), "utf-8")
    result = topic(plan, found)
    page = report.page(result, head)
    print(page)
    if write:
        (report.RESULTS / f"{result.name}.md").write_text(page, "utf-8")
        if result.summary:
            readme.write(result.summary)


def _command() -> str:
    """Return the command line; paths of this machine tell others nothing."""
    paths = {word: "DIR" if Path(word).is_dir() else "FILE" for word in sys.argv if "/" in word}
    words = [paths.get(word, word) for word in sys.argv[1:]]
    return shlex.join(["python", "-m", f"benchmarks.{Path(sys.argv[0]).stem}", *words])


def _as_json(plan: Plan, found: PeerRuns) -> dict[str, object]:
    return {
        "processor": machine.processor(),
        "python": machine.python_build(),
        "versions": versions(plan),
        "runs": [
            {**case._asdict(), "server": name, "round": turn, **asdict(measured)}
            for case, runs in found.runs.items()
            for name, each in runs.items()
            for turn, measured in enumerate(each, 1)
        ],
    }


if __name__ == "__main__":
    main(Plan(), run, topic)
