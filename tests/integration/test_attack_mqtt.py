"""Tests of attacks by MQTT: honest devices exchange messages meanwhile, and memory is bounded.

A device of MQTT and one of XMPP send to each other at QoS 2 during each attack. What is refused is
logged, in few events.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import pytest

from edge.mqtt.codec import encode
from edge.mqtt.packets import (
    V5,
    V311,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    Property,
    PubAck,
    Publish,
    PubRec,
    SubAck,
    Subscribe,
    Subscription,
    Will,
)
from edge.mqtt.reasons import Reason
from edge.server.mqtt import aliases
from tests.helpers.gateway import DOMAIN, NO_RATE_LIMITS, Gateway, bind_session
from tests.helpers.hostile import ATTACKER_IP, HONEST, AttackedGateway, assert_unharmed
from tests.helpers.mqtt import MqttClient
from tests.helpers.xmpp import Client

GROWTH_KIB: Final = 16 * 1024
"""Growth allowed during an attack: the buffers of its connections, of which few are bound."""

EVENTS: Final = 20
"""Maximum events of a limit during all attacks: refusals are counted, not listed."""

LIMITS: Final[dict[str, int]] = {
    "refusal_window": 3600,  # however long the attacks take
    "authenticate_time": 5,
    "will_bytes_per_account": 64 * 1024,
    "sessions_per_account": 100,
    "durable_sessions": 20_000,
    "durable_sessions_per_account": 20_000,
    "nodes_per_account": 500,
    "subscriptions_per_account": 100,
}
"""Limits that the attacks reach soon; those of sessions are high so that wills reach their own."""

QOS: Final = "urn:xmpp:qos"
INFO: Final = "http://jabber.org/protocol/disco#info"
SERVICE: Final = f"pubsub.{DOMAIN}"
EVIL: Final = f"evil@{DOMAIN}"
VICTIM: Final = f"victim@{DOMAIN}"
TO_XMPP: Final = "honest/to-xmpp"
TO_MQTT: Final = "honest/to-mqtt"
SUBSCRIBE: Final = (
    "<pubsub xmlns='http://jabber.org/protocol/pubsub'>"
    f"<subscribe node='{TO_XMPP}/#' jid='{HONEST}@{DOMAIN}'/>"
    "<options><x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'>"
    "<value>http://jabber.org/protocol/pubsub#subscribe_options</value></field>"
    "<field var='pubsub#qos'><value>2</value></field></x></options></pubsub>"
)


# Honest devices


class Exchange:
    """A device of MQTT and one of XMPP, which send numbers to each other at QoS 2.

    Each has a session that sends and one that receives. A round must be complete before the
    next begins, and each wait has a timeout.
    """

    def __init__(
        self,
        attacked: AttackedGateway,
        sender: Client,
        receiver: Client,
        mqtt: MqttClient,
        reader: MqttClient,
    ) -> None:
        self._attacked = attacked
        self._sender = sender
        self._receiver = receiver
        self._mqtt = mqtt
        self._reader = reader
        self.rounds = 0
        self.peak = 0  # resident memory of the gateway, in KiB
        self.stops = False

    async def run(self) -> None:
        while not self.stops:
            await self.round()
            self.peak = max(self.peak, self._attacked.resident())

    async def round(self) -> None:
        """Send a number both ways, each exactly once: the next message has the next number."""
        number = self.rounds
        await self._mqtt.publish(TO_XMPP, b"%d" % number, 2)
        assert await self._take() == str(number)
        await self._send(number)
        found = await self._reader.take()
        assert found.payload == b"<body xmlns='jabber:client'>%d</body>" % number
        self.rounds += 1

    async def _send(self, number: int) -> None:
        message = f"<message xmlns='jabber:client'><body>{number}</body></message>"
        for step in (
            f"<assured xmlns='{QOS}' msgId='{number}'>{message}</assured>",
            f"<deliver xmlns='{QOS}' msgId='{number}'/>",
        ):
            answer = await self._sender.iq("set", step, f"{SERVICE}/{TO_MQTT}")
            assert answer.get("type") == "result"

    async def _take(self) -> str:
        """Receive a message by both steps, and return its text."""
        text = ""
        while True:
            iq = await self._receiver.element()
            (payload,) = iq
            content, id_ = "", payload.get("msgId", "")
            if payload.tag == f"{{{INFO}}}query":
                content = f"<query xmlns='{INFO}'><feature var='{QOS}'/></query>"
            elif payload.tag == f"{{{QOS}}}assured":
                assert not text, "one message is released before the next is sent"
                text = "".join(payload.itertext())
                content = f"<received xmlns='{QOS}' msgId='{id_}'/>"
            id_, to = iq.attrib["id"], iq.attrib["from"]
            self._receiver.send(f"<iq type='result' id='{id_}' to='{to}'>{content}</iq>")
            if payload.tag == f"{{{QOS}}}deliver":
                return text


@asynccontextmanager
async def exchanging(attacked: AttackedGateway) -> AsyncIterator[Exchange]:
    """Exchange messages in the background; a complete round comes first and last."""
    process = attacked.process
    async with contextlib.AsyncExitStack() as stack:
        sender, receiver = [
            await stack.enter_async_context(await bind_session(process, HONEST, name))
            for name in ("sender", "receiver")
        ]
        meter, reader = [
            await stack.enter_async_context(await MqttClient.connect(process, "meter", name))
            for name in ("sender", "reader")
        ]
        new = Subscription(TO_MQTT, 2, retain_handling=2)
        assert await reader.subscribe(new) == (2,)
        assert (await receiver.iq("set", SUBSCRIBE, SERVICE)).get("type") == "result"
        receiver.send("<presence/>")
        await receiver.element()
        exchange = Exchange(attacked, sender, receiver, meter, reader)
        await exchange.round()
        async with asyncio.TaskGroup() as group:
            group.create_task(exchange.run())
            yield exchange
            exchange.stops = True
        await exchange.round()


# Attacks


async def refused(attacked: AttackedGateway, packet: Connect) -> int:
    """Ask for a session, and cut the connection; return the reason code of the answer."""
    async with await MqttClient.open(attacked.process, packet.version) as client:
        answer = await client.ask(packet)
        assert isinstance(answer, ConnAck)
        client.writer.transport.abort()
        return answer.reason


async def begin(attacked: AttackedGateway, version: int = V5) -> MqttClient:
    """Begin a session of the attacker."""
    return await MqttClient.connect(attacked.process, "evil", "evil", version=version)


async def last(client: MqttClient) -> Packet | None:
    """Return the last packet before the gateway closes the connection."""
    found = None
    with contextlib.suppress(ConnectionError):
        while (packet := await client.receive()) is not None:
            found = packet
    return found


async def slow_connect(attacked: AttackedGateway, count: int) -> None:
    """Send a CONNECT byte by byte on many connections, of which only some are accepted."""
    data = encode(Connect("evil", password=b"x" * 4000, user_name="evil"), V5)

    async def send() -> None:
        async with await MqttClient.open(attacked.process) as client:
            for at in range(len(data)):
                client.writer.write(data[at : at + 1])
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        if not await client.reader.read(100):
                            return
            raise AssertionError

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(ignore_cut(send()))


async def ignore_cut(work: Awaitable[None]) -> None:
    with contextlib.suppress(ConnectionError):
        await work


async def large_packets(attacked: AttackedGateway, count: int) -> None:
    """Announce packets of 256 MiB, before and after the log-in, and begin to send them."""
    for number in range(count):
        is_bound = number % 2
        async with await (
            begin(attacked) if is_bound else MqttClient.open(attacked.process)
        ) as client:
            kind = b"\x30" if is_bound else b"\x10"
            client.writer.write(kind + b"\xff\xff\xff\x7f" + bytes(200_000))
            if is_bound:
                with contextlib.suppress(ConnectionError):  # a reset may discard the DISCONNECT
                    end = await client.receive()
                    assert isinstance(end, Disconnect | None)
                    assert end is None or end.reason == Reason.PACKET_TOO_LARGE
            else:
                await last(client)


async def wills(attacked: AttackedGateway, count: int) -> None:
    """Leave many sessions whose wills are to be published much later, several at once."""
    keep = {Property.SESSION_EXPIRY: 100_000}
    delay = {Property.WILL_DELAY: 100_000}
    will = Will("evil/will", bytes(4000), 1, True, delay)
    most = LIMITS["will_bytes_per_account"] // 4000
    reasons: list[int] = []
    for first in range(0, count, most):
        names = [f"w{number}" for number in range(first, min(first + most, count))]
        wanted = [Connect(name, V5, False, will=will, properties=keep) for name in names]
        reasons += await asyncio.gather(*(refused(attacked, packet) for packet in wanted))
    assert Reason.SUCCESS in reasons[:most]
    assert set(reasons) == {Reason.SUCCESS, Reason.QUOTA_EXCEEDED}
    assert set(reasons[most:]) == {Reason.QUOTA_EXCEEDED}


async def retained_messages(attacked: AttackedGateway, count: int) -> None:
    """Retain messages of many topics, all in flight at once."""
    async with await begin(attacked) as client:
        reasons = []
        for first in range(0, count, 50):
            numbers = range(first, first + 50)
            client.send(*(Publish(f"r/{n}", bytes(400), 1, True, id=n + 1) for n in numbers))
            for number in numbers:
                answer = await client.receive()
                assert isinstance(answer, PubAck)
                assert answer.id == number + 1
                reasons.append(answer.reason)
    accepted = LIMITS["nodes_per_account"] - reasons.count(Reason.SUCCESS)
    assert 0 <= accepted < 20, "of other attacks"
    assert set(reasons[LIMITS["nodes_per_account"] :]) == {Reason.QUOTA_EXCEEDED}


async def subscriptions(attacked: AttackedGateway, count: int) -> None:
    """Subscribe to all topics in many ways, and acknowledge nothing."""
    async with await begin(attacked) as client:
        found: list[int] = []
        for first in range(0, 50 * count, 50):
            shares = [f"$share/s{number}/#" for number in range(first, first + 50)]
            filters = ["#", "+/#", "+/+", "honest/+", *shares]
            client.send(Subscribe(1, tuple(Subscription(text, 2) for text in filters)))
            while not isinstance(answer := await client.receive(), SubAck):
                assert isinstance(answer, Publish)
            found += answer.reasons
        assert found.count(2) > 90
        assert set(found) == {2, Reason.QUOTA_EXCEEDED}


async def topic_aliases(attacked: AttackedGateway, count: int) -> None:
    """Set aliases again and again to large topics, and use those that are none."""
    for number in range(count):
        async with await begin(attacked) as client:
            for alias in range(1, aliases.MOST + 1):
                topic = f"{number}{'a' * (60_000 if alias % 2 else 240)}"
                client.send(Publish(topic, b"", properties={Property.TOPIC_ALIAS: alias}))
            wrong = aliases.MOST + 1 if number % 2 else 1
            client.send(Publish("", b"", properties={Property.TOPIC_ALIAS: wrong}))
            end = await last(client)
            assert isinstance(end, Disconnect | None)
            assert end is None or end.reason == Reason.TOPIC_ALIAS_INVALID


async def unreleased_messages(attacked: AttackedGateway, count: int) -> None:
    """Use all identifiers at QoS 2, and release none of them."""
    for number in range(count):
        async with await begin(attacked, (V5, V311)[number % 2]) as client:
            ids = range(1 + number * 200, 201 + number * 200)
            client.send(*(Publish("evil/2", bytes(400), 2, id=1 + n % 65_535) for n in ids))
            received = 0
            with contextlib.suppress(ConnectionError):
                while isinstance(await client.receive(), PubRec):
                    received += 1
            assert received <= 64


def silent_subscriber(qos: int) -> Callable[[AttackedGateway, int], Awaitable[None]]:
    async def attack(attacked: AttackedGateway, count: int) -> None:
        """Publish to a session of another account that never reads."""
        keep = {Property.SESSION_EXPIRY: 3600}
        silent = await MqttClient.connect(
            attacked.process, "victim", "silent", clean=False, properties=keep
        )
        async with silent, await begin(attacked) as client:
            assert await silent.subscribe("flood/#", qos=qos) == (qos,)
            silent.reader._transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(count):
                await client.settle(*(Publish("flood/1", bytes(16_000)) for _ in range(20)))
                await client.publish("flood/1", bytes(16_000), qos)
            silent.writer.transport.abort()

    return attack


class Attack(NamedTuple):
    """An attack, its counts in `make test` and `make test-long`, and the limit that it reaches.

    Attributes:
        source: the source of the limit's events.
        kept: growth allowed after the attack, in KiB: the caches that it fills.
    """

    run: Callable[[AttackedGateway, int], Awaitable[None]]
    small: int
    large: int
    rule: str
    source: str = EVIL
    kept: int = 8 * 1024


ATTACKS: Final = {
    "slow CONNECT": Attack(slow_connect, 60, 200, "authenticate_time", ATTACKER_IP),
    "large packets": Attack(large_packets, 20, 2000, "packet_too_large", ATTACKER_IP),
    # 13 MiB were the most: after 16,000 wills and after 32,000 alike.
    "wills": Attack(wills, 60, 10_000, "will_bytes_per_account", kept=GROWTH_KIB),
    "retained messages": Attack(retained_messages, 600, 10_000, "nodes_per_account"),
    "subscriptions": Attack(subscriptions, 3, 500, "subscriptions_per_account"),
    "topic aliases": Attack(topic_aliases, 6, 500, "no_destination"),
    "unreleased messages": Attack(unreleased_messages, 4, 500, "held_messages_per_source"),
    "silent subscriber at QoS 0": Attack(silent_subscriber(0), 30, 500, "send_buffer", VICTIM),
    "silent subscriber at QoS 1": Attack(
        silent_subscriber(1), 80, 500, "outbox_bytes_per_account", VICTIM
    ),
}


@pytest.fixture(scope="module")
def done() -> list[Attack]:
    """Return the attacks of the tests before."""
    return []


@pytest.fixture(scope="module")
def attacked(
    tmp_path_factory: pytest.TempPathFactory, done: list[Attack]
) -> Iterator[AttackedGateway]:
    """Run a gateway; at its end, it has logged what it counted."""
    gateway = Gateway(
        tmp_path_factory.mktemp("attacks") / "gateway",
        *(HONEST, "meter", "evil", "victim"),
        require_tls=False,
        auto_create=["#"],
        **NO_RATE_LIMITS,
        **LIMITS,
    )
    options = {"listen": "127.0.0.1:0", "require_tls": False, "anonymous": "evil"}
    gateway.configure_section("mqtt", **options)
    with gateway.run() as process:
        yield AttackedGateway(gateway, process)
        assert process.terminate() == 0
        assert "Traceback" not in process.stderr, process.stderr
    events = Counter(
        (event["name"], event["source"])
        for event in gateway.events("system")
        if event["kind"] == "limit"
    )
    assert {(attack.rule, attack.source) for attack in done} <= events.keys()
    assert max(events.values()) < EVENTS


@pytest.mark.parametrize("name", ATTACKS)
async def test_honest_devices_exchange_messages_and_memory_is_bounded(
    attacked: AttackedGateway,
    done: list[Attack],
    name: str,
    scale: Callable[[int, int], int],
    record_property: Callable[[str, object], None],
) -> None:
    attack = ATTACKS[name]
    async with assert_unharmed(attacked, attack.kept):
        before = attacked.resident()
        async with exchanging(attacked) as exchange:
            await attack.run(attacked, scale(attack.small, attack.large))
        record_property("rounds", exchange.rounds)
        record_property("growth_kib", exchange.peak - before)
        assert exchange.peak - before < GROWTH_KIB
    done.append(attack)
