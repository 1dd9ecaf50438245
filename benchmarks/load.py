"""Load generators: the program in C for exchanges, and what those in Python have in common.

Those in Python use raw sockets, epoll and prepared bytes, without XML and asyncio, so that they
take a fraction of the server's processor time; their own is part of the result.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Final

from benchmarks import machine, native, payload, peer, usage
from benchmarks.queue_payload import STANZA

DRAIN_TIME: Final = 20.0
"""Seconds to finish the exchanges in flight at the end; a group takes long on a slow disk."""

MARGIN: Final = 300.0
"""Seconds that a load generator may take beyond its measurement: logins and the last answers."""

READ_BYTES: Final = 16 * 1024
"""More bytes than any answer has."""

PERCENT: Final = 100
"""Quantiles that are computed, for the median and the 99th percentile."""


@dataclass(frozen=True)
class Plan:
    """Parameters: devices, seconds to warm up and to measure, and the pid of the server.

    `requests` is how many items a worker takes at a time; `backlog`, whether its queue has one.
    """

    host: str
    port: int
    devices: int
    warm_up: float
    seconds: float
    server: int
    requests: int = 0
    backlog: bool = False


@dataclass(frozen=True)
class Measurement:
    """A measurement; processor times and latencies are in seconds.

    `machine` is the processor time of all processes, including this one; `median` and `slow` are
    the median and the 99th percentile of the latencies. `sent` counts all exchanges since the
    start; `missing` and `repeated` count the messages that an MQTT subscriber did not receive, and
    those that it received again. `written` is the bytes that the server has had written to disks,
    and `fronts` the processor time of its front processes. `by_port` has all latencies by the local
    port of their connection, if they are listed.
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
    sent: int = 0
    missing: int = 0
    repeated: int = 0
    written: int = 0
    fronts: float = 0.0
    by_port: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def server(self) -> float:
        """Processor seconds of all threads of the server, without its front processes."""
        return self.server_main + self.server_others

    @property
    def rate(self) -> float:
        """Exchanges per second."""
        return self.exchanges / self.seconds


class LoadError(Exception):
    """The load generator cannot complete its plan."""


def exchange_options(
    address: peer.Target, connections: int, body: bytes = payload.SENSOR_DATA, *, tls: bool = False
) -> dict[str, object]:
    """Return the options of the program in C for exchanges with a gateway."""
    return {
        "protocol": "xmpp",
        "host": address.host,
        "port": address.port,
        "connections": connections,
        "tls": int(tls),
        "domain": payload.DOMAIN,
        "to": payload.DOMAIN,
        "body": body.decode(),
    }


def exchange_command(options: Mapping[str, object], warm_up: float, seconds: float) -> list[str]:
    """Return the command of the program in C, which is compiled if needed."""
    more = {"warm_up": warm_up, "seconds": seconds, "password": peer.PASSWORD}
    words = [f"{name}={value}" for name, value in {**options, **more}.items()]
    return [str(native.build(*native.LOAD)), *words]


def measure_exchanges(
    options: Mapping[str, object],
    warm_up: float,
    seconds: float,
    server: int,
    restart: Callable[[], int] | None = None,
    connected: Callable[[], None] | None = None,
) -> Measurement:
    """Run the program in C, and read the processor time of the server as it measures.

    `connected` is called when all connections have logged in.

    `restart` kills the server while exchanges are in flight, starts it again, and returns its new
    port, where the program looks for the messages. Raises `LoadError`.
    """
    more = {"restart": int(restart is not None), "hold": int(connected is not None)}
    command = exchange_command({**options, **more}, warm_up, seconds)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        limit = threading.Timer(warm_up + seconds + MARGIN, process.kill)
        limit.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            if connected is not None and process.stdout.readline() == "connected\n":
                connected()
                print(file=process.stdin, flush=True)
            begin = process.stdout.readline()
            everything, before = machine.busy(), usage.processor(server)
            fronts = _busy_children(server)
            written = usage.written(server)
            end = process.stdout.readline()
            used = usage.processor(server).since(before)
            fronts = _busy_children(server) - fronts
            everything, written = machine.busy() - everything, usage.written(server) - written
            if restart is not None:
                print(restart(), file=process.stdin, flush=True)
            found = process.stdout.readline()
            process.wait()
        finally:
            limit.cancel()
    if (begin, end) != ("measuring\n", "measured\n") or process.returncode:
        raise LoadError(f"the load generator failed: {' '.join(command)[:500]}")
    measured = Measurement(
        server_main=used.main,
        server_others=used.others,
        machine=everything,
        written=written,
        fronts=fronts,
        **json.loads(found),
    )
    if not measured.exchanges:
        raise LoadError(f"no exchange of {measured.errors} was right")
    return measured


