"""A gateway, its devices and its centre at work, whose writes and acknowledgements are recorded.

Devices send at each level of quality of service over XMPP and MQTT, and the gateway ships its log
to a receiver, to which another gateway uploads as well. Gateway and receiver run under
`write_log.c`, and each acknowledgement is recorded with the length of the log at that moment.
`recover` starts both upon the folders that a power cut leaves.
"""

from __future__ import annotations

import asyncio
import dataclasses
import io
import random
from pathlib import Path
from typing import Final, NamedTuple

from edge.app import App
from edge.config import load
from edge.engine.store import database
from edge.journal import Journal
from edge.mqtt.packets import Property, Publish, PubRec, PubRel
from sync.common.enrolment import Enrolment, read_enrolment, write_enrolment
from sync.common.fleet_folder import FleetFolder
from sync.receiver.limits import ReceiverLimits
from sync.receiver.server import ListenAddress, running_receiver
from sync.receiver.tls import ensure_own_certificate
from sync.segment import Identity, digest_of
from tests.helpers.fleet import GATEWAY, HOST, OTHER, client, identity, make_fleet, segment
from tests.helpers.gateway import Gateway, bind_session, port_of
from tests.helpers.mqtt import MqttClient
from tests.helpers.power_cut import Disk, Record, Recorder
from tests.helpers.processes import Process, free_port, start
from tests.helpers.resuming import resume, send_interrupted
from tests.helpers.xmpp import CLIENT, SM, Client

SENDERS: Final = 6
EACH: Final = 24
"""Messages of a device in each run."""

ABSENT: Final = "absent@gw.example"
RECIPIENT: Final = "recipient@gw.example"
RELAY_SENDER: Final = "sender@gw.example/fw"
CHAT_SENDER: Final = "chatter@gw.example/fw"
MQTT_SENDER: Final = "mqtt@gw.example/fw"
SLOW: Final = "slow@gw.example"
QOS: Final = "urn:xmpp:qos"
INFO: Final = "http://jabber.org/protocol/disco#info"
PADDING: Final = "x" * 5000
"""Makes the WAL long enough for checkpoints."""

ENROLMENT: Final = "centre.json"

HELD, LOGGED, ACKNOWLEDGED = "held", "logged", "acknowledged"
STORED, RELAYED, DELIVERED = "stored", "relayed", "delivered"
SENT, RECEIVED = "sent", "received"
PUBLISHED, TAKEN = "published", "taken"
UPLOADED = "uploaded"
KINDS: Final = (HELD, LOGGED, ACKNOWLEDGED, STORED, RELAYED, DELIVERED, SENT, PUBLISHED, UPLOADED)


class RecordedAnswer(NamedTuple):
    """An acknowledgement of a message or a segment, and the length of the log at that moment."""

    what: str
    sender: str
    msg_id: str
    at: int


class RecordedRun(NamedTuple):
    """A recorded run: the disk before it, the writes, and the acknowledgements.

    Attributes:
        disk: the content of both folders before the run.
        gateway: the folder of the gateway.
        fleet: the folder of the centre.
        database: the inode of the gateway's database.
        records: the writes of both, in order.
        uploads: the bytes of the segments that the other gateway uploaded.
    """

    gateway: Path
    fleet: Path
    disk: Disk
    database: int
    records: list[Record]
    answers: list[RecordedAnswer]
    uploads: dict[Identity, bytes]


def message(number: str) -> str:
    return (
        "<message xmlns='jabber:client'><log xmlns='urn:xmpp:eventlog'>"
        f"<message>{PADDING}</message><tag name='n' value='{number}'/></log></message>"
    )


