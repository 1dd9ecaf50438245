"""Load generator for the relay: pairs of devices, each with one message in flight.

A sender offers a message as assured to its recipient's bare JID. The gateway takes custody of it
and forwards it as assured; the recipient answers `received` and then the `deliver`. The next
message of a pair starts when the recipient has received the `deliver` of the one before. It uses
raw sockets and epoll, like `load`, and prints its measurement as one JSON object.
"""

from __future__ import annotations

import re
import secrets
import select
import socket
import time
from dataclasses import asdict, dataclass
from typing import Final

from benchmarks import commands, payload, peer
from benchmarks.load import (
    DRAIN_TIME,
    READ_BYTES,
    LoadError,
    Measurement,
    command,
    measure_load,
    run_module,
)

_IQ: Final = re.compile(rb"<iq\b[^>]*?(?:/>|>.*?</iq>)", re.DOTALL)


@dataclass(frozen=True)
class Plan:
    """Parameters: pairs of devices, seconds to warm up and to measure, and the server's pid."""

    host: str
    port: int
    pairs: int
    warm_up: float
    seconds: float
    server: int


class Pair:
    """A sender, its recipient, and the message in flight between them."""

    def __init__(self, number: int, run: int, sender: socket.socket, to: socket.socket) -> None:
        self._number = number
        self._run = run
        self._count = 0
        self._recipient = peer.device(2 * number + 1).encode()
        self._sockets = (sender, to)
        self._partial = [b"", b""]
        self._handed_over = self._delivered = False
        self.began = 0.0
        to.sendall(commands.PRESENCE)

    def filenos(self) -> tuple[int, int]:
        """Return the file descriptors of the sender's socket and the recipient's."""
        return self._sockets[0].fileno(), self._sockets[1].fileno()

    def begin(self) -> None:
        """Offer the next message to the gateway."""
        self._count += 1
        self._key = payload.msg_id(self._run, self._number, self._count)
        self._handed_over = self._delivered = False
        self.began = time.perf_counter()
        self._send(0, commands.assured(b"a%d" % self._count, self._recipient, self._key))

    def read(self, side: int) -> bool:
        """Read from the sender (0) or the recipient (1); return whether a message is complete."""
        data = self._sockets[side].recv(READ_BYTES)
        if not data:
            raise LoadError("the server closed a connection")
        rest = self._partial[side] + data
        end = 0
        for match in _IQ.finditer(rest):
            end = match.end()
            (self._to_recipient if side else self._to_sender)(match[0])
        self._partial[side] = rest[end:]
        over = self._handed_over and self._delivered
        if over:
            self._handed_over = False
        return over

    def _to_sender(self, iq: bytes) -> None:
        if b" type='result'" not in iq:
            raise LoadError(f"the gateway refused a message: {iq!r}")
        if b"<received " in iq:
            self._send(0, commands.deliver(b"d%d" % self._count, self._recipient, self._key))
        else:
            self._handed_over = True

    def _to_recipient(self, iq: bytes) -> None:
        self._delivered = self._delivered or commands.is_release(iq)
        self._send(1, commands.answer(iq))

    def _send(self, side: int, data: bytes) -> None:
        if self._sockets[side].send(data) != len(data):
            raise LoadError("a socket accepted only a part of a stanza")

    def close(self) -> None:
        """Close both connections."""
        for connection in self._sockets:
            connection.close()


class Load:
    """All pairs, with the times of their messages."""

    def __init__(self, pairs: list[Pair]) -> None:
        self._sides = {n: (pair, side) for pair in pairs for side, n in enumerate(pair.filenos())}
        self._poll = select.epoll()
        for number in self._sides:
            self._poll.register(number, select.EPOLLIN)
        self._active = True
        self._busy = len(pairs)
        self.times: list[float] = []
        for pair in pairs:
            pair.begin()

    @property
    def done(self) -> int:
        """Number of timed messages."""
        return len(self.times)

    def run(self, seconds: float) -> None:
        """Send messages for some seconds."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self._poll_once(left)

    def drain(self) -> None:
        """Finish the messages in flight and start no more."""
        self._active = False
        end = time.perf_counter() + DRAIN_TIME
        while self._busy:
            if (left := end - time.perf_counter()) <= 0:
                raise LoadError(f"{self._busy} messages did not arrive")
            self._poll_once(left)

    def _poll_once(self, seconds: float) -> None:
        for number, _event in self._poll.poll(seconds):
            pair, side = self._sides[number]
            if not pair.read(side):
                continue
            self.times.append(time.perf_counter() - pair.began)
            if self._active:
                pair.begin()
            else:
                self._busy -= 1


def measure(plan: Plan) -> Measurement:
    """Run the plan in this process."""
    target, run = peer.Target(plan.host, plan.port), secrets.randbits(32)
    pairs: list[Pair] = []
    try:
        for number in range(plan.pairs):
            sockets = [peer.login(target, 2 * number + side, None) for side in (0, 1)]
            pairs.append(Pair(number, run, *sockets))
        load = Load(pairs)
        found = measure_load(load, plan)
        load.drain()
    finally:
        for pair in pairs:
            pair.close()
    return found


def run(plan: Plan) -> Measurement:
    """Run the plan in a process of its own; raises `LoadError`."""
    return run_module("benchmarks.relay_load", asdict(plan), plan.warm_up + plan.seconds)


if __name__ == "__main__":
    command(Plan, measure)
