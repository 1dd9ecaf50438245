"""A gateway at work: its centre, its devices by XMPP and MQTT, and the verdict on what they sent.

Each device sends numbered messages at the levels of quality of service in turn, the next one when
the one before is acknowledged. An assured message whose connection was lost is repeated with its
`msgId`; any other is in doubt. All numbers become events of the log, which the gateway ships.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, Self

from edge.mqtt.packets import (
    ConnAck,
    Connect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
)
from firmware_sim.device.sender_rules import State
from firmware_sim.scenarios import count_verdict
from firmware_sim.scenarios.record import Key
from firmware_sim.scenarios.verdict import Verdict
from sync.common.fleet_folder import FleetFolder
from sync.segment import Event
from tests.helpers.fleet import GATEWAY, HOST
from tests.helpers.folder import fieldpost
from tests.helpers.gateway import PASSWORD, Gateway
from tests.helpers.mqtt import MqttClient
from tests.helpers.processes import Process, free_port, start
from tests.helpers.whole_log import read_log
from tests.helpers.xmpp import BIND as BIND_NS
from tests.helpers.xmpp import Client, Closed, condition, log_message, trusted_ca_context

ENROLMENT: Final = "centre.json"
READINGS: Final = '\n[[readings]]\nfilter = "+/count"\nfields = ["n"]\n'
LOST: Final = (OSError, Closed)
"""Errors of a connection that is lost, and of a login that is refused."""

BIND: Final = f"<bind xmlns='{BIND_NS}'><resource>fw</resource></bind>"

FINISH_S: Final = 120.0
"""Seconds in which devices must have finished when they are told to stop."""

AGAIN_S: Final = 1.0
"""Seconds until a device connects again."""


class Refused(Exception):
    """The gateway refused a message."""


class Site:
    """The folders of a gateway and its centre, and their processes while they run."""

    def __init__(self, folder: Path, xmpp: int, mqtt: int, **limits: object) -> None:
        self.xmpp = [f"xmpp{number}" for number in range(xmpp)]
        self.mqtt = [f"mqtt{number}" for number in range(mqtt)]
        self.gateway = Gateway(folder / "gateway", *self.xmpp, *self.mqtt)
        self.gateway.configure(auto_create=["#"], enrolment=ENROLMENT, **limits)
        self.gateway.configure_section("mqtt", listen_tls=f"{HOST}:0")
        configuration = self.gateway.folder / "fieldpost.toml"
        configuration.write_text(configuration.read_text("utf-8") + READINGS, "utf-8")
        self.fleet = FleetFolder(folder / "fleet")
        self._centre = f"{HOST}:{free_port()}"
        self.enrol()

    def enrol(self, *words: str) -> None:
        """Enrol the gateway with a token and a certificate; with `--renew`, issue new ones."""
        out = self.gateway.folder / ENROLMENT
        out.unlink(missing_ok=True)
        url = f"https://{self._centre}"
        folder = ("--dir", self.fleet.root, "--url", url, "--out", out)
        with start(
            "fieldpost-fleet", "gateway", "add", GATEWAY, *folder, "--certificate", *words,
            ready=False,
        ) as process:  # fmt: skip
            assert process.wait(120) == 0, process.stderr

    def run_centre(self) -> Process:
        """Start the receiver; use it as a context manager."""
        return start("fieldpost-fleet", "serve", "--dir", self.fleet.root, "--listen", self._centre)

    def numbers(self, name: str) -> int:
        """Return the sum over all lanes of a number of `fieldpost uplink status`."""
        lanes = json.loads(self.gateway.command("uplink", "status", "--json"))["lanes"]
        return sum(lane[name] for lane in lanes)

    def reload(self) -> None:
        result = fieldpost(self.gateway.folder, "reload")
        assert result.exit_code == 0, result.output

    def certificate(self, name: str) -> Path:
        """The folder of a device's certificate, which may not exist."""
        return self.gateway.folder / "devices" / name

    def judge(self, devices: Sequence[Device]) -> Verdict:
        """Compare what the devices sent at levels 1 and 2 with the log, after the gateway ended."""
        log, wrong = read_log(self.gateway.folder, self.fleet)
        return judge(devices, log, wrong)