def _busy_children(server: int) -> float:
    return sum(sum(usage.processor(child)) for child in usage.children(server))


def session_memory(options: Mapping[str, object], server: int) -> int:
    """Return the resident bytes of a server while the connections are logged in and idle."""
    command = exchange_command({**options, "hold": 1}, 0.0, 0.0)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        limit = threading.Timer(MARGIN, process.kill)
        limit.start()
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"connected\n":
                raise LoadError(f"not all sessions are there: {' '.join(command)[:500]}")
            return usage.resident(server)
        finally:
            limit.cancel()
            process.kill()


class Connection:
    """A connection, and the handler for each whole stanza that it receives."""

    def __init__(self, connection: socket.socket, take: Callable[[bytes], None]) -> None:
        self._socket = connection
        self._take = take
        self._partial = b""
        self._sent = 0

    def read(self) -> None:
        """Read from the socket and handle each whole stanza; raises `LoadError` for an error."""
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise LoadError("the server closed a connection")
        rest, end = self._partial + data, 0
        for match in STANZA.finditer(rest):
            end = match.end()
            stanza = match[0]
            if b" type='error'" in stanza[: stanza.index(b">")]:
                raise LoadError(f"the gateway answered with an error: {stanza!r}")
            self._take(stanza)
        self._partial = rest[end:]

    def send(self, stanza: bytes) -> None:
        """Send a stanza."""
        if self._socket.send(stanza) != len(stanza):
            raise LoadError("a socket accepted only a part of a stanza")

    def next_id(self) -> bytes:
        """Return an unused id for an iq."""
        self._sent += 1
        return b"q%d" % self._sent


class Load:
    """Connections, and the seconds that each finished exchange took."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self.done = 0
        self.times: list[float] = []

    def connect(self, connection: socket.socket, take: Callable[[bytes], None]) -> Connection:
        """Add a connection, and the handler of its stanzas."""
        added = self._connections[connection.fileno()] = Connection(connection, take)
        self._poll.register(connection.fileno(), select.EPOLLIN)
        return added

    def run(self, seconds: float) -> None:
        """Run exchanges for some seconds."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self._poll_once(left)

    def until(self, true: Callable[[], bool], failure: Callable[[], str]) -> None:
        """Run until something is true; raises `LoadError` with `failure` after `DRAIN_TIME`."""
        end = time.perf_counter() + DRAIN_TIME
        while not true():
            if (left := end - time.perf_counter()) <= 0:
                raise LoadError(failure())
            self._poll_once(left)

    def finish(self, began: float | None) -> None:
        """Count an exchange, and its time if it is known when it began."""
        self.done += 1
        if began is not None:
            self.times.append(time.perf_counter() - began)

    def _poll_once(self, seconds: float) -> None:
        for number, _event in self._poll.poll(seconds):
            self._connections[number].read()


@contextmanager
def connected(plan: Plan, count: int) -> Iterator[list[socket.socket]]:
    """Log in as many devices, without TLS, and close their connections at the end."""
    target = peer.Target(plan.host, plan.port)
    with ExitStack() as stack:
        yield [stack.enter_context(peer.login(target, number, None)) for number in range(count)]


def measure_load(load: Load, plan: Plan) -> Measurement:
    """Warm up, then measure a load generator that has started, and its server."""
    load.run(plan.warm_up)
    load.times.clear()
    done = load.done
    everything, before, own = machine.busy(), usage.processor(plan.server), time.process_time()
    began = time.perf_counter()
    load.run(plan.seconds)
    seconds, own = time.perf_counter() - began, time.process_time() - own
    used = usage.processor(plan.server).since(before)
    everything = machine.busy() - everything
    cuts = statistics.quantiles(load.times, n=PERCENT) if len(load.times) > 1 else [0.0] * PERCENT
    median, slow = cuts[PERCENT // 2 - 1], cuts[PERCENT - 2]
    return Measurement(load.done - done, seconds, 0, *used, own, everything, median, slow)


def run(module: str, plan: Plan) -> Measurement:
    """Run a load generator's module in a process of its own; raises `LoadError`."""
    command = [sys.executable, "-m", module, json.dumps(asdict(plan))]
    limit = plan.warm_up + plan.seconds + MARGIN
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    if done.returncode:
        raise LoadError(f"the load generator failed: {done.stderr.strip()[-2000:]}")
    return Measurement(**json.loads(done.stdout))


def main(measure: Callable[[Plan], Measurement]) -> None:
    """Read a plan from the command line, run it, and print the measurement as a JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("plan", help="a JSON object with the fields of Plan")
    print(json.dumps(asdict(measure(Plan(**json.loads(parser.parse_args().plan))))))
