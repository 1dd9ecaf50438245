"""Publish and listen as a device by MQTT 5.0 over TLS, with the codec of `edge.mqtt`."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final

from edge.cli.device_login import Login, LoginRefused, NetworkError
from edge.mqtt.codec import PacketParser, encode
from edge.mqtt.packets import (
    V5,
    ConnAck,
    Connect,
    Disconnect,
    Fault,
    Packet,
    PingReq,
    Properties,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
)
from edge.mqtt.reasons import FAILURE, Reason

MAX_BYTES: Final = 2 * 1024 * 1024
"""Maximum bytes of a packet: a message of 1 MiB, and its properties."""

KEEP_ALIVE: Final = 30.0
"""Seconds without a packet after which `listen` checks that the gateway answers, and then until it
has to have answered."""

_ID: Final = 1
"""The packet identifier of all requests: each is answered before the next one is sent."""

_REFUSED_LOGIN: Final = (Reason.BAD_USER_NAME_OR_PASSWORD, Reason.NOT_AUTHORIZED)


async def send(
    login: Login,
    topic: str,
    payloads: Iterable[bytes],
    qos: int,
    retain: bool,
    properties: Properties,
    timeout: float,  # noqa: ASYNC109
) -> None:
    """Publish messages, and wait until the gateway has accepted each.

    Nothing answers a message at QoS 0, so the gateway is asked for a sign of life afterwards.

    Args:
        properties: those of each PUBLISH.
        timeout: seconds for the log-in, and then for each message.

    Raises:
        NetworkError: the login failed, or a message was refused or not answered.
    """
    async with _connected(login, timeout) as client:
        for payload in payloads:
            packet = Publish(topic, payload, qos, retain, False, _ID if qos else 0, properties)
            try:
                async with asyncio.timeout(timeout):
                    await _publish(client, packet)
            except TimeoutError:
                raise NetworkError(
                    f"no answer in {timeout:g} s; the message may have been published nevertheless"
                ) from None


async def _publish(client: _Client, packet: Publish) -> None:
    if packet.qos == 0:
        await client.ask(packet, PingReq())
        return
    answer = await client.ask(packet)
    if not isinstance(answer, PubAck | PubRec) or answer.reason >= FAILURE:
        raise NetworkError(f"{packet.topic}: refused: {_reason(answer)}")
    if packet.qos == 2:
        await client.ask(PubRel(_ID))


async def listen(
    login: Login,
    filters: tuple[str, ...],
    qos: int,
    show: Callable[[Publish], bool],
    begun: Callable[[], None],
    timeout: float,  # noqa: ASYNC109
    idle: float | None,
) -> None:
    """Receive what is published to topics that match filters, or the items of shares.

    Args:
        qos: the maximum quality of service at which messages are received.
        show: prints a message; returns whether to continue.
        begun: called when the gateway has accepted all filters.
        timeout: seconds for the log-in, and then for the subscription.
        idle: seconds without a message after which to return; `None` means never.

    Raises:
        NetworkError: the login failed, a filter was refused or not answered, or the connection was
            lost.
    """
    async with _connected(login, timeout) as client:
        try:
            async with asyncio.timeout(timeout):
                wanted = tuple(Subscription(one, qos) for one in filters)
                answer = await client.ask(Subscribe(_ID, wanted))
        except TimeoutError:
            raise NetworkError(f"not subscribed in {timeout:g} s") from None
        reasons = answer.reasons if isinstance(answer, SubAck) else (FAILURE,) * len(filters)
        for one, reason in zip(filters, reasons, strict=True):
            if reason >= FAILURE:
                raise NetworkError(f"{one}: refused: {_reason(answer, reason)}")
        begun()
        await _receive(client, show, idle)


async def _receive(client: _Client, show: Callable[[Publish], bool], idle: float | None) -> None:
    """Show and acknowledge messages until `show` wants no more; a message at QoS 2 is finished."""
    more, unreleased = True, set[int]()
    limit = asyncio.timeout(idle)
    try:
        async with limit:
            while more or unreleased:
                packet = await client.receive_or_ping()
                if isinstance(packet, PubRel):
                    unreleased.discard(packet.id)
                    client.send(PubComp(packet.id))
                if not isinstance(packet, Publish) or not more:
                    continue
                more = show(packet)
                if packet.qos == 1:
                    client.send(PubAck(packet.id))
                elif packet.qos == 2:
                    unreleased.add(packet.id)
                    client.send(PubRec(packet.id))
                if idle is not None:
                    limit.reschedule(asyncio.get_running_loop().time() + idle)
    except TimeoutError:
        if not limit.expired():
            raise


class _Client:
    """A connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._parser = PacketParser(MAX_BYTES, V5, from_client=False)
        self._packets: deque[Packet | Fault] = deque()

    def send(self, *packets: Packet) -> None:
        try:
            data = b"".join(encode(packet, V5) for packet in packets)
        except ValueError as error:  # such as a topic of more than 65,535 bytes
            raise NetworkError(str(error)) from None
        self.writer.write(data)

    async def ask(self, *packets: Packet) -> Packet:
        """Send packets, and return the next packet that is received."""
        self.send(*packets)
        await self.writer.drain()
        return await self.receive()

    async def receive(self) -> Packet:
        """Return the next packet; raises `NetworkError` at the end of the connection."""
        while not self._packets:
            data = await self._reader.read(65_536)
            if not data:
                raise NetworkError("the gateway closed the connection")
            self._packets += self._parser.feed(data)
        packet = self._packets.popleft()
        if isinstance(packet, Fault):
            raise NetworkError(f"the gateway violates the protocol: {packet.text}")
        if isinstance(packet, Disconnect):
            raise NetworkError(f"the gateway closed the connection: {_reason(packet)}")
        return packet

    async def receive_or_ping(self) -> Packet:
        """Return the next packet, and check that the gateway answers if there is none for long."""
        receiving = asyncio.ensure_future(self.receive())
        try:
            for _ in range(2):
                done, _ = await asyncio.wait({receiving}, timeout=KEEP_ALIVE)
                if done:
                    return receiving.result()
                self.send(PingReq())
            raise NetworkError(f"the gateway has not answered for {KEEP_ALIVE:g} s")
        finally:
            receiving.cancel()


