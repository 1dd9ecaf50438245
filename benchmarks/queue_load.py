"""Load generator for a queue: workers that take and delete items, and as many publishers.

A worker deletes each item that it receives. When the deletion is confirmed, the next publisher
publishes one, so that the queue is as long at the end as at the start. A plan's devices are the
workers.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable
from itertools import cycle

from benchmarks import payload, peer, queue_payload
from benchmarks.commands import PRESENCE
from benchmarks.load import Connection, Load, Measurement, Plan, connected, main, measure_load
from benchmarks.queue_payload import ITEM, NODE, RETRACTED


class QueueLoad(Load):
    """All workers and publishers, with counts and times of their items."""

    def __init__(self, plan: Plan, connections: list[socket.socket]) -> None:
        super().__init__()
        self._run = secrets.token_hex(4).encode()
        self._count = self._subscribed = 0
        self._active = self._ending = False
        self._began: dict[bytes, float] = {}
        self.in_flight = 0
        workers, publishers = connections[: plan.devices], connections[plan.devices :]
        self.workers = [self.connect(one, self._to_worker(at)) for at, one in enumerate(workers)]
        self._publishers = cycle([self.connect(one, lambda _answer: None) for one in publishers])

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
            if stanza.startswith(b"<message"):
                self._handle_message(self.workers[at], stanza)
            else:
                self._subscribed += b" id='sub'" in stanza
                self._subscribed -= b" id='unsub'" in stanza

        return take

    def _handle_message(self, worker: Connection, message: bytes) -> None:
        if retracted := RETRACTED.search(message):
            self._handle_deletion(retracted[1])
        elif not self._ending and (item := ITEM.search(message)):
            worker.send(queue_payload.retract(worker.next_id(), NODE, item[1]))

    def _handle_deletion(self, item: bytes) -> None:
        self.in_flight -= 1
        self.finish(self._began.pop(item, None))
        if self._active:
            self._publish()

    def drain(self) -> None:
        """Stop publishing, and delete the items in flight."""
        self._active = False
        self._until(lambda: self.in_flight == 0)

    def _until(self, true: Callable[[], bool]) -> None:
        self.until(
            true,
            lambda: f"timeout: {self._subscribed} subscribed, {self.in_flight} items in flight",
        )


def _jid(worker: int) -> bytes:
    return f"{peer.device(worker)}@{payload.DOMAIN}".encode()


def measure(plan: Plan) -> Measurement:
    """Run the plan in this process."""
    with connected(plan, 2 * plan.devices) as connections:
        load = QueueLoad(plan, connections)
        load.begin(0)
        load.subscribe(plan.requests)
        if not plan.backlog:
            load.begin(plan.devices * plan.requests)
        found = measure_load(load, plan)
        if not plan.backlog:
            load.drain()
        load.unsubscribe()
    return found


if __name__ == "__main__":
    main(measure)