def judge(
    devices: Iterable[Device], log: dict[str, dict[int, Event]], wrong: Sequence[str]
) -> Verdict:
    """Compare the messages of level 1 and 2 with an event log; `wrong` are faults of the log."""
    believed = {
        (device.name, number): state
        for device in devices
        for number, (level, state) in device.sent.items()
        if level
    }
    unassured = {(device.name, n) for device in devices for n in device.sent} - believed.keys()
    logged = [key for key in _numbers(log) if key not in unassured]
    verdict = count_verdict.judge(len(believed), believed, logged)
    if not wrong:
        return verdict
    faults = {**verdict.faults, "log": wrong}
    return Verdict(verdict.numbers, verdict.table, faults, verdict.word, verdict.judged)


def _numbers(log: dict[str, dict[int, Event]]) -> Iterator[Key]:
    for lane, events in log.items():
        for event in events.values():
            number = event.value if lane == "readings" else event.tags.get("n")
            if lane != "system" and number is not None:
                yield (event.source or "").partition("@")[0], int(number)


class Session(Protocol):
    """A connection of a device."""

    async def send(self, level: int, number: int) -> None:
        """Send a message by all steps of its level. Raises `Refused` or one of `LOST`."""

    async def close(self, *, cleanly: bool) -> None: ...


