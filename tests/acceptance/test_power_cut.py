"""Tests of power cuts at any moment: nothing acknowledged is lost, and nothing is repeated.

The gateway runs under `write_log.c`, which records its writes and syncs, and devices send to it.
Each answer is recorded with the length of the log. Then the log is replayed: for many
points in it, a folder is made as a disk might show it after a cut there (`helpers.power_cut`).
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from edge.engine.store import database
from edge.engine.store.database import Transaction
from edge.errors import StoreError
from edge.features.custody.store import was_released
from edge.mqtt.packets import Property, Publish, PubRec, PubRel
from edge.ops.data import events
from sync.segment import SegmentError
from tests.helpers import power_cut
from tests.helpers.gateway import Gateway, bind_session, port_of
from tests.helpers.mqtt import MqttClient
from tests.helpers.power_cut import Disk
from tests.helpers.processes import Process, start
from tests.helpers.store import Clock, read_element
from tests.helpers.xmpp import CLIENT, SM, Client

SENDERS = 6
EACH = 24
"""Messages of a device in each of the gateway's two runs."""

ABSENT = "absent@gw.example"
RECIPIENT = "recipient@gw.example"
RELAY_SENDER = "sender@gw.example/fw"
CHAT_SENDER = "chatter@gw.example/fw"
SLOW = "slow@gw.example"
QOS = "urn:xmpp:qos"
INFO = "http://jabber.org/protocol/disco#info"
WAL = f"{database.FILE_NAME}-wal"
MOMENT = Clock()()
PADDING = "x" * 5000
"""Makes the WAL long enough for checkpoints."""

HELD, LOGGED, ACKNOWLEDGED = "held", "logged", "acknowledged"
STORED, RELAYED, DELIVERED = "stored", "relayed", "delivered"
SENT, RECEIVED = "sent", "received"
PUBLISHED, TAKEN = "published", "taken"
KINDS = (HELD, LOGGED, ACKNOWLEDGED, STORED, RELAYED, DELIVERED, SENT, PUBLISHED)
MQTT_SENDER = "mqtt@gw.example/fw"

Key = tuple[str, str]


class RecordedAnswer(NamedTuple):
    """An answer to a device about a message, and the length of the log at that moment."""

    what: str
    sender: str
    msg_id: str
    at: int


class RecordedRun(NamedTuple):
    """A recorded run: the database before it, the log, and the answers to devices."""

    before: Path
    inode: int
    log: Path
    answers: list[RecordedAnswer]


def message(number: str) -> str:
    return (
        "<message xmlns='jabber:client'><log xmlns='urn:xmpp:eventlog'>"
        f"<message>{PADDING}</message><tag name='n' value='{number}'/></log></message>"
    )


class Witness:
    """The devices, and the answers to them."""

    def __init__(self, path: Path) -> None:
        self._log = path
        self.answers: list[RecordedAnswer] = []
        self._names: dict[str, str] = {}  # of delivered messages, by the gateway's msgId

    def note(self, what: str, sender: str, msg_id: str) -> None:
        self.answers.append(RecordedAnswer(what, sender, msg_id, self._log.stat().st_size))

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
        for client in (reader, away):
            if not client.connack.session_present:
                assert await client.subscribe("to/#", qos=2) == (2,)
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
        for client in (sender, reader):
            await client.close()

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


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    """Run a gateway twice: it is stopped, and then killed."""
    if power_cut.compiler() is None:
        pytest.skip("no C compiler: gcc makes the recorder of writes")
    folder = tmp_path_factory.mktemp("power")
    names = [f"device{number}" for number in range(SENDERS)]
    gateway = Gateway(
        folder / "gateway",
        *(*names, "talker", "sender", "recipient", "absent", "chatter", "slow"),
        *("mqtt", "reader", "away"),
        require_tls=False,
        auto_create=["#"],
        segment_age=1.0,
        offline_bytes=1024 * 1024,
    )
    gateway.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
    file = gateway.folder / database.FILE_NAME
    assert list(gateway.folder.glob(f"{file.name}*")) == [file]
    before = shutil.copy(file, folder)
    path, env = power_cut.recording(folder, file)
    witness = Witness(path)
    for run in range(2):
        with start("fieldpost", "run", "--dir", gateway.folder, env=env) as process:
            port = port_of(process)

            async def exchange(
                process: Process = process, port: int = port, run: int = run
            ) -> None:
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
                    )
                    for task in (receiving, reading):
                        task.cancel()
                        await asyncio.wait({task})
                        assert task.cancelled(), task.exception()

            asyncio.run(exchange())
            if run == 0:
                assert process.terminate() == 0
            else:
                process.kill9()
    return RecordedRun(Path(before), file.stat().st_ino, path, witness.answers)


class MessageCopies(NamedTuple):
    """The number of copies of each message by place."""

    held: Counter[Key]
    outbox: Counter[Key]
    released: Counter[Key]
    """Of those in the outbox, the ones that their recipient has in its own custody."""
    logged: Counter[Key]
    stored: Counter[Key]
    mqtt: Counter[tuple[str, str]]
    """Of those of MQTT, by their subscriber, "" for custody, and their key."""
    lanes: dict[str, list[int]]


