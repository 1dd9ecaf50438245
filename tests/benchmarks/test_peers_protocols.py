"""Tests of the load generator's NATS and AMQP, with servers that answer wrongly once."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any

import pytest

from benchmarks import native
from benchmarks.kept_messages import KEPT
from benchmarks.peer import Target
from benchmarks.peer_servers import NODE, STREAM
from tests.benchmarks.test_mqtt import Change, first_time, same
from tests.benchmarks.test_peers import built

EXCHANGES = 12


class Broker(ThreadingTCPServer):
    """A server whose answers to messages are changed."""

    def __init__(self, handler: type[StreamRequestHandler], change: Change) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.change = change
        self.first = ""
        self.messages: list[bytes] = []

    def answer(self, message: bytes, answers: list[bytes]) -> bytes:
        self.messages.append(message)
        return b"".join(self.change(answers))


class Nats(StreamRequestHandler):
    server: Broker

    def handle(self) -> None:
        self.wfile.write(b'INFO {"headers":true}\r\n')
        while words := self.rfile.readline().split():
            if words[0] == b"PING":
                self.wfile.write(b"PONG\r\n")
            if words[0] != b"PUB":
                continue
            content = self.rfile.read(int(words[3]) + 2)[:-2]
            if words[1].startswith(b"$JS.API.STREAM.CREATE."):
                self.server.first = content.decode()
                self.wfile.write(self.message(words[2], b'{"config":{}}'))
            else:
                stored = self.message(words[2], b'{"stream":"readings", "seq":1}')
                self.wfile.write(b"PING\r\n" + self.server.answer(content, [stored]))

    @staticmethod
    def message(subject: bytes, content: bytes) -> bytes:
        return b"MSG %b 1 %d\r\n%b\r\n" % (subject, len(content), content)


METHODS = {
    (10, 11): (0, (10, 30), struct.pack(">HIH", 2047, 131072, 60)),
    (10, 40): (0, (10, 41), b"\0"),
    (20, 10): (1, (20, 11), bytes(4)),
    (50, 10): (1, (50, 11), b"\x08readings" + bytes(8)),
    (85, 10): (1, (85, 11), b""),
}
"""Of AMQP: the answer to a method, with its channel."""


class Amqp(StreamRequestHandler):
    server: Broker

    def handle(self) -> None:
        assert self.rfile.read(8) == b"AMQP\0\0\x09\x01"
        self.wfile.write(frame(0, (10, 10), b""))
        tag = 0
        while head := self.rfile.read(7):
            kind, _channel, size = struct.unpack(">BHI", head)
            content = self.rfile.read(size)
            assert self.rfile.read(1) == b"\xce"
            method = struct.unpack(">HH", content[:4])
            if kind == 1 and method == (50, 10):
                self.server.first = content[4:].decode("latin-1")
            if kind == 1 and method in METHODS:
                self.wfile.write(frame(*METHODS[method]))
            if kind == 1 and method == (60, 70):
                self.wfile.write(self.next_message())
            if kind == 3:
                tag += 1
                self.wfile.write(self.server.answer(content, [acknowledged(tag)]))

    def next_message(self) -> bytes:
        """Return the next message of the queue, or that it is empty or does not exist."""
        if not self.server.first:
            return frame(1, (20, 40), struct.pack(">HBHH", 404, 0, 60, 70))
        if not self.server.messages:
            return frame(1, (60, 72), b"\0")
        message = self.server.messages.pop(0)
        method = frame(1, (60, 71), struct.pack(">QBBB", 1, 0, 0, 0) + bytes(4))
        return (
            method + part(2, 1, struct.pack(">HHQH", 60, 0, len(message), 0)) + part(3, 1, message)
        )


def frame(channel: int, method: tuple[int, int], arguments: bytes) -> bytes:
    return part(1, channel, struct.pack(">HH", *method) + arguments)


def part(kind: int, channel: int, content: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(content)) + content + b"\xce"


def acknowledged(tag: int, *, multiple: bool = False) -> bytes:
    return frame(1, (60, 80), struct.pack(">QB", tag, multiple))


def twice(answers: list[bytes]) -> list[bytes]:
    return 2 * answers


def refused_nats(answers: list[bytes]) -> list[bytes]:
    return [Nats.message(answers[0].split()[1], b'{"error":{"code":503}}')]


def refused_amqp(answers: list[bytes]) -> list[bytes]:
    return [frame(1, (60, 120), answers[0][11:-1])]


@contextmanager
def serving(handler: type[StreamRequestHandler], change: Change = same) -> Iterator[Broker]:
    with Broker(handler, change) as broker:
        thread = Thread(target=broker.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield broker
        finally:
            broker.shutdown()
            thread.join()


def measured(
    protocol: str, handler: type[StreamRequestHandler], change: Change, **more: Any
) -> tuple[dict[str, Any], Broker]:
    program = built(native.LOAD)
    with serving(handler, change) as broker:
        options = {
            "protocol": protocol, "host": "127.0.0.1", "port": broker.server_address[1],
            "connections": 2, "window": 2, "exchanges": EXCHANGES, "seconds": 30, "body": "21.5",
            "password": "benchmark", "to": NODE, "first": json.dumps(STREAM), **more,
        }  # fmt: skip
        command = [str(program), *(f"{name}={value}" for name, value in options.items())]
        done = subprocess.run(
            command, input="\n", capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("connected\n") == bool(more.get("hold"))
    found = json.loads(done.stdout.splitlines()[-1])
    assert ("wrong answer" in done.stderr) == bool(found["errors"])
    return found, broker


@pytest.mark.parametrize(
    ("protocol", "handler", "change", "errors"),
    [
        ("nats", Nats, same, 0),
        ("nats", Nats, twice, 1),
        ("nats", Nats, refused_nats, 1),
        ("amqp", Amqp, same, 0),
        ("amqp", Amqp, twice, 1),
        ("amqp", Amqp, refused_amqp, 1),
    ],
)
def test_messages_are_acknowledged_and_wrong_answers_counted(
    protocol: str, handler: type[StreamRequestHandler], change: Change, errors: int
) -> None:
    found, broker = measured(protocol, handler, first_time(change))
    assert found["errors"] == errors
    assert found["sent"] == EXCHANGES - (change in (refused_nats, refused_amqp))
    assert len(broker.messages) == len(set(broker.messages)) == EXCHANGES
    assert all(message.startswith(b"21.5") for message in broker.messages)


def test_one_acknowledgement_of_amqp_can_be_for_several_messages() -> None:
    kept: list[bytes] = []

    def in_pairs(answers: list[bytes]) -> list[bytes]:
        kept.extend(answers)
        return [] if len(kept) % 2 else [acknowledged(len(kept), multiple=True)]

    found, _broker = measured("amqp", Amqp, in_pairs, connections=1)
    assert (found["sent"], found["errors"]) == (EXCHANGES, 0)


def test_the_stream_and_the_queue_are_made_before_the_first_message() -> None:
    _found, nats = measured("nats", Nats, same, hold=1)
    assert json.loads(nats.first) == STREAM
    _found, amqp = measured("amqp", Amqp, same, hold=1)
    assert amqp.first == "\0\0\x08readings\x02\0\0\0\x18\x0cx-queue-typeS\0\0\0\x06quorum"


@pytest.mark.parametrize("queue", ["readings", ""])
def test_the_messages_of_a_queue_are_got_one_by_one(queue: str) -> None:
    kept = [f"{number:08x}-{number:014x}" for number in range(3)]
    with serving(Amqp) as broker:
        broker.first, broker.messages = queue, [f"21.5 {each}".encode() for each in kept]
        found = KEPT["amqp"](Target("127.0.0.1", broker.server_address[1]))
    assert found == (set(kept) if queue else set())
