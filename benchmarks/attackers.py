"""Attackers of a gateway, each a process of its own that costs little: prepared bytes on sockets.

`python -m benchmarks.attackers NAME HOST PORT` prints the line `attacking` when its attack has
begun, attacks until its standard input ends, and then prints a JSON object (`Counts`). Attackers
without an account connect from several addresses, because limits apply per address.
"""

from __future__ import annotations

import argparse
import itertools
import json
import select
import socket
import ssl
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

from benchmarks import peer
from benchmarks.payload import DOMAIN, HEADER
from edge.mqtt.codec import encode
from edge.mqtt.packets import V5, Subscribe, Subscription, Unsubscribe

HANDSHAKES: Final = 1750 / 6
"""TLS handshakes a second, and new connections a second of the other floods."""

SILENT: Final = 200
"""Silent connections at a time."""

BYTEWISE: Final = 40
"""Connections that send bytes one by one."""

BYTES: Final = 10_000
"""Bytes a second that they send together, each in a packet of its own."""

PATIENCE: Final = 5.0
"""Seconds after which an unanswered handshake is given up."""

SUBSCRIBERS: Final = 5
"""Sessions of the device that subscribes to overlapping filters again and again."""

FILTERS: Final = 200
"""Filters of each of these sessions: together as many as an account may have."""

LEVELS: Final = ("state", "a", "b", "c", "d", "e", "f", "g")
"""The levels of the topics that these filters match, behind the first one."""

SUBSCRIBER: Final = 40
"""The number of that device, behind those that are measured."""

_ADDRESSES: Final = 8
_READ: Final = 64 * 1024
_TURN: Final = 0.002  # seconds between two checks of what is due, at least


@dataclass
class Counts:
    """The numbers of an attack: connections begun, handshakes that the gateway answered,
    connections that the gateway closed or refused, and bytes sent."""

    connections: int = 0
    answered: int = 0
    closed: int = 0
    sent: int = 0


class Attack(ABC):
    """An attack on an address; `turn` is called all the time, with the seconds since the start."""

    def __init__(self, target: peer.Target) -> None:
        self.counts = Counts()
        self._target = target
        self._poll = select.epoll()
        self._open: dict[int, tuple[socket.socket, float]] = {}
        self._sources = itertools.cycle(f"127.0.1.{n}" for n in range(1, _ADDRESSES + 1))

    @abstractmethod
    def turn(self, seconds: float) -> None:
        """Do what is due."""

    def begin(self) -> None:  # noqa: B027
        """Prepare, if need be."""

    def received(self, number: int, data: bytes) -> None:  # noqa: B027
        """Handle what a connection has received, if that matters."""

    def _connect(self, data: bytes) -> None:
        """Begin a connection that sends data as soon as it can."""
        connection = socket.socket()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.bind((next(self._sources), 0))
        connection.settimeout(PATIENCE)  # until it is connected, at once on this machine
        try:
            connection.connect(self._target[:2])
            connection.setblocking(False)
            if data:
                self.counts.sent += connection.send(data)
        except OSError:
            self.counts.connections += 1
            self.counts.closed += 1
            connection.close()
        else:
            self._add(connection)

    def _add(self, connection: socket.socket) -> None:
        self.counts.connections += 1
        self._open[connection.fileno()] = connection, time.monotonic()
        self._poll.register(connection.fileno(), select.EPOLLIN)

    def _close(self, number: int) -> None:
        self._open.pop(number)[0].close()

    def run(self) -> None:
        """Attack until standard input ends."""
        self.begin()
        print("attacking", flush=True)
        self._poll.register(sys.stdin.fileno(), select.EPOLLIN)
        began = time.monotonic()
        while True:
            for number, _event in self._poll.poll(_TURN):
                if number == sys.stdin.fileno():
                    return
                self._read(number)
            self.turn(time.monotonic() - began)

    def _read(self, number: int) -> None:
        data = b""
        with suppress(ConnectionError):
            data = self._open[number][0].recv(_READ)
        if data:
            self.received(number, data)
        else:
            self.counts.closed += 1
            self._close(number)


