"""Load generator: many clients in one process, each with one assured exchange in flight.

It uses raw sockets, epoll and prepared bytes, without XML and asyncio, so that it takes a fraction
of the server's processor time; its own is part of the result. Every answer is checked: it has the
expected id, is a result, and contains `received` if it must. The measurement is printed as one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import secrets
import select
import socket
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Protocol, TypeVar

from benchmarks import machine, payload, peer, usage

P = TypeVar("P")

DRAIN_TIME: Final = 20.0
"""Seconds to finish the exchanges in flight at the end; a group takes long on a slow disk."""

MARGIN: Final = 120.0
"""Seconds that a run may take beyond its measurement: 500 logins on a busy machine."""

READ_BYTES: Final = 16 * 1024
"""More bytes than any answer has."""

PERCENT: Final = 100
"""Quantiles that are computed, for the median and the 99th percentile."""


@dataclass(frozen=True)
class Plan:
    """Parameters: clients, seconds to warm up and to measure, and the pid of the server."""

    host: str
    port: int
    clients: int
    warm_up: float
    seconds: float
    server: int
    ca: str = ""


@dataclass(frozen=True)
class Measurement:
    """A measurement; processor times and latencies are in seconds.

    `machine` is the processor time of all processes, including this one; `median` and `slow` are
    the median and the 99th percentile of the latencies.
    """

    exchanges: int
    seconds: float
    errors: int
    server_main: float
    server_others: float
    load: float
    machine: float
    median: float
    slow: float

    @property
    def rate(self) -> float:
        """Exchanges per second."""
        return self.exchanges / self.seconds


class LoadError(Exception):
    """The load generator cannot complete its plan."""


class Client:
    """A client and its exchange in flight."""

    __slots__ = (
        "_connection", "_count", "_deliver", "_expected", "_key", "_number", "_partial", "_run",
        "began", "released",
    )  # fmt: skip

    def __init__(self, run: int, number: int, connection: socket.socket) -> None:
        self._run = run
        self._number = number
        self._connection = connection
        self._count = 0
        self._partial = b""
        self.released = False
        self.began = 0.0

    def fileno(self) -> int:
        """Return the socket's file descriptor."""
        return self._connection.fileno()

    def begin(self) -> None:
        """Offer the next message."""
        self._count += 1
        tail = b"%04x%08x" % (self._number, self._count)
        self._key = payload.msg_id(self._run, self._number, self._count)
        self._deliver = b"d" + tail
        self.released = False
        self.began = time.perf_counter()
        self._send(b"a" + tail, payload.assured(b"a" + tail, self._key))

    def read(self) -> bool | None:
        """Read; return `None` until an answer is whole, then whether it is correct."""
        try:
            data = self._partial + self._connection.recv(READ_BYTES)
        except ssl.SSLWantReadError:
            return None
        if not data:
            raise LoadError("the server closed a connection")
        whole = data.endswith(b"</iq>") or (data.endswith(b"/>") and data.count(b"<") == 1)
        self._partial = b"" if whole else data
        return self._check(data) if whole else None

    def _check(self, answer: bytes) -> bool:
        right = self._expected in answer and b" type='result'" in answer
        if self.released:
            return right and answer.count(b"<") == 1
        return right and b"<received " in answer and self._key in answer

    def release(self) -> None:
        """Request delivery of the offered message."""
        self.released = True
        self._send(self._deliver, payload.deliver(self._deliver, self._key))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _send(self, stanza_id: bytes, data: bytes) -> None:
        self._expected = b" id='%b'" % stanza_id
        if self._connection.send(data) != len(data):
            raise LoadError("a socket accepted only a part of a stanza")