class XmppSession:
    """A session by XMPP; the device logs in by its certificate if it has one."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @classmethod
    async def open(cls, site: Site, process: Process, name: str) -> Self:
        folder = site.certificate(name)
        certificate = folder if folder.exists() else None
        client = await Client.connect(process.host_port("xmpp")[1])
        try:
            await client.start_tls(site.gateway.ca, certificate=certificate)
            await client.element()
            login = ("SCRAM-SHA-256", name) if certificate is None else ("EXTERNAL", "")
            if (found := await client.authenticate(*login, PASSWORD)) != "success":
                raise ConnectionError(found)
            if (answer := await client.iq("set", BIND, to=None)).get("type") != "result":
                raise ConnectionError(condition(answer))
        except LOST:
            await client.close()
            raise
        return cls(client)

    async def send(self, level: int, number: int) -> None:
        message = log_message(number)
        steps: tuple[str, ...] = (f"<acknowledged xmlns='urn:xmpp:qos'>{message}</acknowledged>",)
        if level == 2:
            steps = (
                f"<assured xmlns='urn:xmpp:qos' msgId='{number}'>{message}</assured>",
                f"<deliver xmlns='urn:xmpp:qos' msgId='{number}'/>",
            )
        for step in steps:
            answer = await self._client.iq("set", step)
            if answer.get("type") != "result":
                raise Refused(condition(answer))

    async def close(self, *, cleanly: bool) -> None:
        if cleanly:
            self._client.send("</stream:stream>")
            await self._client.closed()
        else:
            self._client.cut()
            await self._client.close()


class MqttSession:
    """A session by MQTT 5 over TLS."""

    def __init__(self, client: MqttClient, name: str) -> None:
        self._client = client
        self._topic = f"{name}/count"

    @classmethod
    async def open(cls, site: Site, process: Process, name: str) -> Self:
        context = trusted_ca_context(site.gateway.ca)
        client = await MqttClient.open(process, tls=context, name="mqtts")
        answer = await client.ask(Connect("fw", user_name=name, password=PASSWORD.encode()))
        if not isinstance(answer, ConnAck) or answer.reason:
            await client.close()
            raise ConnectionError(answer)
        return cls(client, name)

    async def send(self, level: int, number: int) -> None:
        id = 1 + number % 60_000
        packet = Publish(self._topic, b'{"n":%d}' % number, level, id=id if level else 0)
        steps: dict[int, tuple[tuple[tuple[Packet, ...], type[Packet]], ...]] = {
            0: (((packet, PingReq()), PingResp),),
            1: (((packet,), PubAck),),
            2: (((packet,), PubRec), ((PubRel(id),), PubComp)),
        }
        for packets, expected in steps[level]:
            answer = await self._client.ask(*packets)
            if answer is None:
                raise ConnectionError
            assert isinstance(answer, expected), answer
            if isinstance(answer, PubAck | PubRec) and answer.reason >= 0x80:
                raise Refused(hex(answer.reason))

    async def close(self, *, cleanly: bool) -> None:
        if not cleanly:
            self._client.writer.transport.abort()
        await self._client.close()


class Acknowledgement(NamedTuple):
    """Time and level of an acknowledged message, and the seconds until it was acknowledged."""

    at: float
    level: int
    seconds: float


class Pace(NamedTuple):
    """Rate at which devices send, and whether they come and go.

    Attributes:
        interval: the seconds between two messages of a device.
        messages: the messages of a session, on the average; None keeps the connection.
    """

    interval: float
    messages: int | None = None


class Device:
    """A device that sends until it is told to stop, or the gateway has ended.

    `sent` has the level and the state of each message by its number. `lost` counts the connections
    that were lost or refused, by the error, and `refused` the messages by the reason of their
    refusal.
    """

    def __init__(self, name: str, kind: type[XmppSession | MqttSession], *levels: int) -> None:
        self.name = name
        self.sent: dict[int, tuple[int, State]] = {}
        self.acknowledged: list[Acknowledgement] = []
        self.connected = 0
        self.lost: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._kind = kind
        self._levels = levels
        self._pending: tuple[int, int] | None = None  # an assured message to be repeated
        self._chance = random.Random(name)

    async def run(self, site: Site, process: Process, pace: Pace, stop: asyncio.Event) -> None:
        """Send messages until `stop`, in sessions one after another."""
        await asyncio.sleep(self._chance.uniform(0, pace.interval))
        while process.returncode is None and (self._pending or not stop.is_set()):
            try:
                session = await self._kind.open(site, process, self.name)
            except LOST as error:
                self.lost[repr(error)] += 1
                await asyncio.sleep(AGAIN_S)
                continue
            self.connected += 1
            await self._use(session, pace, stop)

    async def _use(self, session: Session, pace: Pace, stop: asyncio.Event) -> None:
        mean = pace.messages
        left = math.inf if mean is None else self._chance.randrange(1, 2 * mean)
        due = asyncio.get_running_loop().time()
        try:
            while left > 0 and (self._pending or not stop.is_set()):
                await self._send_next(session)
                left -= 1
                now = asyncio.get_running_loop().time()
                due = max(due + pace.interval, now)
                await asyncio.sleep(due - now)
            await session.close(cleanly=mean is None or self._chance.random() < 0.5)
        except LOST as error:
            self.lost[repr(error)] += 1
            await session.close(cleanly=False)

    async def _send_next(self, session: Session) -> None:
        number = len(self.sent) + 1
        level = self._levels[number % len(self._levels)]
        if self._pending:
            number, level = self._pending
        self.sent[number] = level, State.IN_DOUBT
        if (self._kind, level) == (XmppSession, 2):
            self._pending = number, level
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            await session.send(level, number)
        except Refused as refusal:
            self.refused[str(refusal)] += 1
            self.sent[number] = level, State.FAILED
        else:
            self.sent[number] = level, State.DONE
            self.acknowledged.append(Acknowledgement(clock(), level, clock() - begun))
        self._pending = None


class Load:
    """The devices of a site while they send."""

    def __init__(self, site: Site) -> None:
        self.devices = [
            *(Device(name, XmppSession, 2) for name in site.xmpp),
            *(Device(name, MqttSession, 0, 1, 2) for name in site.mqtt),
        ]
        self._site = site

    async def send(self, process: Process, pace: Pace, stop: asyncio.Event) -> None:
        """Let the devices send until `stop`; fail as soon as one of them does."""
        async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as group:
            for device in self.devices:
                group.create_task(device.run(self._site, process, pace, stop))
            await stop.wait()
            limit.reschedule(asyncio.get_running_loop().time() + FINISH_S)

    def count(self) -> int:
        """Return the number of acknowledged messages."""
        return sum(len(device.acknowledged) for device in self.devices)

    def latencies(self, since: float, until: float = math.inf) -> list[tuple[Any, ...]]:
        """Return rows for a table: level, messages, and milliseconds until their acknowledgement:
        the median, the 99th percentile and the maximum. The times are those of the event loop."""
        rows: list[tuple[Any, ...]] = []
        for level in (0, 1, 2):
            took = sorted(
                one.seconds * 1000
                for device in self.devices
                for one in device.acknowledged
                if one.level == level and since <= one.at < until
            )
            if took:
                late = took[math.ceil(0.99 * len(took)) - 1]
                figures = (f"{x:,.0f}" for x in (statistics.median(took), late, took[-1]))
                rows.append((level, f"{len(took):,}", *figures))
        return rows