class Witness:
    """The devices and the other gateway, and the answers to them."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.answers: list[RecordedAnswer] = []
        self.uploads: dict[Identity, bytes] = {}
        self._names: dict[str, str] = {}  # of delivered messages, by the gateway's msgId

    def note(self, what: str, sender: str, msg_id: str) -> None:
        self.answers.append(RecordedAnswer(what, sender, msg_id, self._recorder.size()))

    async def send(self, port: int, name: str, run: int) -> None:
        """Send at both levels to the gateway, and leave some in custody."""
        full = f"{name}@gw.example/fw"
        async with await bind_session(port, name) as client:
            for number in range(EACH):
                key = f"{run}-{number}"
                if number % 5 == 4:
                    payload = f"<acknowledged xmlns='urn:xmpp:qos'>{message(key)}</acknowledged>"
                    assert (await client.iq("set", payload)).get("type") == "result"
                    self.note(ACKNOWLEDGED, full, key)
                    continue
                assert await client.assured(key, message(key)) == "received"
                self.note(HELD, full, key)
                if number % 5 != 3:
                    assert await client.deliver(key) == "delivered"
                    self.note(LOGGED, full, key)

    async def store(self, port: int, run: int) -> None:
        """Send plain messages to an offline device; a handled stanza is stored."""
        async with await bind_session(port, "talker") as client:
            await client.enable()
            for number in range(EACH):
                key = f"{run}-{number}"
                client.send(f"<message id='{key}' to='{ABSENT}'><body>{PADDING}</body></message>")
                client.send(f"<r xmlns='{SM[1:-1]}'/>")
                answer = await client.element()  # an error would come before it
                assert (answer.tag, answer.get("h")) == (f"{SM}a", str(number + 1))
                self.note(STORED, "talker@gw.example/fw", key)

    async def chat(self, port: int, run: int) -> None:
        """Send plain messages to an online device, to its account and to its session."""
        async with await bind_session(port, "chatter") as client:
            await client.enable()
            for number in range(EACH):
                key, to = f"{run}-{number}", (SLOW, f"{SLOW}/fw")[number % 2]
                body = PADDING if number % 2 == 0 else "short"
                client.send(f"<message id='{key}' to='{to}'><body>{body}</body></message>")
                client.send(f"<r xmlns='{SM[1:-1]}'/>")
                answer = await client.element()
                assert (answer.tag, answer.get("h")) == (f"{SM}a", str(number + 1))
                self.note(SENT, CHAT_SENDER, key)

    async def read_slowly(self, client: Client) -> None:
        """Receive plain messages until the gateway ends; acknowledge some of them, and late."""
        received: list[str] = []
        while True:
            stanza = await client.stanza()
            if stanza.tag != f"{CLIENT}message":
                continue
            received.append(stanza.attrib["id"])
            if len(received) % 3 == 0 and len(received) < EACH * 2 // 3:
                for key in received[-3:]:
                    self.note(RECEIVED, CHAT_SENDER, key)
                client.acknowledge(client.stanzas)

    async def relay(self, port: int, run: int) -> None:
        """Send assured messages to an offline device and to an online one."""
        async with await bind_session(port, "sender") as client:
            for number in range(2 * EACH):
                key, to = f"{run}-{number}", (ABSENT, RECIPIENT)[number % 2]
                text = f"<thread>{key}</thread><body>{PADDING}</body>"
                body = f"<message xmlns='jabber:client'>{text}</message>"
                offer = f"<assured xmlns='{QOS}' msgId='{key}'>{body}</assured>"
                assert (await client.iq("set", offer, to)).get("type") == "result"
                self.note(HELD, RELAY_SENDER, key)
                if number % 12 < 10:
                    release = f"<deliver xmlns='{QOS}' msgId='{key}'/>"
                    assert (await client.iq("set", release, to)).get("type") == "result"
                    self.note(RELAYED, RELAY_SENDER, key)

    async def publish(self, process: Process, run: int) -> None:
        """Publish by MQTT at QoS 1 and 2, and leave some messages in custody. Durable sessions of
        a device that reads the first of them, and of one that is absent, subscribe."""
        keep = {Property.SESSION_EXPIRY: 3600}
        clients = [
            await MqttClient.connect(process, name, clean=False, properties=keep)
            for name in ("mqtt", "reader", "away")
        ]
        sender, reader, away = clients
        for subscriber in (reader, away):
            if not subscriber.connack.session_present:
                assert await subscriber.subscribe("to/#", qos=2) == (2,)
        await away.close()
        for number in range(EACH):
            qos, key = 1 + number % 2, f"{run}-{number}-{1 + number % 2}"
            payload = f"mqtt {key};{PADDING}".encode()
            packet = Publish(f"to/{run}/{number}", payload, qos, id=1 + run * EACH + number)
            if qos == 1:
                await sender.publish(packet.topic, payload, 1, packet.id)
                self.note(PUBLISHED, MQTT_SENDER, key)
                continue
            assert await sender.ask(packet) == PubRec(packet.id)
            self.note(PUBLISHED, MQTT_SENDER, key)
            if number % 6 != 5:
                await sender.ask(PubRel(packet.id))
        for _ in range(EACH // 2):
            found = await reader.take()
            self.note(TAKEN, MQTT_SENDER, found.payload.partition(b";")[0].decode()[5:])
        await sender.close()
        await reader.close()

    async def receive(self, port: int) -> None:
        """Receive the relayed messages until the gateway ends."""
        async with await bind_session(port, "recipient") as client:
            client.send("<presence/>")
            while True:
                iq = await client.element()
                if iq.get("type") not in ("get", "set"):
                    continue
                content = ""
                (payload,) = iq
                msg_id = payload.get("msgId", "")
                if payload.tag == f"{{{INFO}}}query":
                    content = f"<query xmlns='{INFO}'><feature var='{QOS}'/></query>"
                elif payload.tag == f"{{{QOS}}}assured":
                    self._names[msg_id] = payload[0].findtext(f"{CLIENT}thread", "")
                    content = f"<received xmlns='{QOS}' msgId='{msg_id}'/>"
                else:
                    self.note(DELIVERED, RELAY_SENDER, self._names[msg_id])
                id_, to = iq.attrib["id"], iq.attrib["from"]
                client.send(f"<iq type='result' id='{id_}' to='{to}'>{content}</iq>")

    async def upload(self, fleet: Path, receiver: Process, tokens: dict[str, str]) -> None:
        """Upload segments as another gateway; interrupt some, and repeat some that have landed."""
        chance = random.Random(len(self.uploads))
        ca = fleet / "pki" / "ca.pem"
        previous = digest_of(list(self.uploads.values())[-1]) if self.uploads else bytes(32)
        async with client(receiver.host_port("https"), tokens, ca) as connected:
            for number in range(len(self.uploads) + 1, len(self.uploads) + 1 + EACH):
                name = identity(number, number, OTHER)
                text = chance.randbytes(300_000 if number % 4 == 0 else 500).hex()
                data = self.uploads[name] = segment(name, text, previous)
                previous = digest_of(data)
                if number % 3 == 0:
                    await send_interrupted(connected, name, data, len(data) // 2)
                answer = await resume(connected, name, data)
                assert answer.status in {200, 201}
                self.note(UPLOADED, OTHER, str(number))
                if number % 5 == 0:
                    assert (await connected.put(data, name)).status == 200


def record(
    folder: Path,
    gateway_program: tuple[str, ...] = ("fieldpost",),
    receiver_program: tuple[str, ...] = ("fieldpost-fleet",),
    runs: int = 2,
) -> RecordedRun:
    """Run a gateway and a receiver some times: they are killed at the end of the last run, and
    stopped at the end of the others."""
    names = [f"device{number}" for number in range(SENDERS)]
    gateway = Gateway(
        folder / "gateway",
        *(*names, "talker", "sender", "recipient", "absent", "chatter", "slow"),
        *("mqtt", "reader", "away"),
        require_tls=False,
        auto_create=["#"],
        segment_age=0.5,
        recent_bytes=0,
        offline_bytes=1024 * 1024,
        enrolment=ENROLMENT,
    )
    gateway.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
    fleet, port = folder / "fleet", free_port()
    tokens = make_fleet(fleet)
    ca = (fleet / "pki" / "ca.pem").read_text()
    url = f"https://{HOST}:{port}"
    write_enrolment(gateway.folder / ENROLMENT, Enrolment(GATEWAY, url, tokens[GATEWAY], ca))
    file = gateway.folder / database.FILE_NAME
    assert list(gateway.folder.glob(f"{file.name}*")) == [file]
    disk, recorder = Disk(gateway.folder, fleet), Recorder(folder)
    witness = Witness(recorder)
    serve: list[str | Path] = [
        *receiver_program,
        "serve",
        "--dir",
        fleet,
        "--listen",
        f"{HOST}:{port}",
    ]
    run: list[str | Path] = [*gateway_program, "run", "--dir", gateway.folder]
    for number in range(runs):
        with (
            start(*serve, env=recorder.environment(fleet)) as receiver,
            start(*run, env=recorder.environment(gateway.folder)) as process,
        ):
            asyncio.run(_exchange(witness, process, names, number, fleet, receiver, tokens))
            for each in (process, receiver):
                if number < runs - 1:
                    assert each.terminate() == 0
                else:
                    each.kill9()
    inode = file.stat().st_ino
    records = recorder.records()
    return RecordedRun(
        gateway.folder, fleet, disk, inode, records, witness.answers, witness.uploads
    )


async def _exchange(
    witness: Witness,
    process: Process,
    names: list[str],
    run: int,
    fleet: Path,
    receiver: Process,
    tokens: dict[str, str],
) -> None:
    port = port_of(process)
    receiving = asyncio.create_task(witness.receive(port))
    async with await bind_session(port, "slow") as slow:
        await slow.enable()
        slow.send("<presence/>")
        assert (await slow.stanza()).tag == f"{CLIENT}presence"
        reading = asyncio.create_task(witness.read_slowly(slow))
        await asyncio.gather(
            *(witness.send(port, name, run) for name in names),
            witness.store(port, run),
            witness.chat(port, run),
            witness.relay(port, run),
            witness.publish(process, run),
            witness.upload(fleet, receiver, tokens),
        )
        for task in (receiving, reading):
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled(), task.exception()


async def recover(gateway: Path, fleet: Path) -> None:
    """Start a receiver and a gateway upon their folders; the gateway ships its log, and both
    stop."""
    centre = FleetFolder(fleet)
    certificate = ensure_own_certificate(centre)
    listen = ListenAddress(HOST, 0)
    async with running_receiver(centre, listen, certificate, ReceiverLimits()) as (_, port):
        enrolment = read_enrolment(gateway / ENROLMENT)
        url = f"https://{HOST}:{port}"
        write_enrolment(gateway / ENROLMENT, dataclasses.replace(enrolment, url=url))
        app = App(gateway, load.load(gateway), Journal(stream=io.StringIO()))
        await app.serve(lambda _ready: app._stop.set())