class Handshakes(Attack):
    """Begin TLS handshakes at a fixed rate; end each when the gateway has signed its answer."""

    def begin(self) -> None:
        """Prepare the first message of all handshakes."""
        self._hello = _client_hello()

    def turn(self, seconds: float) -> None:
        """Begin the handshakes that are due, and give up old ones."""
        while self.counts.connections < seconds * HANDSHAKES:
            self._connect(self._hello)
        now = time.monotonic()
        while self._open:
            number, (_connection, began) = next(iter(self._open.items()))
            if now - began < PATIENCE:
                break
            self._close(number)

    def received(self, number: int, data: bytes) -> None:
        """Count an answer, and close."""
        self.counts.answered += 1
        self._close(number)


class SilentConnections(Attack):
    """Hold many silent connections; connect again for each that the gateway closes."""

    def turn(self, seconds: float) -> None:
        """Replace closed connections."""
        while len(self._open) < SILENT and self.counts.connections < SILENT + seconds * HANDSHAKES:
            self._connect(b"")


class BytewiseStanzas(Attack):
    """Send the header of a stream and a stanza that never ends, byte by byte."""

    _DATA: Final = HEADER + b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>"

    def begin(self) -> None:
        """Prepare."""
        self._at: dict[int, int] = {}

    def turn(self, seconds: float) -> None:
        """Send the bytes that are due, one on each connection."""
        while self.counts.sent < seconds * BYTES:
            while len(self._open) < BYTEWISE:
                self._connect(b"")
            for number, (connection, _began) in list(self._open.items()):
                at = self._at.get(number, 0)
                with suppress(OSError):
                    self.counts.sent += connection.send(self._DATA[at : at + 1] or b"A")
                self._at[number] = at + 1

    def _close(self, number: int) -> None:
        self._at.pop(number, None)
        super()._close(number)


class OverlappingFilters(Attack):
    """Log in, subscribe to overlapping filters and unsubscribe, as fast as the gateway reads."""

    def begin(self) -> None:
        """Log in."""
        names = overlapping(FILTERS)
        wanted = tuple(Subscription(name) for name in names)
        packets = Subscribe(1, wanted), Unsubscribe(2, tuple(names))
        self._packets = b"".join(encode(packet, V5) for packet in packets)
        self._rest: dict[int, bytes] = {}
        for number in range(SUBSCRIBERS):
            connection = peer.login_mqtt(self._target, SUBSCRIBER, None, f"attacker{number}")
            connection.setblocking(False)
            self._add(connection)
            self._rest[connection.fileno()] = self._packets

    def turn(self, seconds: float) -> None:
        """Send as much as the gateway takes."""
        for number, (connection, _began) in self._open.items():
            with suppress(BlockingIOError):
                while True:
                    sent = connection.send(self._rest[number])
                    self.counts.sent += sent
                    self._rest[number] = self._rest[number][sent:] or self._packets


def overlapping(count: int) -> list[str]:
    """Return different filters that all match the topics `NAME/` and `LEVELS`."""
    choices = itertools.product(*((level, "+") for level in LEVELS))
    return ["/".join(("+", *levels)) for levels in itertools.islice(choices, count)]


def _client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=DOMAIN).do_handshake()
    return outgoing.read()


ATTACKS: Final[Mapping[str, Callable[[peer.Target], Attack]]] = {
    "handshakes": Handshakes,
    "connections": SilentConnections,
    "bytes": BytewiseStanzas,
    "filters": OverlappingFilters,
}


def main() -> None:
    """Run the attack of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=ATTACKS)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    options = parser.parse_args()
    attack = ATTACKS[options.name](peer.Target(options.host, options.port))
    attack.run()
    print(json.dumps(asdict(attack.counts)))


if __name__ == "__main__":
    main()