def find(tx: Transaction, folder: Path) -> MessageCopies:
    """Count the stored messages, including those in sealed segments."""
    logged, lanes = Counter[Key](), dict[str, list[int]]()
    for entry in events.read(folder):
        lanes.setdefault(entry.lane, []).append(entry.event.seq)
        if entry.lane == "logs":
            logged[entry.event.source, entry.event.tags["n"]] += 1
    stored = tx.rows("SELECT sender, stanza FROM offline")
    bodies = [
        *tx.rows("SELECT '', body FROM held"),
        *tx.rows("SELECT recipient, body FROM outbox JOIN outbox_bodies USING (id)"),
    ]
    keys = [(to.partition("@")[0], re.search(rb"mqtt ([0-9-]+);", body)) for to, body in bodies]
    return MessageCopies(
        Counter(tx.rows("SELECT sender, msg_id FROM held")),
        Counter(tx.rows("SELECT sender, msg_id FROM outbox WHERE msg_id IS NOT NULL")),
        Counter(tx.rows("SELECT sender, msg_id FROM outbox WHERE state = 'released'")),
        logged,
        Counter((sender, read_element(stanza).attrib["id"]) for sender, stanza in stored),
        Counter((to, key[1].decode()) for to, key in keys if key is not None),
        lanes,
    )


def faults(folder: Path, answers: list[RecordedAnswer]) -> list[str]:
    """Open the database in a folder, and list its faults."""
    with closing(database.connect(folder / database.FILE_NAME)) as connection:
        wrong = [str(row) for (row,) in connection.execute("PRAGMA integrity_check")]
        with database.transaction(connection, MOMENT) as tx:
            found = find(tx, folder)
            delivered = {
                (one.sender, one.msg_id)
                for one in answers
                if one.what in (DELIVERED, RECEIVED, TAKEN)
            }
            wrong += [fault for one in answers for fault in _missing(tx, found, one, delivered)]
    in_custody = found.held + found.outbox + found.logged
    for key, count in [*in_custody.items(), *found.stored.items()]:
        if count > 1:
            wrong.append(f"{key} exists {count} times")
    for (to, mqtt), count in found.mqtt.items():
        if count > 1 or (to and mqtt.endswith("-2") and found.mqtt["", mqtt]):
            wrong.append(f"{mqtt} exists {count} times for {to}")
    for lane, numbers in found.lanes.items():
        if numbers != list(range(1, len(numbers) + 1)):
            wrong.append(f"lane {lane} is not 1 to {len(numbers)}")
    return [fault for fault in wrong if fault != "ok"]


def _missing(
    tx: Transaction, found: MessageCopies, answer: RecordedAnswer, delivered: set[Key]
) -> Iterator[str]:
    key = (answer.sender, answer.msg_id)
    places = {
        HELD: found.held + found.outbox + found.logged,
        LOGGED: found.logged,
        ACKNOWLEDGED: found.logged,
        RELAYED: found.outbox,
        STORED: found.stored,
        SENT: found.stored,
    }
    if answer.what in (RECEIVED, TAKEN):
        return
    if answer.what == PUBLISHED:
        for to in ("away",) if key in delivered else ("away", "reader"):
            if not found.mqtt[to, answer.msg_id] and not found.mqtt["", answer.msg_id]:
                yield f"{answer.what} {key} is missing for {to}"
        return
    if answer.what == DELIVERED:
        if found.outbox[key] != found.released[key]:
            yield f"{key} would be offered again although its recipient has it"
    elif not places[answer.what][key] and key not in delivered:
        yield f"{answer.what} {key} is missing"
    bare = answer.sender.partition("/")[0]
    if answer.what in (LOGGED, RELAYED) and not was_released(tx, bare, *key):
        yield f"a repeated deliver of {key} would be refused as unknown"


def cuts(
    recorded: RecordedRun, folder: Path, count: int, chance: random.Random, forgets: str = ""
) -> Iterator[list[str]]:
    """Cut the power at so many moments; yields the faults after each."""
    disk = Disk({recorded.inode: recorded.before}, forgets)
    done = list(power_cut.records(recorded.log.read_bytes()))
    moments = set(chance.sample(range(len(done)), count))
    for number, record in enumerate(done):
        disk.replay(record)
        if number in moments:
            after = folder / str(number)
            after.mkdir()
            disk.cut(after, chance)
            yield faults(
                after, [answers for answers in recorded.answers if answers.at <= record.end]
            )
            shutil.rmtree(after)


def test_a_power_cut_loses_nothing_acknowledged_and_repeats_nothing(
    recorded: RecordedRun, tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    what = Counter(answers.what for answers in recorded.answers)
    assert min(what[kind] for kind in KINDS) >= EACH, what
    chance = random.Random(seed)
    for wrong in cuts(recorded, tmp_path, scale(25, 1000), chance):
        assert wrong == []


def test_the_recorded_run_has_checkpoints_and_restarted_wals(recorded: RecordedRun) -> None:
    """Otherwise the cuts would miss these moments."""
    done = list(power_cut.records(recorded.log.read_bytes()))
    checkpoints = [record for record in done if record.kind == "C" and record.data.decode() == WAL]
    assert len(checkpoints) > 1
    assert any(record.kind == "U" for record in done)
    assert sum(record.kind == "S" and record.inode == recorded.inode for record in done) > 2
    wals = {record.inode for record in checkpoints}
    headers = [r.data for r in done if r.kind == "W" and r.inode in wals and r.offset == 0]
    assert any(int.from_bytes(header[12:16]) for header in headers), "how often it was reset"


@pytest.mark.parametrize("forgets", [WAL, pytest.param(database.FILE_NAME, marks=pytest.mark.long)])
def test_a_missing_sync_is_detected(
    recorded: RecordedRun, tmp_path: Path, seed: int, forgets: str
) -> None:
    """The same run, as if one of the two files had never been synced."""
    chance = random.Random(seed)
    assert any(_cut_is_wrong(recorded, tmp_path, chance, forgets))


def _cut_is_wrong(
    recorded: RecordedRun, folder: Path, chance: random.Random, forgets: str
) -> Iterator[bool]:
    try:
        yield from (wrong != [] for wrong in cuts(recorded, folder, 2000, chance, forgets))
    except (StoreError, SegmentError, sqlite3.Error):  # it cannot even be read
        yield True
