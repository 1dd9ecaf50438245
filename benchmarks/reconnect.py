"""Benchmark: all devices reconnect at once after a power cut.

The gateway is killed with all sessions open and started again; then every device connects over TLS
at the same moment. A refused device tries again after a random part of a growing delay. There are
three cases: each device has an address of its own; all share one; and unauthenticated connections
from another address are held open at the same time.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks import peer, server, usage
from benchmarks.payload import HEADER
from benchmarks.report import Goal, Settings, Topic, number, table

DEVICES: Final = 1000

UNAUTHENTICATED: Final = 300
"""Unauthenticated connections that are held open, or attempted: more than the limit."""

FIRST_WAIT, LONGEST_WAIT = 0.5, 8.0
"""Largest delays in seconds before the next attempt: the first, doubled each time up to the last.
"""

TIME_LIMIT: Final = 300.0
"""Seconds after which a run has failed."""

MAX_PEAK: Final = 150_000_000
"""Largest peak of resident bytes: a Zero 2 W has 512 MB for everything."""


@dataclass(frozen=True)
class Scenario:
    """Parameters: devices, whether each has an address of its own, and unauthenticated peers."""

    host: str
    port: int
    ca: str
    devices: int
    own_addresses: bool
    unauthenticated: int


@dataclass(frozen=True)
class Reconnection:
    """Seconds until half, 99 % and all devices were bound, and the number of attempts."""

    half: float
    most: float
    all: float
    attempts: int


def measure(settings: Settings) -> Topic:
    """Measure each case, each on a gateway that was killed before."""
    devices = round(settings.choose(DEVICES, 20))
    unauthenticated = round(settings.choose(UNAUTHENTICATED, 10))
    folder = settings.folder / "reconnect"
    server.prepare(folder, devices)
    kinds = (
        ("one address each", True, 0),
        ("one shared address", False, 0),
        (
            f"one address each, and {unauthenticated} unauthenticated connections from another",
            True,
            unauthenticated,
        ),
    )
    rows, peaks, last = [], [], []
    for name, own, silent in kinds:
        reconnection, peak = _measure_after_power_cut(folder, devices, own, silent)
        rows.append(_row(name, reconnection, peak, devices))
        peaks.append(peak)
        last.append(reconnection.all)
    blocks = (
        f"{devices} devices connect at once with TLS 1.3, SCRAM-SHA-256 and bind. The simulated"
        " devices run on the same two cores and take most of their time. A refused device tries"
        f" again after up to {FIRST_WAIT} s, doubled up to {LONGEST_WAIT} s.",
        table(
            (
                "devices",
                "half bound, s",
                "99 % bound, s",
                "all bound, s",
                "attempts per device",
                "server's peak RSS, MB",
            ),
            rows,
        ),
    )
    goals = [
        Goal(f"all {devices} devices are bound after at most {number(max(last))} s", True),
        Goal(
            f"the server's peak is {max(peaks) / 1e6:.0f} MB"
            f" (goal: less than {MAX_PEAK / 1e6:.0f})",
            max(peaks) < MAX_PEAK,
        ),
    ]
    return Topic("reconnect", "Reconnection of all devices after a power cut", blocks, goals)


def _measure_after_power_cut(
    folder: Path, devices: int, own_addresses: bool, unauthenticated: int
) -> tuple[Reconnection, int]:
    """Kill a gateway with all devices connected, start it, and let them reconnect."""
    ca = folder / "pki" / "ca.pem"
    usage.raise_descriptors()
    with ExitStack() as sessions, server.gateway(folder, cut=True) as gateway:
        tls = peer.trusting(ca)
        for count in range(devices):
            sessions.enter_context(peer.login(gateway.address, count, tls))
    with server.gateway(folder) as gateway:
        host, port, _ca = gateway.address
        scenario = Scenario(host, port, str(ca), devices, own_addresses, unauthenticated)
        command = [sys.executable, "-m", "benchmarks.reconnect", json.dumps(asdict(scenario))]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=2 * TIME_LIMIT, check=False
        )
        if done.returncode:
            raise peer.LoginError(f"not all devices reconnected: {done.stderr.strip()[-2000:]}")
        return Reconnection(**json.loads(done.stdout)), usage.peak(gateway.pid)


def _row(name: str, reconnection: Reconnection, peak: int, devices: int) -> tuple[object, ...]:
    times = (
        number(seconds) for seconds in (reconnection.half, reconnection.most, reconnection.all)
    )
    return (name, *times, f"{reconnection.attempts / devices:.2f}", f"{peak / 1e6:.0f}")


# The functions below run in a process of their own.


def reconnect_all(scenario: Scenario) -> Reconnection:
    """Connect all devices at once and return the result; raises `LoginError`."""
    usage.raise_descriptors()
    threading.stack_size(256 * 1024)
    target, tls = peer.Target(scenario.host, scenario.port), peer.trusting(Path(scenario.ca))
    gate = threading.Barrier(scenario.devices + 1)

    def reconnect(device: int) -> tuple[float, int, socket.socket]:
        source = (
            f"127.1.{device // 250}.{device % 250 + 1}" if scenario.own_addresses else "127.0.0.1"
        )
        gate.wait()
        return _connect_until_bound(target, device, tls, source)

    with _hold_unauthenticated(scenario), ThreadPoolExecutor(scenario.devices) as pool:
        waiting = [pool.submit(reconnect, device) for device in range(scenario.devices)]
        gate.wait()
        began = time.perf_counter()
        results = [future.result() for future in waiting]
        for _when, _attempts, connection in results:
            connection.close()
    times = sorted(when - began for when, _attempts, _connection in results)
    cuts = statistics.quantiles(times, n=100)
    attempts = sum(count for _when, count, _connection in results)
    return Reconnection(cuts[49], cuts[98], times[-1], attempts)


def _connect_until_bound(
    target: peer.Target, device: int, tls: ssl.SSLContext, source: str
) -> tuple[float, int, socket.socket]:
    """Retry until the device is bound; return the time, the attempts, and its socket."""
    longest, attempts, end = FIRST_WAIT, 0, time.perf_counter() + TIME_LIMIT
    while True:
        attempts += 1
        try:
            connection = peer.login(target, device, tls, source)
        except peer.LoginError:
            if time.perf_counter() > end:
                raise
            time.sleep(random.uniform(0, longest))
            longest = min(2 * longest, LONGEST_WAIT)
        else:
            return time.perf_counter(), attempts, connection


@contextmanager
def _hold_unauthenticated(scenario: Scenario) -> Iterator[None]:
    """Hold silent connections open, and replace those that are closed."""
    over = threading.Event()

    def linger() -> None:
        while not over.is_set():
            with suppress(OSError):
                address = (scenario.host, scenario.port)
                with socket.create_connection(address, 5, ("127.2.0.1", 0)) as connection:
                    connection.sendall(HEADER)
                    while connection.recv(4096) and not over.is_set():
                        pass
            over.wait(LONGEST_WAIT / 8)

    threads = [
        threading.Thread(target=linger, daemon=True) for _ in range(scenario.unauthenticated)
    ]
    for thread in threads:
        thread.start()
    yield
    over.set()


def main() -> None:
    """Read a case from the command line, run it and print the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reconnect")
    parser.add_argument("scenario", help="a JSON object with the fields of Scenario")
    scenario = Scenario(**json.loads(parser.parse_args().scenario))
    print(json.dumps(asdict(reconnect_all(scenario))))


if __name__ == "__main__":
    main()
