"""Devices to devices over the real gateway: levels, announcements and faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from firmware_sim.device.connection import Connection, Endpoint
from firmware_sim.device.device import Device
from firmware_sim.device.limits import ReconnectPolicy, SendPolicy
from firmware_sim.device.outbox import OutboxRecord
from firmware_sim.device.receive_options import ReceivedMessage, ReceiveOptions
from firmware_sim.device.sender_loop import DeliveryStep
from firmware_sim.device.sender_rules import State
from firmware_sim.scenarios.actuator import Actuator, CommandRuns, command
from firmware_sim.scenarios.link import FaultyLink
from tests.helpers.gateway import DOMAIN, NO_RATE_LIMITS, PASSWORD, Gateway
from tests.helpers.guide_examples import run_example
from tests.helpers.talk import wait_online

POLICY = SendPolicy(retry_base=0.3, retry_cap=1.0)
RECONNECT = ReconnectPolicy(base=0.05, cap=0.2, stable=0.1)
PUMP, VALVE = f"pump@{DOMAIN}/fw", f"valve@{DOMAIN}/fw"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    return Gateway(tmp_path_factory.mktemp("gateway") / "gw", "pump", "valve", **NO_RATE_LIMITS)


class Site:
    """A pump that sends, a valve that counts, and their port, CA and folder."""

    def __init__(self, port: int, ca_file: Path, folder: Path) -> None:
        self.port = port
        self.ca_file = ca_file
        self._folder = folder
        self.messages: list[ReceivedMessage] = []
        self._arrived = asyncio.Event()
        self.steps = 0
        self.at_step: Callable[[int], None] = lambda _step: None

    def trusts(self, _sender: str) -> bool:
        """Trust everyone, and count the steps."""
        self.steps += 1
        self.at_step(self.steps)
        return True

    def record(self, message: ReceivedMessage) -> None:
        self.messages.append(message)
        self._arrived.set()

    async def until_recorded(self, count: int) -> None:
        """Wait until this many messages are recorded."""
        async with asyncio.timeout(30):
            while len(self.messages) < count:
                self._arrived.clear()
                await self._arrived.wait()

    def pump(
        self, observe: Callable[[DeliveryStep, int], None] | None = None, **options: Any
    ) -> Device:
        return self._device(PUMP, self.port, observe=observe, **options)

    def valve(self, port: int = 0) -> Device:
        receive = ReceiveOptions(
            self._folder / "inbox",
            Actuator().run,
            afterwards=self.record,
            trusts=self.trusts,
            schema=Actuator.SCHEMA,
        )
        return self._device(VALVE, port or self.port, receive=receive)

    def _device(self, jid: str, port: int, **options: Any) -> Device:
        return Device(
            jid,
            PASSWORD,
            outbox_path=self._folder / jid.partition("@")[0],
            ca_file=self.ca_file,
            host="127.0.0.1",
            port=port,
            policy=POLICY,
            reconnect=RECONNECT,
            **options,
        )


@pytest.fixture
def site(gateway: Gateway, port: int, tmp_path: Path) -> Site:
    return Site(port, gateway.ca, tmp_path)


def sample(cases: Iterable[tuple[object, ...]], every: int) -> list[Any]:
    """Return parameters: `make test-long` runs all of them, `make test` one of `every`."""
    return [
        pytest.param(*case, marks=[pytest.mark.long] if number % every else [])
        for number, case in enumerate(cases)
    ]


def command_runs(device: Device) -> list[CommandRuns]:
    return Actuator.ran(device.inbox.database)


def documented(part: str, jid: str, site: Site, folder: Path, *words: object) -> list[str]:
    return run_example(part, folder, jid, "127.0.0.1", site.port, site.ca_file, *words)


def test_documented_sender_runs(site: Site, gateway: Gateway, tmp_path: Path) -> None:
    output = documented("send_log", PUMP, site, tmp_path, tmp_path / "outbox")
    assert output == ["1 done ", "2 done ", "3 done note-7"]
    pump_events = [e for e in gateway.events() if e["source"] == PUMP]
    logged, second = (e for e in pump_events if e["kind"] == "log")
    assert (second["name"], second["text"], second["qos"]) == ("Note", "By hand.", 1)
    assert (logged["name"], logged["level"], logged["qos"]) == ("Started", "Notice", 2)
    assert (logged["text"], logged["tags"]["rpm"]) == ("The pump runs.", "1450")
    reading = next(e for e in pump_events if e["kind"] == "reading")
    assert (reading["name"], reading["value"], reading["unit"]) == ("temperature", 21.5, "°C")
    assert reading["tags"]["node"] == "boiler1"
    system = list(gateway.events("system"))
    assert system, "the start of the gateway at least"
    assert not [e for e in system if e["kind"] == "limit" or e["name"] == "dead"]


def test_documented_receiver_runs(site: Site, tmp_path: Path) -> None:
    output = documented("ReceiveOptions(", VALVE, site, tmp_path, tmp_path)
    assert sorted(output[:3]) == [f"{qos} {VALVE}" for qos in (0, 1, 2)]
    assert output[3:] == ["3 pulses"]


def test_documented_worker_runs(site: Site, tmp_path: Path) -> None:
    assert documented("Worker(", PUMP, site, tmp_path, tmp_path) == ["j1 is done"]


@pytest.mark.parametrize("level", [0, 1, 2])
async def test_commands_run_in_order_at_each_level(site: Site, level: int) -> None:
    async with site.pump() as pump, site.valve() as valve:
        await wait_online(pump, valve)
        for number in range(30):
            await pump.send(command(f"c{number}", "open"), to=VALVE, qos=level)
        await pump.flush(30)
        await site.until_recorded(30)
        rows = command_runs(valve)
        assert pump.counts()[State.DONE] == (30 if level else 0)
    assert [row.command for row in rows] == [f"c{number}" for number in range(30)]
    assert {(row.qos, row.sender) for row in rows} == {(level, PUMP)}
    first, numbers = [row.first for row in rows], [message.number for message in site.messages]
    assert [number for number in numbers if number in first] == first
    # At level 1 a message is sent again if its answer is late.
    assert level == 1 or (numbers == first and {row.times for row in rows} == {1})


async def test_receiving_device_answers_service_discovery(site: Site) -> None:
    async with site.valve() as valve:
        await wait_online(valve)
        connection = Connection(Endpoint(PUMP, PASSWORD, "127.0.0.1", site.port, site.ca_file))
        await connection.open(30)
        assert await connection.qos.supported(VALVE, timeout=30)
        await connection.close()


@pytest.mark.parametrize(
    ("qos", "message"),
    [
        (1, "<message><body>hi</body></message>"),
        (1, "<message type='normal' id='a&amp;b'><body>hi</body></message>"),
        (2, "<message><body>hi</body></message>"),
    ],
)
async def test_message_that_the_gateway_cannot_use_fails_after_its_result(
    site: Site, qos: int, message: str
) -> None:
    undelivered: list[OutboxRecord] = []
    async with site.pump(on_undelivered=undelivered.append) as pump:
        await wait_online(pump)
        await pump.send_log("Started", "ok", qos=qos)
        number = await pump.send(message, qos=qos)
        await pump.flush(30)
        await pump.confirm(30)
        (record,) = undelivered
        assert (record.number, record.state) == (number, State.FAILED)
        problem = "the message has no log event, no sensor data and no JSON container"
        assert record.reason == f"modify/not-acceptable: {problem}"
        assert list(pump.records(State.FAILED)) == [record]
        counts = pump.counts()
        assert (counts[State.DONE], counts[State.FAILED]) == (1, 1)


async def test_message_to_an_offline_session_fails(site: Site) -> None:
    async with site.pump() as pump:
        await pump.send(command("c", "open"), to=VALVE)
        await pump.flush(30)
        (record,) = pump.records(State.FAILED)
        assert record.reason.startswith("cancel/service-unavailable")


MOMENTS = (DeliveryStep.OFFERED, DeliveryStep.RECEIVED, DeliveryStep.RELEASED)


@pytest.mark.parametrize(
    ("moment", "fault"),
    sample(product(MOMENTS, ("cut", "reset", "lost", "half-closed", "killed")), every=4),
)
async def test_receiver_with_faults_runs_each_command_once(
    site: Site, moment: DeliveryStep, fault: str
) -> None:
    """Nothing is stored for a full JID: a command may fail, but none runs twice."""
    reached = asyncio.Event()

    def observe(step: DeliveryStep, number: int) -> None:
        if step is moment and number == 3:
            reached.set()

    async with (
        FaultyLink("127.0.0.1", site.port) as link,
        site.pump(observe) as pump,
        site.valve(link.port) as valve,
    ):
        await wait_online(pump, valve)
        for number in range(5):
            await pump.send(command(f"c{number}", "open"), to=VALVE)
        async with asyncio.timeout(30):
            await reached.wait()
        if fault == "killed":
            await valve.kill()
            await valve.start()
        elif fault == "half-closed":
            link.half_close(answers=True)
        elif fault == "lost":
            link.lose(answers=True)
            await pump.send(command("lost", "open"), to=VALVE, qos=0)
            link.cut()
        else:
            link.cut(reset=fault == "reset")
        await wait_online(valve)
        await pump.flush(60)
        rows = {row.command: row.times for row in command_runs(valve)}
        states = {f"c{each.number - 1}": each.state for each in pump.records()}
    assert set(rows.values()) <= {1}
    for name, state in states.items():
        assert state is not State.DONE or name in rows
        assert state is not State.FAILED or name not in rows


BARE = f"valve@{DOMAIN}"


@pytest.mark.parametrize("level", [0, 1, 2])
async def test_message_to_an_account_is_stored_for_its_device(site: Site, level: int) -> None:
    async with site.pump() as pump:
        await wait_online(pump)
        for number in range(12):
            await pump.send(command(f"c{number}", "open"), to=BARE, qos=level)
        await pump.flush(30)  # the gateway answers for it
        if not level:  # no answer confirms plain messages
            await pump.send(command("last", "open"), to=f"pump@{DOMAIN}/nobody", qos=1)
            await pump.flush(30)
        async with site.valve() as valve:
            await site.until_recorded(12)
            rows = command_runs(valve)
    assert [row.command for row in rows] == [f"c{number}" for number in range(12)]
    assert {(row.times, row.qos, row.sender) for row in rows} == {(1, level, PUMP)}
    root = site.messages[0].xml()
    assert (root.findtext("{urn:xmpp:delay}delay") is None) == (level > 0)


@pytest.mark.parametrize(
    ("step", "fault"), sample(product(range(1, 9), ("cut", "half-closed", "killed")), every=4)
)
async def test_custody_and_faults_run_each_command_once_in_order(
    site: Site, step: int, fault: str
) -> None:
    """Four commands, each in two steps: the device fails at one of them, with its answer."""
    reached = asyncio.Event()

    def at_step(number: int) -> None:
        if number != step:
            return
        reached.set()
        if fault == "half-closed":
            link.half_close(requests=True)
        elif fault == "cut":
            link.cut()

    site.at_step = at_step
    async with (
        FaultyLink("127.0.0.1", site.port) as link,
        site.pump() as pump,
        site.valve(link.port) as valve,
    ):
        await wait_online(pump, valve)
        for number in range(4):
            await pump.send(command(f"c{number}", "open"), to=BARE)
        async with asyncio.timeout(30):
            await reached.wait()
        if fault == "killed":
            await valve.kill()
            await valve.start()
        await pump.flush(30)
        while len(command_runs(valve)) < 4:  # a killed device may not call `afterwards`
            await site.until_recorded(len(site.messages) + 1)
        rows = command_runs(valve)
        assert pump.counts()[State.DONE] == 4
    assert [(row.command, row.times) for row in rows] == [(f"c{n}", 1) for n in range(4)]
