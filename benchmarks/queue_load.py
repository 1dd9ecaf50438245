"""Load generator for a queue: workers that take and delete items, and as many publishers.

A worker deletes each item that it receives. When the deletion is confirmed, the next publisher
publishes one, so that the queue is as long at the end as at the start. It uses raw sockets and
epoll, like `load`, and prints its measurement as one JSON object.
"""

from __future__ import annotations

import secrets
import select
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import cycle

from benchmarks import payload, peer, queue_payload
from benchmarks.commands import PRESENCE
from benchmarks.load import (
    DRAIN_TIME,
    READ_BYTES,
    LoadError,
    Measurement,
    command,
    measure_load,
    run_module,
)
from benchmarks.queue_payload import GONE, ITEM, NODE, STANZA


@dataclass(frozen=True)
class Plan:
    """Parameters: workers, items that each takes at a time, seconds to warm up and to measure, the
    pid of the server, and whether the queue already has a backlog."""

    host: str
    port: int
    workers: int
    requests: int
    warm_up: float
    seconds: float
    server: int
    backlog: bool = False


class Connection:
    """A connection, and the handler for each whole stanza that it receives."""

    def __init__(self, connection: socket.socket, take: Callable[[bytes], None]) -> None:
        self.connection = connection
        self._take = take
        self._partial = b""
        self._sent = 0

    def read(self) -> None:
        """Read from the socket and handle each whole stanza."""
        data = self.connection.recv(READ_BYTES)
        if not data:
            raise LoadError("the server closed a connection")
        rest, end = self._partial + data, 0
        for match in STANZA.finditer(rest):
            end = match.end()
            self._take(match[0])
        self._partial = rest[end:]

    def send(self, stanza: bytes) -> None:
        """Send a stanza."""
        if self.connection.send(stanza) != len(stanza):
            raise LoadError("a socket accepted only a part of a stanza")

    def next_id(self) -> bytes:
        """Return an unused id for an iq."""
        self._sent += 1
        return b"q%d" % self._sent


def check(stanza: bytes) -> None:
    """Raise `LoadError` for an error stanza."""
    if b" type='error'" in stanza[: stanza.index(b">")]:
        raise LoadError(f"the gateway answered with an error: {stanza!r}")


class Load:
    """All workers and publishers, with counts and times of their items."""

    def __init__(self, plan: Plan, connections: list[socket.socket]) -> None:
        self._run = secrets.token_hex(4).encode()
        self._count = self._subscribed = 0
        self._active = self._ending = False
        self._began: dict[bytes, float] = {}
        self.in_flight = 0
        self.times: list[float] = []
        self.done = 0
        self._poll = select.epoll()
        self._parties: dict[int, Connection] = {}
        workers = connections[: plan.workers]
        self.workers = [self._join(one, self._to_worker(at)) for at, one in enumerate(workers)]
        self._publishers = cycle([self._join(one, check) for one in connections[plan.workers :]])

    def _join(self, connection: socket.socket, take: Callable[[bytes], None]) -> Connection:
        party = Connection(connection, take)
        self._parties[connection.fileno()] = party
        self._poll.register(connection.fileno(), select.EPOLLIN)
        return party

    def subscribe(self, requests: int) -> None:
        """Send presence and subscribe for all workers."""
        for at, worker in enumerate(self.workers):
            worker.send(PRESENCE + queue_payload.subscribe(b"sub", _jid(at), NODE, requests))
        self._until(lambda: self._subscribed == len(self.workers))

    def unsubscribe(self) -> None:
        """Stop publishing, and unsubscribe all workers, which returns their items."""
        self._active, self._ending = False, True
        for at, worker in enumerate(self.workers):
            worker.send(queue_payload.unsubscribe(b"unsub", _jid(at), NODE))
        self._until(lambda: self._subscribed == 0)

    def begin(self, items: int) -> None:
        """Publish `items` items, and from then on one for each that is deleted."""
        self._active = True
        for _ in range(items):
            self._publish()

    def _publish(self) -> None:
        self._count += 1
        item = b"%b-%d" % (self._run, self._count)
        publisher = next(self._publishers)
        self._began[item] = time.perf_counter()
        self.in_flight += 1
        publisher.send(queue_payload.publish(publisher.next_id(), NODE, item))

    def _to_worker(self, at: int) -> Callable[[bytes], None]:
        def take(stanza: bytes) -> None:
            check(stanza)
            if stanza.startswith(b"<message"):
                self._handle_message(self.workers[at], stanza)
            else:
                self._subscribed += b" id='sub'" in stanza
                self._subscribed -= b" id='unsub'" in stanza

        return take

    def _handle_message(self, worker: Connection, message: bytes) -> None:
        if gone := GONE.search(message):
            self._handle_deletion(gone[1])
        elif not self._ending and (item := ITEM.search(message)):
            worker.send(queue_payload.retract(worker.next_id(), NODE, item[1]))

    def _handle_deletion(self, item: bytes) -> None:
        self.done += 1
        self.in_flight -= 1
        if (began := self._began.pop(item, None)) is not None:
            self.times.append(time.perf_counter() - began)
        if self._active:
            self._publish()

    def run(self, seconds: float) -> None:
        """Process items for some seconds."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self._poll_once(left)

    def drain(self) -> None:
        """Stop publishing, and delete the items in flight."""
        self._active = False
        self._until(lambda: self.in_flight == 0)

    def _until(self, true: Callable[[], bool]) -> None:
        end = time.perf_counter() + DRAIN_TIME
        while not true():
            if (left := end - time.perf_counter()) <= 0:
                raise LoadError(
                    f"timeout: {self._subscribed} subscribed, {self.in_flight} items in flight"
                )
            self._poll_once(left)

    def _poll_once(self, seconds: float) -> None:
        for number, _event in self._poll.poll(seconds):
            self._parties[number].read()


def _jid(worker: int) -> bytes:
    return f"{peer.device(worker)}@{payload.DOMAIN}".encode()


def measure(plan: Plan) -> Measurement:
    """Run the plan in this process."""
    target = peer.Target(plan.host, plan.port)
    connections = [peer.login(target, number, None) for number in range(2 * plan.workers)]
    try:
        load = Load(plan, connections)
        load.begin(0)
        load.subscribe(plan.requests)
        if not plan.backlog:
            load.begin(plan.workers * plan.requests)
        found = measure_load(load, plan)
        if not plan.backlog:
            load.drain()
        load.unsubscribe()
    finally:
        for connection in connections:
            connection.close()
    return found


def run(plan: Plan) -> Measurement:
    """Run the plan in a process of its own; raises `LoadError`."""
    return run_module("benchmarks.queue_load", asdict(plan), plan.warm_up + plan.seconds)


if __name__ == "__main__":
    command(Plan, measure)
