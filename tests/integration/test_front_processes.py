"""Front processes that are killed, stopped and ended while devices exchange messages."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Final

from edge.mqtt.packets import Disconnect, Property, PubComp, Publish, PubRec, PubRel
from edge.mqtt.reasons import Reason
from edge.server.front_process import MAX_UNANSWERED
from tests.helpers.gateway import NO_RATE_LIMITS, Gateway, bind_session, log_in, port_of
from tests.helpers.mqtt import MqttClient
from tests.helpers.processes import Process, wait_all_ended
from tests.helpers.xmpp import SM, WAIT_S, Client, log_message

KEPT: Final = {Property.SESSION_EXPIRY: 3600}
TOPIC: Final = "plant/temp"
MIB: Final = 1 << 20


def make_gateway(folder: Path, processes: int, **options: object) -> Gateway:
    gateway = Gateway(
        folder / "gateway",
        *("ant", "bee", "cat"),
        processes=processes,
        require_tls=False,
        auto_create=["#"],
        **options,
    )
    gateway.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
    return gateway


def kill_fronts(gateway: Gateway) -> None:
    found = gateway.front_pids()
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    wait_all_ended(found)


async def begin(process: Process, name: str, *, is_resumed: bool) -> MqttClient:
    client = await MqttClient.connect(process, name, clean=False, properties=KEPT)
    assert client.connack.session_present == is_resumed
    return client


def offer(number: int) -> str:
    assured = f"<assured xmlns='urn:xmpp:qos' msgId='{number}'>{log_message(number)}</assured>"
    return f"<iq type='set' id='o{number}' to='gw.example'>{assured}</iq>"


def delivery(number: int) -> str:
    deliver = f"<deliver xmlns='urn:xmpp:qos' msgId='{number}'/>"
    return f"<iq type='set' id='d{number}' to='gw.example'>{deliver}</iq>"


class Managed:
    """A device by XMPP with stream management, which repeats what the gateway has not handled."""

    def __init__(self, client: Client, token: str) -> None:
        self.client = client
        self._token = token
        self._sent: list[str] = []
        self._read: list[str] = []

    def send(self, stanza: str) -> None:
        self._sent.append(stanza)
        self.client.send(stanza)

    async def resume(self, process: Process) -> None:
        """Continue on a new connection."""
        await self.client.close()
        self.client = await log_in(process, "ant")
        answer = await self.client.resume(self._token, len(self._read))
        assert answer.tag == f"{SM}resumed"
        for stanza in self._sent[int(answer.attrib["h"]) :]:
            self.client.send(stanza)

    async def answers(self) -> list[str]:
        """Read until there is an answer to each stanza; return the ids of all answers."""
        while len(self._read) < len(self._sent):
            answer = await self.client.stanza()
            assert answer.get("type") == "result"
            self._read.append(answer.attrib["id"])
        assert await self.client.handled() == len(self._sent)
        return self._read


async def test_devices_lose_nothing_when_their_front_is_killed(tmp_path: Path) -> None:
    """They connect again before another front runs. A front has no file of the gateway open, and
    ends with the core."""
    gateway = make_gateway(tmp_path, 1)
    with gateway.run() as process:
        ant = Managed(await bind_session(process, "ant"), "")
        ant = Managed(ant.client, await ant.client.enable())
        bee = await begin(process, "bee", is_resumed=False)
        cat = await begin(process, "cat", is_resumed=False)
        assert await cat.subscribe("plant/#", qos=2) == (2,)
        for number in range(2):
            packet = Publish(TOPIC, b"%d" % number, 2, dup=True, id=1)
            ant.send(offer(number))
            bee.send(packet)
            if number:  # otherwise perhaps they are lost
                await bee.receive()
                bee.send(PubRel(1))
                ant.send(delivery(0))
            kill_fronts(gateway)
            for client in (bee, cat):
                await client.close()
            await ant.resume(process)
            bee = await begin(process, "bee", is_resumed=True)
            if not number:
                assert await bee.ask(packet) == PubRec(1)
            assert await bee.ask(PubRel(1)) == PubComp(1)
            cat = await begin(process, "cat", is_resumed=True)
            assert (await cat.take()).payload == packet.payload
            await cat.settle()
        ant.send(delivery(1))
        assert await ant.answers() == ["o0", "o1", "d0", "d1"]
        (front,) = gateway.fronts()
        assert (front.restarts, front.connections) == (2, 3)
        for each in (ant.client, bee, cat):
            await each.close()
        events = list(gateway.events())
        ends = [event for event in events if event["name"] == "front_ended"]
        assert [event["tags"] for event in ends] == [{"restarts": "1"}, {"restarts": "2"}]
        assert all("status -9" in event["text"] for event in ends)
        readings = [event for event in events if event["name"] == "Entered"]
        assert [event["tags"]["n"] for event in readings] == ["0", "1"]
        assert not [path for path in files(front.pid) if path.is_relative_to(gateway.folder)]
        process.kill9()


def files(pid: int | None) -> list[Path]:
    """Return what a process has open, as Linux names it."""
    return [each.readlink() for each in Path(f"/proc/{pid}/fd").iterdir()]


def peak_memory(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


async def test_a_front_that_hangs_costs_little_and_delays_no_other(tmp_path: Path) -> None:
    """A signal to all processes then ends the gateway as if it had gone to the core alone."""
    gateway = make_gateway(tmp_path, 2, bytes_per_day=0, **NO_RATE_LIMITS)
    with gateway.run() as process:
        async with AsyncExitStack() as stack:
            cat = await stack.enter_async_context(await MqttClient.connect(process, "cat"))
            assert await cat.subscribe("plant/#") == (0,)
            (hung,) = (front for front in gateway.fronts() if front.connections)
            assert hung.pid is not None
            os.kill(hung.pid, signal.SIGSTOP)
            bee = await stack.enter_async_context(await MqttClient.connect(process, "bee"))
            ant = await stack.enter_async_context(await bind_session(process, "ant"))
            before = peak_memory(process.pid)
            for _ in range(6):
                for _ in range(31):
                    bee.send(Publish(TOPIC, bytes(MIB // 32)))
                await bee.publish(TOPIC, bytes(MIB // 32), 2)
            assert await ant.assured("1", log_message(1)) == "received"
            assert peak_memory(process.pid) - before < 4 * MIB
            os.kill(hung.pid, signal.SIGCONT)
            assert (await cat.take()).payload == bytes(MIB // 32)
            os.killpg(process.pid, signal.SIGTERM)
            assert await ant.closed() == "system-shutdown"
            assert await bee.receive() == Disconnect(Reason.SERVER_SHUTTING_DOWN)
            assert await bee.receive() is None
            while isinstance(packet := await cat.receive(), Publish):
                pass
            assert packet == Disconnect(Reason.QUOTA_EXCEEDED)  # it has not read
            assert await asyncio.to_thread(process.wait) == 0
            assert "front" not in process.stderr


async def test_a_core_that_hangs_bounds_the_connections_of_a_front(tmp_path: Path) -> None:
    gateway = make_gateway(tmp_path, 1, unauthenticated=10, unauthenticated_per_address=5)
    with gateway.run() as process, ExitStack() as stack:
        os.kill(process.pid, signal.SIGSTOP)
        target, most = ("127.0.0.1", port_of(process)), MAX_UNANSWERED + 10
        found = [
            stack.enter_context(socket.create_connection(target, WAIT_S)) for _ in range(most + 20)
        ]
        assert [each.recv(1) for each in found[most:]] == [b""] * 20
        os.kill(process.pid, signal.SIGCONT)
        for each in found[5:most]:  # too many from one address
            assert each.recv(100).startswith(b"<?xml")
        async with await bind_session(process, "ant", from_="127.0.0.2") as ant:
            assert await ant.assured("1", log_message(1)) == "received"
