"""A publisher or subscriber by MQTT at QoS 2 in a process of its own, which may be killed.

Its state is on disk before each packet that depends on it: a line for each step. The process runs
`python -m tests.helpers.mqtt_peer` with its `Arguments` as JSON, and kills itself or the gateway
after a number of steps. It ends with status 0 when it has published all messages, and with another
one when it has no connection.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from edge.mqtt.packets import (
    V5,
    Packet,
    Property,
    PubComp,
    Publish,
    PubRec,
    PubRel,
)
from tests.helpers.mqtt import MqttClient
from tests.helpers.processes import Process, start

IDS: Final = 3
"""Packet identifiers of a publisher, which are soon used again, and its messages in flight."""

TOPIC: Final = "plant/temp"
KEPT_S: Final = 3600


@dataclass(frozen=True)
class Arguments:
    """The work of a client, and the process that it kills.

    Attributes:
        address: the host and port of the gateway.
        folder: where the file with its state is.
        name: the device, and the stem of the file's name.
        messages: how many messages a publisher sends in all of its processes; `None` for a
            subscriber.
        victim: the process that is killed after `steps` steps of this one; 0 is this one itself.
        steps: `None` for never.
    """

    address: tuple[str, int]
    folder: str
    name: str
    version: int = V5
    messages: int | None = None
    victim: int = 0
    steps: int | None = None

    def start(self) -> Process:
        """Start the process."""
        words = json.dumps(asdict(self))
        return start("python", "-m", "tests.helpers.mqtt_peer", words, ready=False)


class State:
    """The steps of a client in its file: their names, and the number of the message or the packet
    identifier."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"{name}.state"

    def add(self, *steps: tuple[str, int]) -> None:
        """Add steps with one write, so that all or none of them are in the file."""
        with self._path.open("a", encoding="ascii") as file:
            file.write("".join(f"{step} {number}\n" for step, number in steps))

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Yield the steps in order."""
        for line in self._path.read_text("ascii").splitlines() if self._path.exists() else ():
            step, _, number = line.partition(" ")
            yield step, int(number)

    def numbers(self, step: str) -> list[int]:
        """Return the numbers of the steps of a name, in order."""
        return [number for name, number in self if name == step]


async def connect(address: tuple[str, int], name: str, version: int) -> MqttClient:
    """Begin or continue the session of a client."""
    keep = {Property.SESSION_EXPIRY: KEPT_S} if version == V5 else {}
    return await MqttClient.connect(
        address, name, "kept", version=version, clean=False, properties=keep
    )


class _Peer:
    def __init__(self, arguments: Arguments, client: MqttClient) -> None:
        self._arguments = arguments
        self._client = client
        self._state = State(Path(arguments.folder), arguments.name)
        self._left = arguments.steps

    def _step(self) -> None:
        """Kill the victim if it is time."""
        if self._left == 0:
            os.kill(self._arguments.victim or os.getpid(), signal.SIGKILL)
        if self._left is not None:
            self._left -= 1

    def _store(self, *steps: tuple[str, int]) -> None:
        self._step()
        self._state.add(*steps)

    def _send(self, packet: Packet) -> None:
        self._step()
        self._client.send(packet)

    async def _packets(self) -> AsyncIterator[Packet]:
        while (packet := await self._client.receive()) is not None:
            self._step()
            yield packet
        message = "the gateway has closed the connection"
        raise ConnectionError(message)

    async def publish(self, messages: int) -> None:
        """Publish numbers, `IDS` of them at once; finish first what earlier processes began."""
        steps = {number: step for step, number in self._state}
        waiting = {1 + number % IDS: number for number, step in steps.items() if step != "done"}
        for id, number in sorted(waiting.items(), key=lambda one: one[1]):
            if steps[number] == "sent":
                self._send(Publish(TOPIC, b"%d" % number, 2, dup=True, id=id))
            else:
                self._send(PubRel(id))
        last = max(steps, default=-1)
        last = self._publish_next(waiting, last, messages)
        if not waiting:
            return
        async for packet in self._packets():
            assert isinstance(packet, PubRec | PubComp), packet
            assert packet.reason == 0, packet
            if isinstance(packet, PubRec):
                self._store(("received", waiting[packet.id]))
                self._send(PubRel(packet.id))
                continue
            self._store(("done", waiting.pop(packet.id)))
            last = self._publish_next(waiting, last, messages)
            if not waiting:
                return

    def _publish_next(self, waiting: dict[int, int], last: int, messages: int) -> int:
        """Publish while the next packet identifier is free; return the last number."""
        while last + 1 < messages and (id := 1 + (last + 1) % IDS) not in waiting:
            last += 1
            waiting[id] = last
            self._store(("sent", last))
            self._send(Publish(TOPIC, b"%d" % last, 2, id=id))
        return last

    async def subscribe(self) -> None:
        """Receive numbers, each once by its packet identifier (MQTT 5.0, section 4.3.3)."""
        held = set[int]()
        for step, id in self._state:
            if step == "held":
                held.add(id)
            elif step == "released":
                held.remove(id)
        async for packet in self._packets():
            if isinstance(packet, Publish):
                if packet.id not in held:
                    held.add(packet.id)
                    self._store(("held", packet.id), ("message", int(packet.payload)))
                self._send(PubRec(packet.id))
            else:
                assert isinstance(packet, PubRel), packet
                if packet.id in held:
                    held.remove(packet.id)
                    self._store(("released", packet.id))
                self._send(PubComp(packet.id))


async def _main(arguments: Arguments) -> None:
    host, port = arguments.address
    client = await connect((host, port), arguments.name, arguments.version)
    assert client.connack.session_present
    peer = _Peer(arguments, client)
    if arguments.messages is None:
        await peer.subscribe()
    else:
        await peer.publish(arguments.messages)


if __name__ == "__main__":
    asyncio.run(_main(Arguments(**json.loads(sys.argv[1]))))
