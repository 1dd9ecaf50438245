"""A device that receives, against a scripted server over real TLS: each step, each refusal."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from firmware_sim.device import Device
from firmware_sim.errors import DeviceStopped, InboxError, MessageRefused, NotSent
from firmware_sim.inbox import Inbox, Tally
from firmware_sim.limits import InboxLimits, OutboxLimits, Policy, Reconnect
from firmware_sim.receiving import Received, Receiving
from tests.helpers.scripted_peer import Certificate, ScriptedPeer

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET
    from pathlib import Path

JID = "valve1@gw.example/fw"
SENDER = "pump1@gw.example/fw"
QOS = "urn:xmpp:qos"
NAMESPACES = [QOS, "urn:nf:iot:qos:1.0", "urn:ieee:iot:qos:1.0"]
MESSAGE = "<message xmlns='jabber:client' id='m1' from='evil@x' to='y'><body>go</body></message>"
ERRORS = "{urn:ietf:params:xml:ns:xmpp-stanzas}"
RECONNECT = Reconnect(base=0.02, cap=0.1, timeout=5.0)
SCHEMA = "CREATE TABLE did (number INTEGER, id TEXT) STRICT"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate.make(tmp_path_factory.mktemp("pki"))


class Application:
    """Does what it is told by writing it down, and fails when it is told to."""

    def __init__(self) -> None:
        self.got: list[Received] = []
        self.after: list[Received] = []
        self.returned: list[Received] = []
        self.fails: Exception | None = None
        self.fails_after = False

    def act(self, message: Received, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO did VALUES (?, ?)", (message.number, message.id))
        if self.fails is not None:
            raise self.fails
        self.got.append(message)

    def afterwards(self, message: Received) -> None:
        self.after.append(message)
        if self.fails_after:
            raise RuntimeError("after")


class Talk:
    """A device, its server, and what the server may say to it."""

    def __init__(self, peer: ScriptedPeer, application: Application, make: Callable[..., Device]):
        self.peer = peer
        self.application = application
        self._make = make
        self.device = make()
        self._asked = 0

    async def start(self) -> None:
        before = self.peer.sessions
        await self.device.start()
        async with asyncio.timeout(10):
            while not self.device.online:
                await self.device.changed()
        await self.peer.until(lambda: self.peer.sessions > before)

    async def restart(self) -> None:
        await self.device.kill()
        self.device = self._make()
        await self.start()

    async def ask(self, content: str, type_: str = "set", sender: str = SENDER) -> ET.Element:
        """Send an iq to the device, and return its answer."""
        self._asked += 1
        id_ = f"q{self._asked}"
        head = f"type='{type_}' id='{id_}' from='{sender}' to='{JID}'"
        self.peer.say(f"<iq {head}>{content}</iq>")

        def answers() -> list[ET.Element]:
            return [reply for reply in self.peer.replies if reply.get("id") == id_]

        await self.peer.until(lambda: bool(answers()))
        (answer,) = answers()
        assert answer.get("to") == sender
        return answer

    async def assured(self, msg_id: str = "1", message: str = MESSAGE, ns: str = QOS) -> ET.Element:
        return await self.ask(f"<assured xmlns='{ns}' msgId='{msg_id}'>{message}</assured>")

    async def deliver(self, msg_id: str = "1", ns: str = QOS) -> ET.Element:
        return await self.ask(f"<deliver xmlns='{ns}' msgId='{msg_id}'/>")

    async def acknowledged(self, message: str = MESSAGE, ns: str = QOS) -> ET.Element:
        return await self.ask(f"<acknowledged xmlns='{ns}'>{message}</acknowledged>")

    def did(self) -> list[tuple[int, str]]:
        rows = self.device.inbox.database.execute("SELECT number, id FROM did").fetchall()
        return [(int(number), str(id_)) for number, id_ in rows]


@pytest.fixture
def talk(certificate: Certificate, tmp_path: Path) -> Callable[..., Any]:
    @asynccontextmanager
    async def talking(**options: Any) -> AsyncIterator[Talk]:
        application = Application()
        of_device: dict[str, Any] = {}
        if "policy" in options:
            of_device["policy"] = options.pop("policy")
        if "outbox_limits" in options:
            of_device["limits"] = options.pop("outbox_limits")
        receive = Receiving(
            tmp_path / "inbox",
            application.act,
            afterwards=application.afterwards,
            on_returned=application.returned.append,
            schema=SCHEMA,
            **options,
        )

        def make() -> Device:
            return Device(
                JID,
                "secret",
                outbox_path=tmp_path / "outbox",
                ca_file=certificate.ca_file,
                host="127.0.0.1",
                port=peer.port,
                reconnect=RECONNECT,
                receive=receive,
                **of_device,
            )

        async with ScriptedPeer(certificate).running() as peer:
            found = Talk(peer, application, make)
            await found.start()
            try:
                yield found
            finally:
                await found.device.close()

    return talking


def error_of(answer: ET.Element) -> str:
    """Name the type and condition of an error, or say that it is none."""
    if answer.get("type") != "error":
        return str(answer.get("type"))
    error = answer[0]
    return f"{error.get('type')}/{error[0].tag.removeprefix(ERRORS)}"


@pytest.mark.parametrize("namespace", NAMESPACES)
async def test_an_assured_message_is_held_and_handed_over_once(
    talk: Callable[..., Any], namespace: str
) -> None:
    async with talk() as it:
        for _ in range(2):
            answer = await it.assured(ns=namespace)
            (received,) = answer
            assert (answer.get("type"), received.tag) == ("result", f"{{{namespace}}}received")
            assert received.get("msgId") == "1"
        assert it.application.got == []
        for _ in range(2):
            answer = await it.deliver(ns=namespace)
            assert (answer.get("type"), len(answer)) == ("result", 0)
        (message,) = it.application.got
        assert it.application.after == [message]
        assert it.did() == [(1, "m1")]
    assert (message.number, message.sender, message.qos) == (1, SENDER, 2)
    assert (message.id, message.type) == ("m1", "")
    root = message.xml()
    assert (root.get("from"), root.get("to")) == (SENDER, JID)
    assert root[0].text == "go"


async def test_what_is_embedded_may_inherit_the_namespace(talk: Callable[..., Any]) -> None:
    inner = "<message id='m'><body>go<b/></body><x xmlns='urn:x'/></message>"
    async with talk() as it:
        assert error_of(await it.acknowledged(inner)) == "result"
        (message,) = it.application.got
    tags = [element.tag for element in message.xml().iter()]
    client = "{jabber:client}"
    assert tags == [f"{client}message", f"{client}body", f"{client}b", "{urn:x}x"]


async def test_each_level_is_handed_over(talk: Callable[..., Any]) -> None:
    async with talk() as it:
        await it.acknowledged()
        await it.acknowledged()  # at least once: a repetition is a message again
        it.peer.say(f"<message from='{SENDER}' to='{JID}' id='p'><body>0</body></message>")
        await it.assured()
        await it.deliver()
        counts = it.device.inbox.counts()
        assert {reply.get("id") for reply in it.peer.replies} == {"q1", "q2", "q3", "q4"}
    assert [(m.number, m.qos, m.id) for m in it.application.got] == [
        (1, 1, "m1"),
        (2, 1, "m1"),
        (3, 0, "p"),
        (4, 2, "m1"),
    ]
    assert [counts[word] for word in (Tally.PLAIN, Tally.ACKNOWLEDGED, Tally.ASSURED)] == [1, 2, 1]


async def test_an_error_is_no_message(talk: Callable[..., Any]) -> None:
    async with talk() as it:
        it.peer.say(
            f"<message from='{SENDER}' to='{JID}' id='p' type='error'><body>x</body></message>"
        )
        await it.acknowledged(MESSAGE.replace("id=", "type='error' id="))
        assert it.application.got == it.application.after == []
        assert it.did() == []
    assert [(m.qos, m.id) for m in it.application.returned] == [(0, "p"), (1, "m1")]


BAD = [
    f"<assured xmlns='{QOS}'>{MESSAGE}</assured>",
    f"<assured xmlns='{QOS}' msgId=''>{MESSAGE}</assured>",
    f"<assured xmlns='{QOS}' msgId='{'é' * 129}'>{MESSAGE}</assured>",
    f"<assured xmlns='{QOS}' msgId='1'/>",
    f"<assured xmlns='{QOS}' msgId='1'>{MESSAGE}{MESSAGE}</assured>",
    f"<assured xmlns='{QOS}' msgId='1'><presence xmlns='jabber:client'/></assured>",
    f"<assured xmlns='{QOS}' msgId='1'><message xmlns='urn:other'/></assured>",
    f"<acknowledged xmlns='{QOS}'/>",
    f"<acknowledged xmlns='{QOS}'>text</acknowledged>",
    f"<deliver xmlns='{QOS}'/>",
]


async def test_what_is_malformed_is_refused_and_the_device_goes_on(
    talk: Callable[..., Any],
) -> None:
    async with talk() as it:
        for bad in BAD:
            assert error_of(await it.ask(bad)) == "modify/bad-request", bad
        other = f"<received xmlns='{QOS}' msgId='1'/>"
        assert error_of(await it.ask(other)) == "cancel/feature-not-implemented"
        offer = f"<assured xmlns='{QOS}' msgId='1'>{MESSAGE}</assured>"
        assert error_of(await it.ask(offer, "get")) == "cancel/feature-not-implemented"
        assert it.device.inbox.counts()[Tally.REFUSED] == len(BAD)
        assert it.device.inbox.held() == (0, 0)
        assert error_of(await it.acknowledged()) == "result"
        assert it.device.sessions == 1


async def test_what_is_not_known_is_told(talk: Callable[..., Any]) -> None:
    async with talk() as it:
        assert error_of(await it.deliver()) == "cancel/item-not-found"
        await it.assured()
        other = MESSAGE.replace("go", "stop")
        assert error_of(await it.assured(message=other)) == "cancel/conflict"
        assert error_of(await it.deliver()) == "result"
        assert [message.xml()[0].text for message in it.application.got] == ["go"]
        await it.assured(message=other)  # the key is free again
        await it.deliver()
        assert [message.xml()[0].text for message in it.application.got] == ["go", "stop"]


async def test_beyond_the_limits_a_sender_waits(talk: Callable[..., Any]) -> None:
    async with talk(limits=InboxLimits(source_messages=2)) as it:
        answers = [error_of(await it.assured(str(n))) for n in range(3)]
        assert answers == ["result", "result", "wait/resource-constraint"]
        await it.deliver("0")
        assert error_of(await it.assured("2")) == "result"


async def test_who_is_not_trusted_is_refused(talk: Callable[..., Any]) -> None:
    trusted = {SENDER}
    async with talk(trusts=lambda sender: sender in trusted) as it:
        assert error_of(await it.assured()) == "result"
        trusted.clear()
        for ask in (it.assured, it.deliver, it.acknowledged):
            assert error_of(await ask()) == "cancel/not-allowed"
        it.peer.say(f"<message from='{SENDER}' to='{JID}'><body>0</body></message>")
        await it.deliver()
        assert it.application.got == []
        trusted.add(SENDER)
        assert error_of(await it.deliver()) == "result"
        assert len(it.application.got) == 1


async def test_where_trust_itself_fails_nobody_is_trusted(
    talk: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def trusts(_sender: str) -> bool:
        raise RuntimeError("no roster")

    async with talk(trusts=trusts) as it:
        assert error_of(await it.acknowledged()) == "cancel/not-allowed"
    assert "whether it trusts" in caplog.text


@pytest.mark.parametrize(
    "error", [RuntimeError("no"), sqlite3.IntegrityError("no")], ids=["its own", "of SQLite"]
)
async def test_a_failing_application_undoes_its_work_and_is_asked_again(
    talk: Callable[..., Any], caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async with talk() as it:
        it.application.fails = error
        await it.assured()
        assert error_of(await it.deliver()) == "wait/internal-server-error"
        assert error_of(await it.acknowledged()) == "wait/internal-server-error"
        it.peer.say(f"<message from='{SENDER}' to='{JID}' id='p'/>")
        assert error_of(await it.deliver()) == "wait/internal-server-error"
        assert (it.did(), it.application.after) == ([], [])
        assert it.device.inbox.counts()[Tally.FAILED] == 4
        assert "p" not in {reply.get("id") for reply in it.peer.replies}
        it.application.fails = None
        assert error_of(await it.deliver()) == "result"
        assert it.did() == [(1, "m1")]
    assert caplog.text.count("the application failed on a message") == 4


async def test_what_fails_afterwards_is_done_all_the_same(
    talk: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with talk() as it:
        it.application.fails_after = True
        assert error_of(await it.acknowledged()) == "result"
        assert error_of(await it.acknowledged()) == "result"
        assert it.did() == [(1, "m1"), (2, "m1")]
    assert caplog.text.count("the application failed after a message") == 2


async def test_a_restart_between_received_and_deliver_loses_nothing(
    talk: Callable[..., Any],
) -> None:
    async with talk() as it:
        await it.assured()
        await it.restart()
        assert error_of(await it.deliver()) == "result"
        await it.restart()
        assert error_of(await it.deliver()) == "result"
        assert it.did() == [(1, "m1")]


async def test_an_application_that_ends_the_transaction_stops_the_device(
    talk: Callable[..., Any],
) -> None:
    async with talk() as it:
        it.application.act = lambda _message, db: db.execute("COMMIT")
        receive = it.device._receive
        object.__setattr__(receive, "on_message", it.application.act)
        it.peer.say(f"<message from='{SENDER}' to='{JID}' id='p'/>")
        async with asyncio.timeout(5):
            while it.device.online:
                await it.device.changed()
        with pytest.raises(InboxError, match="ended within it"):
            await it.device.send("<message/>")


async def test_a_failing_disk_answers_nothing_and_a_restart_goes_on(
    talk: Callable[..., Any],
) -> None:
    async with talk() as it:
        await it.assured("1")
        it.device.inbox.database.execute("PRAGMA max_page_count=1")
        message = MESSAGE.replace("go", "x" * 30_000)
        it.peer.say(
            f"<iq type='set' id='big' from='{SENDER}'>"
            f"<assured xmlns='{QOS}' msgId='2'>{message}</assured></iq>"
        )
        async with asyncio.timeout(5):
            while it.device.online:
                await it.device.changed()
        with pytest.raises(InboxError, match="full"):
            await it.device.send("<message/>")
        assert not [reply for reply in it.peer.replies if reply.get("id") == "big"]
        await it.restart()
        assert error_of(await it.deliver("1")) == "result"
        assert error_of(await it.deliver("2")) == "cancel/item-not-found"


async def test_what_it_can_is_announced_with_presence(talk: Callable[..., Any]) -> None:
    async with talk(priority=5) as it:
        await it.peer.until(lambda: bool(it.peer.others))
        (presence,) = it.peer.others
        priority, caps = presence
        assert (presence.get("type"), priority.text) == (None, "5")
        assert caps.tag == "{http://jabber.org/protocol/caps}c"
        assert caps.get("hash") == "sha-1"
        disco = "http://jabber.org/protocol/disco#info"
        node = f"{caps.get('node')}#{caps.get('ver')}"
        for asked in ("", f" node='{node}'"):
            answer = await it.ask(f"<query xmlns='{disco}'{asked}/>", "get")
            found = [(child.tag.partition("}")[2], child.attrib) for child in answer[0]]
            features = sorted(each["var"] for name, each in found if name == "feature")
            assert set(NAMESPACES) <= set(features)
            ((kind, identity),) = [each for each in found if each[0] == "identity"]
            text = f"{identity['category']}/{identity['type']}//<" + "".join(
                f"{feature}<" for feature in features
            )
            digest = hashlib.sha1(text.encode(), usedforsecurity=False).digest()
            assert base64.b64encode(digest).decode() == caps.get("ver"), kind


async def test_one_that_only_sends_announces_nothing(
    certificate: Certificate, tmp_path: Path
) -> None:
    async with (
        ScriptedPeer(certificate).running() as peer,
        Device(
            JID,
            "secret",
            outbox_path=tmp_path / "outbox",
            ca_file=certificate.ca_file,
            host="127.0.0.1",
            port=peer.port,
        ) as device,
    ):
        await device.send("<message/>")
        await device.flush(10)
        assert peer.others == []
        head = f"type='set' id='q' from='{SENDER}' to='{JID}'"
        peer.say(f"<iq {head}><acknowledged xmlns='{QOS}'>{MESSAGE}</acknowledged></iq>")
        await peer.until(lambda: bool(peer.replies))
        assert error_of(peer.replies[0]) == "cancel/feature-not-implemented"
        with pytest.raises(DeviceStopped, match="inbox is not open"):
            _ = device.inbox


async def test_nobody_is_let_see_it_by_itself(talk: Callable[..., Any]) -> None:
    async with talk() as it:
        it.peer.say(f"<presence type='subscribe' from='{SENDER}' to='{JID}'/>")
        await it.acknowledged()
        assert [other.get("type") for other in it.peer.others] == [None]


async def test_a_device_can_stop_reading_and_go_on(talk: Callable[..., Any]) -> None:
    async with talk() as it:
        await it.acknowledged()
        it.device.pause_reading()
        asking = asyncio.create_task(it.acknowledged())
        sent = asyncio.create_task(it.device.send("<message/>", qos=0))
        await sent  # it still speaks
        await it.peer.until(lambda: len(it.peer.others) == 2)
        await asyncio.wait({asking}, timeout=0.2)
        assert len(it.application.got) == 1
        it.device.cut()  # a new session reads no more than the old one did
        asking.cancel()
        await it.peer.until(lambda: it.peer.sessions == 2 and len(it.peer.others) == 3)
        asking = asyncio.create_task(it.acknowledged())
        await asyncio.wait({asking}, timeout=0.2)
        assert len(it.application.got) == 1
        it.device.resume_reading()
        assert error_of(await asking) == "result"
        assert len(it.application.got) == 2
    it.device.pause_reading()  # and without a session nothing happens
    it.device.resume_reading()


async def test_answers_are_left_out_where_the_link_takes_none(talk: Callable[..., Any]) -> None:
    async with talk(limits=InboxLimits(unsent_bytes=-1)) as it:
        head = f"type='set' id='q' from='{SENDER}' to='{JID}'"
        it.peer.say(f"<iq {head}><acknowledged xmlns='{QOS}'>{MESSAGE}</acknowledged></iq>")
        it.peer.say(f"<iq type='get' id='p' from='{SENDER}'><ping xmlns='urn:xmpp:ping'/></iq>")
        await it.peer.until(lambda: bool(it.peer.replies))
        assert [reply.get("id") for reply in it.peer.replies] == ["p"]
        assert it.did() == [(1, "m1")]


async def test_a_message_of_level_0_is_sent_once_or_not_at_all(talk: Callable[..., Any]) -> None:
    async with talk(outbox_limits=OutboxLimits(message_bytes=300)) as it:
        assert await it.device.send("<message id='a'><body>&lt;</body></message>", qos=0) == 0
        assert await it.device.send_log("E", "", qos=0, to="x@gw.example/'\"&") == 0
        await it.peer.until(lambda: len(it.peer.others) == 3)
        _, first, second = it.peer.others
        assert (first.tag, first.get("to"), first.get("id")) == (
            "{jabber:client}message",
            "gw.example",
            "a",
        )
        assert (first[0].tag, first[0].text) == ("{jabber:client}body", "<")
        assert second.get("to") == "x@gw.example/'\"&"
        assert sum(it.device.counts().values()) == 0
        with pytest.raises(MessageRefused, match="at most 300 bytes"):
            await it.device.send(f"<message>{'x' * 300}</message>", qos=0)
        it.device.cut()
        with pytest.raises(NotSent, match="no session"):
            await it.device.send("<message/>", qos=0)
    with pytest.raises(DeviceStopped):
        await it.device.send("<message/>", qos=0)


async def test_level_0_is_refused_where_the_link_takes_no_more(talk: Callable[..., Any]) -> None:
    async with talk(policy=Policy(unsent_bytes=100_000)) as it:
        for writer in it.peer._writers:
            writer.transport.pause_reading()
        body = f"<message><body>{'x' * 30_000}</body></message>"
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while sent < 2000:  # what the kernel buffers is large
                await it.device.send(body, qos=0)
                sent += 1

        with pytest.raises(NotSent, match="takes no more"):
            await flood()
        assert sent > 2
        for writer in it.peer._writers:
            writer.transport.resume_reading()


async def test_an_inbox_that_cannot_be_opened_leaves_the_outbox_free(
    talk: Callable[..., Any], tmp_path: Path
) -> None:
    Inbox.open(tmp_path / "other", "other@gw.example/fw").close()
    async with talk() as it:
        await it.device.close()
        receive = it.device._receive
        it.device._receive = Receiving(tmp_path / "other", it.application.act)
        with pytest.raises(InboxError, match="belongs to other"):
            await it.device.start()
        with pytest.raises(DeviceStopped):
            await it.device.send("<message/>")
        it.device._receive = receive
        await it.start()
        assert error_of(await it.acknowledged()) == "result"


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("slixmpp").setLevel(logging.CRITICAL)
