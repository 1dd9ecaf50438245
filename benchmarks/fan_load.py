"""Load generator for a node: one publisher, and many subscribers that receive each publication.

The next publication starts when all subscribers have received the one before. It uses raw sockets
and epoll, like `load`, and prints its measurement as one JSON object.
"""

from __future__ import annotations

import secrets
import select
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from benchmarks import payload, peer, queue_payload
from benchmarks.commands import PRESENCE
from benchmarks.load import DRAIN_TIME, LoadError, Measurement, command, measure_load, run_module
from benchmarks.queue_load import Connection, check
from benchmarks.queue_payload import ITEM, TOPIC


@dataclass(frozen=True)
class Plan:
    """Parameters: subscribers, seconds to warm up and to measure, and the pid of the server."""

    host: str
    port: int
    subscribers: int
    warm_up: float
    seconds: float
    server: int


class Load:
    """The publisher, the subscribers, and the seconds that each publication took."""

    def __init__(self, connections: list[socket.socket]) -> None:
        self._run = secrets.token_hex(4).encode()
        self._count = self._heard = self._subscribed = 0
        self._began = 0.0
        self._answered = True
        self.times: list[float] = []
        self._poll = select.epoll()
        self._publisher = Connection(connections[0], self._to_publisher)
        self._subscribers = [Connection(one, self._to_subscriber) for one in connections[1:]]
        everybody = [self._publisher, *self._subscribers]
        self._parties = {one.connection.fileno(): one for one in everybody}
        for number in self._parties:
            self._poll.register(number, select.EPOLLIN)

    def subscribe(self) -> None:
        """Send presence and subscribe for all subscribers."""
        for at, subscriber in enumerate(self._subscribers, 1):
            jid = f"{peer.device(at)}@{payload.DOMAIN}".encode()
            subscriber.send(PRESENCE + queue_payload.subscribe(b"sub", jid, TOPIC))
        self._until(lambda: self._subscribed == len(self._subscribers))

    @property
    def done(self) -> int:
        """Number of timed publications."""
        return len(self.times)

    def run(self, seconds: float) -> None:
        """Publish for some seconds, one publication after the other."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self._count += 1
            self._heard, self._answered = 0, False
            self._began = time.perf_counter()
            item = b"%b-%d" % (self._run, self._count)
            self._publisher.send(queue_payload.publish(self._publisher.next_id(), TOPIC, item))
            self._until(lambda: self._answered and self._heard == len(self._subscribers))
            self.times.append(time.perf_counter() - self._began)

    def _until(self, true: Callable[[], bool]) -> None:
        end = time.perf_counter() + DRAIN_TIME
        while not true():
            if (left := end - time.perf_counter()) <= 0:
                raise LoadError(f"{self._heard} of {len(self._subscribers)} received an item")
            for number, _event in self._poll.poll(left):
                self._parties[number].read()

    def _to_publisher(self, stanza: bytes) -> None:
        check(stanza)
        self._answered = self._answered or stanza.startswith(b"<iq")

    def _to_subscriber(self, stanza: bytes) -> None:
        check(stanza)
        if stanza.startswith(b"<message"):
            found = ITEM.search(stanza)
            self._heard += found is not None and found[1] == b"%b-%d" % (self._run, self._count)
        elif b" id='sub'" in stanza:
            self._subscribed += 1


def measure(plan: Plan) -> Measurement:
    """Run the plan in this process; an exchange is a publication."""
    target = peer.Target(plan.host, plan.port)
    connections = [peer.login(target, number, None) for number in range(plan.subscribers + 1)]
    try:
        load = Load(connections)
        load.subscribe()
        found = measure_load(load, plan)
    finally:
        for connection in connections:
            connection.close()
    return found


def run(plan: Plan) -> Measurement:
    """Run the plan in a process of its own; raises `LoadError`."""
    return run_module("benchmarks.fan_load", asdict(plan), plan.warm_up + plan.seconds)


if __name__ == "__main__":
    command(Plan, measure)
