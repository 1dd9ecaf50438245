"""A device that receives messages, and the scripted server to which it is connected."""

from __future__ import annotations

import asyncio
import sqlite3
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from firmware_sim.device.device import Device
from firmware_sim.device.limits import ReconnectPolicy
from firmware_sim.device.receive_options import ReceivedMessage, ReceiveOptions
from tests.helpers.scripted_peer import Certificate, ScriptedPeer

JID: Final = "valve1@gw.example/fw"
SENDER: Final = "pump1@gw.example/fw"
QOS: Final = "urn:xmpp:qos"
NAMESPACES: Final = (QOS, "urn:nf:iot:qos:1.0", "urn:ieee:iot:qos:1.0")
MESSAGE: Final = (
    "<message xmlns='jabber:client' id='m1' from='evil@x' to='y'><body>go</body></message>"
)
_ERRORS: Final = "{urn:ietf:params:xml:ns:xmpp-stanzas}"
_RECONNECT: Final = ReconnectPolicy(base=0.02, cap=0.1, timeout=5.0)
_SCHEMA: Final = "CREATE TABLE did (number INTEGER, id TEXT) STRICT"


class Application:
    """Handles messages by recording them, and fails if a test requires it."""

    def __init__(self) -> None:
        self.handled: list[ReceivedMessage] = []
        self.after: list[ReceivedMessage] = []
        self.returned: list[ReceivedMessage] = []
        self.fails: Exception | None = None
        self.fails_after = False

    def act(self, message: ReceivedMessage, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO did VALUES (?, ?)", (message.number, message.id))
        if self.fails is not None:
            raise self.fails
        self.handled.append(message)

    def afterwards(self, message: ReceivedMessage) -> None:
        self.after.append(message)
        if self.fails_after:
            raise RuntimeError("after")


class Talk:
    """A device and its server, with requests that the server can send to it."""

    def __init__(self, peer: ScriptedPeer, application: Application, make: Callable[..., Device]):
        self.peer = peer
        self.application = application
        self._make = make
        self.device = make()
        self._requests = 0

    async def start(self) -> None:
        before = self.peer.sessions
        await self.device.start()
        await wait_online(self.device)
        await self.peer.wait_until(lambda: self.peer.sessions > before)

    async def restart(self) -> None:
        await self.device.kill()
        self.device = self._make()
        await self.start()

    async def ask(self, content: str, type_: str = "set", sender: str = SENDER) -> ET.Element:
        """Send an iq to the device, and return its answer."""
        self._requests += 1
        id_ = f"q{self._requests}"
        head = f"type='{type_}' id='{id_}' from='{sender}' to='{JID}'"
        self.peer.send_xml(f"<iq {head}>{content}</iq>")

        def answers() -> list[ET.Element]:
            return [reply for reply in self.peer.replies if reply.get("id") == id_]

        await self.peer.wait_until(lambda: bool(answers()))
        (answer,) = answers()
        assert answer.get("to") == sender
        return answer

    async def assured(self, msg_id: str = "1", message: str = MESSAGE, ns: str = QOS) -> ET.Element:
        return await self.ask(f"<assured xmlns='{ns}' msgId='{msg_id}'>{message}</assured>")

    async def deliver(self, msg_id: str = "1", ns: str = QOS) -> ET.Element:
        return await self.ask(f"<deliver xmlns='{ns}' msgId='{msg_id}'/>")

    async def acknowledged(self, message: str = MESSAGE, ns: str = QOS) -> ET.Element:
        return await self.ask(f"<acknowledged xmlns='{ns}'>{message}</acknowledged>")

    def recorded_actions(self) -> list[tuple[int, str]]:
        rows = self.device.inbox.database.execute("SELECT number, id FROM did").fetchall()
        return [(int(number), str(id_)) for number, id_ in rows]


TalkFactory = Callable[..., AbstractAsyncContextManager[Talk]]
"""`open_talk` with a certificate and a folder."""


@asynccontextmanager
async def open_talk(
    certificate: Certificate, folder: Path, device: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[Talk]:
    """Start a server and a device, with these arguments of `Device` and `ReceiveOptions`."""
    application = Application()
    receive = ReceiveOptions(
        folder / "inbox",
        application.act,
        afterwards=application.afterwards,
        on_returned=application.returned.append,
        schema=_SCHEMA,
        **options,
    )

    def make() -> Device:
        return Device(
            JID,
            "secret",
            outbox_path=folder / "outbox",
            ca_file=certificate.ca_file,
            host="127.0.0.1",
            port=peer.port,
            reconnect=_RECONNECT,
            receive=receive,
            **(device or {}),
        )

    async with ScriptedPeer(certificate).running() as peer:
        talk = Talk(peer, application, make)
        await talk.start()
        try:
            yield talk
        finally:
            await talk.device.close()


async def wait_online(*devices: Device) -> None:
    """Wait until devices have sessions."""
    async with asyncio.timeout(30):
        for device in devices:
            while not device.online:
                await device.changed()


def error_of(answer: ET.Element) -> str:
    """Return the type and condition of an error, or the type of another answer."""
    if answer.get("type") != "error":
        return str(answer.get("type"))
    error = answer[0]
    return f"{error.get('type')}/{error[0].tag.removeprefix(_ERRORS)}"
