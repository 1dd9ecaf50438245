"""A client of MQTT over a socket, which sends and shows single packets."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any, Final, Self

from msgspec.structs import replace

from edge.mqtt.codec import PacketParser, encode
from edge.mqtt.packets import (
    V5,
    ConnAck,
    Connect,
    Fault,
    Packet,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
)
from tests.helpers.gateway import PASSWORD
from tests.helpers.processes import Process
from tests.helpers.xmpp import closed_on_error

WAIT_S: Final = 25.0
"""Seconds to wait for an answer: fewer than a log-in may take by default; a test shortens that."""

MAX_BYTES: Final = 1 << 20


async def open_streams(
    at: tuple[str, int] | Process, tls: ssl.SSLContext | None, name: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection to an address, or to a process that listens at one with a name."""
    address = at.host_port(name) if isinstance(at, Process) else at
    host = None if tls is None else "gw.example"
    return await asyncio.open_connection(*address, ssl=tls, server_hostname=host)


class MqttClient:
    """A connection. As a context manager it is closed at the end, without a DISCONNECT."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.version = version
        self.connack = ConnAck(False)
        self._parser = PacketParser(MAX_BYTES, version, from_client=False)
        self._packets: list[Packet | Fault] = []

    @classmethod
    async def open(
        cls,
        at: tuple[str, int] | Process,
        version: int = V5,
        tls: ssl.SSLContext | None = None,
        name: str = "mqtt",
    ) -> Self:
        """Open a connection to an address, or to a process that listens for MQTT."""
        return cls(*await open_streams(at, tls, name), version)

    @classmethod
    async def connect(
        cls,
        at: tuple[str, int] | Process,
        user: str,
        client_id: str = "fw",
        *,
        version: int = V5,
        **connect: Any,
    ) -> Self:
        """Connect and begin a session; further arguments are fields of the CONNECT."""
        found = await cls.open(at, version)
        packet = Connect(client_id, version, user_name=user, password=PASSWORD.encode())
        async with closed_on_error(found):
            answer = await found.ask(replace(packet, **connect))
            if answer is None:
                raise ConnectionError
            assert isinstance(answer, ConnAck), answer
            assert answer.reason == 0, answer
        found.connack = answer
        return found

    def send(self, *packets: Packet) -> None:
        for packet in packets:
            self.writer.write(encode(packet, self.version))

    async def receive(self) -> Packet | None:
        """Return the next packet; `None` at the end."""
        while not self._packets:
            data = await asyncio.wait_for(self.reader.read(65_536), WAIT_S)
            if not data:
                return None
            self._packets += self._parser.feed(data)
        packet = self._packets.pop(0)
        assert not isinstance(packet, Fault), packet
        return packet

    async def ask(self, *packets: Packet) -> Packet | None:
        """Send packets and return the next one that is received."""
        self.send(*packets)
        return await self.receive()

    async def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        id: int = 1,
        *,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        """Publish by all steps of the level; the gateway must accept the message."""
        packet = Publish(topic, payload, qos, retain, False, id if qos else 0, properties or {})
        if qos == 0:
            await self.sync(packet)
        elif qos == 1:
            assert await self.ask(packet) == PubAck(id)
        else:
            assert await self.ask(packet) == PubRec(id)
            assert await self.ask(PubRel(id)) == PubComp(id)

    async def subscribe(self, *filters: str | Subscription, qos: int = 0) -> tuple[int, ...]:
        """Subscribe to filters and return the reasons."""
        wanted = tuple(Subscription(one, qos) if isinstance(one, str) else one for one in filters)
        answer = await self.ask(Subscribe(1, wanted))
        assert isinstance(answer, SubAck), answer
        return answer.reasons

    async def take(self) -> Publish:
        """Receive a message by all steps of its level."""
        packet = await self.receive()
        assert isinstance(packet, Publish), packet
        if packet.qos == 1:
            self.send(PubAck(packet.id))
        elif packet.qos == 2:
            self.send(PubRec(packet.id))
            before = []  # messages that the gateway has sent meanwhile
            while isinstance(found := await self.receive(), Publish):
                before.append(found)
            assert found == PubRel(packet.id)
            self._packets[:0] = before
            self.send(PubComp(packet.id))
        return packet

    async def sync(self, *packets: Packet) -> None:
        """Send packets and wait until the gateway has read them; nothing else must arrive."""
        assert await self.ask(*packets, PingReq()) == PingResp()

    async def settle(self, *packets: Packet) -> None:
        """As `sync`, but wait until the gateway has stored what follows from the packets."""
        answer = await self.ask(*packets, Unsubscribe(1, ("none",)))
        assert isinstance(answer, UnsubAck), answer

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):  # the gateway was killed
            await self.writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()