class Load:
    """All clients, with counts and times of their exchanges."""

    def __init__(self, clients: list[Client]) -> None:
        self._clients = {client.fileno(): client for client in clients}
        self._poll = select.epoll()
        for number in self._clients:
            self._poll.register(number, select.EPOLLIN)
        self._busy = 0
        self._active = True
        self.done = 0
        self.errors = 0
        self.times: list[float] = []

    def start(self) -> None:
        """Start the first exchange of every client."""
        for client in self._clients.values():
            client.begin()
            self._busy += 1

    def run(self, seconds: float) -> None:
        """Run exchanges for some seconds."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self._poll_once(left)

    def drain(self) -> None:
        """Finish the exchanges in flight and start no more."""
        self._active = False
        end = time.perf_counter() + DRAIN_TIME
        while self._busy:
            if (left := end - time.perf_counter()) <= 0:
                raise LoadError(f"{self._busy} exchanges were not answered")
            self._poll_once(left)

    def _poll_once(self, seconds: float) -> None:
        clients = self._clients
        for number, _event in self._poll.poll(seconds):
            client = clients[number]
            right = client.read()
            if right is None:
                continue
            if right and not client.released:
                client.release()
            else:
                self._ended(client, right)

    def _ended(self, client: Client, right: bool) -> None:
        if right:
            self.done += 1
            self.times.append(time.perf_counter() - client.began)
        else:
            self.errors += 1
        if self._active:
            client.begin()
        else:
            self._busy -= 1


def measure(plan: Plan) -> Measurement:
    """Run the plan in this process."""
    clients = _clients(plan)
    try:
        load = Load(clients)
        load.start()
        found = measure_load(load, plan)
        load.drain()
    finally:
        for client in clients:
            client.close()
    return replace(found, errors=load.errors)


class Timing(Protocol):
    """The part of a plan that every load generator has; see `Plan`."""

    @property
    def warm_up(self) -> float: ...
    @property
    def seconds(self) -> float: ...
    @property
    def server(self) -> int: ...


class RunningLoad(Protocol):
    """A load generator that has started; `times` are the seconds of each exchange that it has
    `done`."""

    times: list[float]

    @property
    def done(self) -> int: ...
    def run(self, seconds: float) -> None: ...


def measure_load(load: RunningLoad, span: Timing) -> Measurement:
    """Warm up, then measure a load generator and its server."""
    load.run(span.warm_up)
    load.times.clear()
    done = load.done
    everything, before, own = machine.busy(), usage.processor(span.server), time.process_time()
    began = time.perf_counter()
    load.run(span.seconds)
    seconds, own = time.perf_counter() - began, time.process_time() - own
    used = usage.processor(span.server).since(before)
    everything = machine.busy() - everything
    cuts = statistics.quantiles(load.times, n=PERCENT) if len(load.times) > 1 else [0.0] * PERCENT
    median, slow = cuts[PERCENT // 2 - 1], cuts[PERCENT - 2]
    return Measurement(load.done - done, seconds, 0, *used, own, everything, median, slow)


def _clients(plan: Plan) -> list[Client]:
    target = peer.Target(plan.host, plan.port)
    tls = peer.trusting(Path(plan.ca)) if plan.ca else None
    run = secrets.randbits(32)
    clients: list[Client] = []
    for number in range(plan.clients):
        connection = peer.login(target, number, tls)
        connection.setblocking(False)
        clients.append(Client(run, number, connection))
    return clients


def run(plan: Plan) -> Measurement:
    """Run the plan in a process of its own; raises `LoadError`."""
    return run_module("benchmarks.load", asdict(plan), plan.warm_up + plan.seconds)


def run_module(module: str, plan: dict[str, object], seconds: float) -> Measurement:
    """Run a load generator's module as a process for `seconds`; raises `LoadError`."""
    command = [sys.executable, "-m", module, json.dumps(plan)]
    limit = seconds + DRAIN_TIME + MARGIN
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    if done.returncode:
        raise LoadError(f"the load generator failed: {done.stderr.strip()[-2000:]}")
    return Measurement(**json.loads(done.stdout))


def command(plan: type[P], measure: Callable[[P], Measurement]) -> None:
    """Read a plan from the command line, run it, and print the measurement."""
    parser = argparse.ArgumentParser()
    parser.add_argument("plan", help="a JSON object with the fields of Plan")
    print(json.dumps(asdict(measure(plan(**json.loads(parser.parse_args().plan))))))


if __name__ == "__main__":
    command(Plan, measure)
