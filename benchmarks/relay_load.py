"""Load generator for the relay: pairs of devices, each with one message in flight.

A sender offers a message as assured to its recipient's bare JID. The gateway takes custody of it
and forwards it as assured; the recipient answers `received` and then the `deliver`. The next
message of a pair starts when the recipient has received the `deliver` of the one before. A plan's
devices are pairs.
"""

from __future__ import annotations

import secrets
import socket
import time

from benchmarks import commands, payload, peer
from benchmarks.load import Load, Measurement, Plan, connected, main, measure_load


class Pair:
    """A sender, its recipient, and the message in flight between them."""

    def __init__(
        self, load: PairLoad, number: int, run: int, sender: socket.socket, to: socket.socket
    ) -> None:
        self._load = load
        self._number = number
        self._run = run
        self._count = 0
        self._recipient = peer.device(2 * number + 1).encode()
        self._accepted = self._delivered = False
        self._began = 0.0
        self._sender = load.connect(sender, self._to_sender)
        self._to = load.connect(to, self._to_recipient)
        self._to.send(commands.PRESENCE)

    def begin(self) -> None:
        """Offer the next message to the gateway."""
        self._count += 1
        self._key = payload.msg_id(self._run, self._number, self._count)
        self._accepted = self._delivered = False
        self._began = time.perf_counter()
        self._sender.send(commands.assured(b"a%d" % self._count, self._recipient, self._key))

    def _to_sender(self, stanza: bytes) -> None:
        if b"<received " in stanza:
            self._sender.send(commands.deliver(b"d%d" % self._count, self._recipient, self._key))
        else:
            self._accepted = True
            self._check_end()

    def _to_recipient(self, stanza: bytes) -> None:
        if stanza.startswith(b"<iq"):
            self._to.send(commands.answer(stanza))
            if commands.is_release(stanza):
                self._delivered = True
                self._check_end()

    def _check_end(self) -> None:
        if self._accepted and self._delivered:
            self._load.finish(self._began)
            self._load.end(self)


class PairLoad(Load):
    """All pairs, with the times of their messages."""

    def __init__(self, connections: list[socket.socket]) -> None:
        super().__init__()
        run = secrets.randbits(32)
        ends = zip(connections[::2], connections[1::2], strict=True)
        self._pairs = [Pair(self, number, run, *both) for number, both in enumerate(ends)]
        self._active = True
        self._busy = len(self._pairs)

    def start(self) -> None:
        """Begin the first message of each pair."""
        for pair in self._pairs:
            pair.begin()

    def end(self, pair: Pair) -> None:
        """Begin the next message of a pair, unless the messages in flight are the last."""
        if self._active:
            pair.begin()
        else:
            self._busy -= 1

    def drain(self) -> None:
        """Finish the messages in flight and start no more."""
        self._active = False
        self.until(lambda: not self._busy, lambda: f"{self._busy} messages did not arrive")


def measure(plan: Plan) -> Measurement:
    """Run the plan in this process."""
    with connected(plan, 2 * plan.devices) as connections:
        load = PairLoad(connections)
        load.start()
        found = measure_load(load, plan)
        load.drain()
    return found


if __name__ == "__main__":
    main(measure)