@asynccontextmanager
async def _connected(login: Login, timeout: float) -> AsyncIterator[_Client]:  # noqa: ASYNC109
    host = login.host or login.domain
    try:
        context = ssl.create_default_context(cafile=login.ca_file)
        if login.certificate is not None:
            context.load_cert_chain(login.certificate, login.key)
        async with asyncio.timeout(timeout):
            streams = await asyncio.open_connection(
                host, login.port, ssl=context, server_hostname=login.domain
            )
    except TimeoutError:
        raise NetworkError(f"not connected in {timeout:g} s") from None
    except OSError as error:
        raise NetworkError(f"{host}:{login.port}: {error}") from error
    client = _Client(*streams)
    try:
        async with asyncio.timeout(timeout):
            await _log_in(client, login)
        yield client
        client.send(Disconnect())
        async with asyncio.timeout(timeout):
            await client.writer.drain()
    except TimeoutError:
        raise NetworkError(f"the gateway does not answer in {timeout:g} s") from None
    except OSError as error:
        raise NetworkError(f"the connection is lost: {error}") from error
    finally:
        client.writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(timeout):
                await client.writer.wait_closed()


async def _log_in(client: _Client, login: Login) -> None:
    bare, _, client_id = login.jid.partition("/")
    password = login.password.encode() if login.password else None
    # One message at a time: a share gives those that are not shown to other members.
    properties = {Property.RECEIVE_MAXIMUM: 1, Property.MAXIMUM_PACKET_SIZE: MAX_BYTES}
    answer = await client.ask(
        Connect(client_id, V5, user_name=bare, password=password, properties=properties)
    )
    if not isinstance(answer, ConnAck) or answer.reason:
        refused = isinstance(answer, ConnAck) and answer.reason in _REFUSED_LOGIN
        text = f"the gateway refused the log-in: {_reason(answer)}"
        raise (LoginRefused if refused else NetworkError)(text)


def _reason(packet: Packet, reason: int | None = None) -> str:
    """Return the reason code of a packet (or another one) in words, with its reason string."""
    code = getattr(packet, "reason", FAILURE) if reason is None else reason
    name = Reason(code).name.lower().replace("_", " ")
    properties: Properties = getattr(packet, "properties", {})
    text = properties.get(Property.REASON_STRING)
    return f"{name}: {text}" if text else name
