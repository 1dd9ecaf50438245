"""Ask servers which messages they have, by the protocols of the load generator in C."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Final

from benchmarks import peer
from benchmarks.peer import PASSWORD, Target
from benchmarks.peer_servers import NODE, PUBSUB
from edge.mqtt.codec import PacketParser, encode
from edge.mqtt.packets import (
    V311,
    ConnAck,
    Connect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
)

ID: Final = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{14}")
"""The load generator's id of a message."""


def ids(data: bytes) -> set[str]:
    return {found.decode() for found in ID.findall(data)}


class _Packets:
    """A client of MQTT 3.1.1."""

    def __init__(self, address: Target, client: str, *, clean: bool) -> None:
        self.socket = peer.connect(address)
        self._parser = PacketParser(peer.MAX_ANSWER, from_client=False, version=V311)
        self._found: list[Packet] = []
        self.send(Connect(client, V311, clean, 0, peer.device(0), PASSWORD.encode()))
        answer = self.next()
        if not isinstance(answer, ConnAck) or answer.reason:
            raise peer.LoginError(f"{client} is refused: {answer}")
        self.resumed = answer.session_present

    def send(self, packet: Packet) -> None:
        self.socket.sendall(encode(packet, V311))

    def next(self) -> Packet:
        while not self._found:
            data = self.socket.recv(peer.MAX_ANSWER)
            if not data:
                raise peer.LoginError("the server closed the connection")
            self._found += self._parser.feed(data)  # type: ignore[arg-type]
        return self._found.pop(0)


def _kept_mqtt(address: Target) -> set[str]:
    """Ask for the messages of the subscriber that was away, up to one that is published now."""
    last, kept = b"the last message", b""
    publisher = _Packets(address, "publisher", clean=True)
    subscriber = _Packets(address, "subscriber", clean=False)
    with closing(publisher.socket), closing(subscriber.socket):
        publisher.send(Publish(f"{peer.device(0)}/state", last, qos=1, id=1))
        while subscriber.resumed and not kept.endswith(last):
            packet = subscriber.next()
            if isinstance(packet, Publish):
                kept += packet.payload
                if packet.qos:
                    acknowledge = PubAck if packet.qos == 1 else PubRec
                    subscriber.send(acknowledge(packet.id))
            elif isinstance(packet, PubRel):
                subscriber.send(PubComp(packet.id))
    return ids(kept)


def _kept_nats(address: Target) -> set[str]:
    """Ask for the stream's messages by their numbers."""
    kept = b""
    login = {"user": peer.device(0), "pass": PASSWORD, "verbose": False, "pedantic": False}
    with closing(peer.connect(address)) as connection, connection.makefile("rb") as lines:
        connection.sendall(b"CONNECT %b\r\nSUB kept 1\r\n" % json.dumps(login).encode())

        def ask(request: str, content: str) -> dict[str, dict[str, object]]:
            subject = f"$JS.API.STREAM.{request}.{NODE}"
            connection.sendall(f"PUB {subject} kept {len(content)}\r\n{content}\r\n".encode())
            while not (line := lines.readline()).startswith(b"MSG "):
                if not line:
                    raise peer.LoginError("the server closed the connection")
            return dict(json.loads(lines.read(int(line.split()[-1]) + 2)))

        state = ask("INFO", "").get("state", {})
        last = state.get("last_seq", 0)
        assert isinstance(last, int)
        for number in range(1, last + 1):
            message = ask("MSG.GET", json.dumps({"seq": number})).get("message", {})
            kept += base64.b64decode(str(message.get("data", "")))
    return ids(kept)


def _kept_pubsub(address: Target) -> set[str]:
    """Ask for the node's items."""
    with closing(peer.login(address, 0, None)) as connection:
        connection.sendall(
            f"<iq type='get' id='kept' to='{PUBSUB}'>"
            f"<pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='{NODE}'/></pubsub>"
            "</iq>".encode()
        )
        answer = b""
        while not answer.endswith(b"</iq>"):
            data = connection.recv(peer.MAX_ANSWER)
            if not data:
                raise peer.LoginError("the server closed the connection")
            answer += data
    return ids(answer)


_START_OK, _TUNE_OK, _OPEN = (10, 11), (10, 31), (10, 40)
_CHANNEL_OPEN, _CHANNEL_CLOSE, _GET, _GET_EMPTY = (20, 10), (20, 40), (60, 70), (60, 72)
_METHOD, _BODY = 1, 3


def _kept_amqp(address: Target) -> set[str]:
    """Get the queue's messages, one by one (AMQP 0.9.1)."""
    kept = b""
    with closing(peer.connect(address)) as connection, connection.makefile("rb") as frames:

        def send(channel: int, method: tuple[int, int], arguments: bytes) -> None:
            content = struct.pack(">HH", *method) + arguments
            head = struct.pack(">BHI", _METHOD, channel, len(content))
            connection.sendall(head + content + b"\xce")

        def receive() -> tuple[int, bytes]:
            head = frames.read(7)
            if len(head) < 7:
                raise peer.LoginError("the server closed the connection")
            kind, _channel, size = struct.unpack(">BHI", head)
            return int(kind), frames.read(size + 1)[:-1]

        connection.sendall(b"AMQP\0\0\x09\x01")
        receive()
        response = f"\0{peer.device(0)}\0{PASSWORD}".encode()
        login = b"\x05PLAIN" + struct.pack(">I", len(response)) + response + b"\x05en_US"
        send(0, _START_OK, bytes(4) + login)
        _kind, tune = receive()
        send(0, _TUNE_OK, tune[4:10] + bytes(2))
        send(0, _OPEN, b"\x01/\0\0")
        receive()
        send(1, _CHANNEL_OPEN, b"\0")
        receive()
        queue = bytes(2) + bytes([len(NODE)]) + NODE.encode()
        # The channel is closed if there is no such queue.
        ends = struct.pack(">HH", *_GET_EMPTY), struct.pack(">HH", *_CHANNEL_CLOSE)
        kind, answer = _BODY, b""
        while not answer.startswith(ends):
            if kind == _BODY:
                kept += answer
                send(1, _GET, queue + b"\x01")  # without acknowledgement
            kind, answer = receive()
    return ids(kept)


KEPT: Final[Mapping[str, Callable[[Target], set[str]]]] = {
    "mqtt": _kept_mqtt,
    "nats": _kept_nats,
    "pubsub": _kept_pubsub,
    "amqp": _kept_amqp,
}
"""By protocol: ask a server for the ids of the messages that it has."""
