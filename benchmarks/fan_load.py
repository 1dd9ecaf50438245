"""Load generator for a node: one publisher, and many subscribers that receive each publication.

The next publication starts when all subscribers have received the one before. It uses raw sockets
and epoll, like `load`, and prints its measurement as one JSON object.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable

from benchmarks import payload, peer, queue_payload
from benchmarks.commands import PRESENCE
from benchmarks.load import Load, Measurement, Plan, connected, main, measure_load
from benchmarks.queue_payload import ITEM, TOPIC


class FanLoad(Load):
    """The publisher, the subscribers, and the seconds that each publication took."""

    def __init__(self, connections: list[socket.socket]) -> None:
        super().__init__()
        self._run = secrets.token_hex(4).encode()
        self._count = self._received = self._subscribed = 0
        self._answered = True
        self._publisher = self.connect(connections[0], self._to_publisher)
        self._subscribers = [self.connect(one, self._to_subscriber) for one in connections[1:]]

    def subscribe(self) -> None:
        """Send presence and subscribe for all subscribers."""
        for at, subscriber in enumerate(self._subscribers, 1):
            jid = f"{peer.device(at)}@{payload.DOMAIN}".encode()
            subscriber.send(PRESENCE + queue_payload.subscribe(b"sub", jid, TOPIC))
        self._until(lambda: self._subscribed == len(self._subscribers))

    def run(self, seconds: float) -> None:
        """Publish for some seconds, one publication after the other."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self._count += 1
            self._received, self._answered = 0, False
            began = time.perf_counter()
            item = b"%b-%d" % (self._run, self._count)
            self._publisher.send(queue_payload.publish(self._publisher.next_id(), TOPIC, item))
            self._until(lambda: self._answered and self._received == len(self._subscribers))
            self.finish(began)

    def _until(self, true: Callable[[], bool]) -> None:
        self.until(true, lambda: f"{self._received} of {len(self._subscribers)} received an item")

    def _to_publisher(self, stanza: bytes) -> None:
        self._answered = self._answered or stanza.startswith(b"<iq")

    def _to_subscriber(self, stanza: bytes) -> None:
        if stanza.startswith(b"<message"):
            found = ITEM.search(stanza)
            self._received += found is not None and found[1] == b"%b-%d" % (self._run, self._count)
        elif b" id='sub'" in stanza:
            self._subscribed += 1


def measure(plan: Plan) -> Measurement:
    """Run the plan in this process; an exchange is a publication."""
    with connected(plan, plan.devices + 1) as connections:
        load = FanLoad(connections)
        load.subscribe()
        return measure_load(load, plan)


if __name__ == "__main__":
    main(measure)
