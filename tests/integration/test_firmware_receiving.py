"""A device that receives, against a scripted server over real TLS: steps and refusals."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from firmware_sim.device.inbox import Inbox, InboxCounter
from firmware_sim.device.receive_options import ReceiveOptions
from firmware_sim.errors import DeviceStopped, InboxError
from tests.helpers.talk import JID, MESSAGE, NAMESPACES, QOS, SENDER, Talk, Talking, error_of


@pytest.mark.parametrize("namespace", NAMESPACES)
async def test_assured_message_is_held_and_delivered_once(it: Talk, namespace: str) -> None:
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


async def test_embedded_message_may_inherit_the_namespace(it: Talk) -> None:
    inner = "<message id='m'><body>go<b/></body><x xmlns='urn:x'/></message>"
    assert error_of(await it.acknowledged(inner)) == "result"
    (message,) = it.application.got
    tags = [element.tag for element in message.xml().iter()]
    client = "{jabber:client}"
    assert tags == [f"{client}message", f"{client}body", f"{client}b", "{urn:x}x"]


async def test_messages_of_each_level_are_delivered(it: Talk) -> None:
    await it.acknowledged()
    await it.acknowledged()  # at least once: a repetition is a message again
    it.peer.say(f"<message from='{SENDER}' to='{JID}' id='p'><body>0</body></message>")
    await it.assured()
    await it.deliver()
    counts = it.device.inbox.counts()
    assert {reply.get("id") for reply in it.peer.replies} == {"q1", "q2", "q3", "q4"}
    found = [(message.number, message.qos, message.id) for message in it.application.got]
    assert found == [(1, 1, "m1"), (2, 1, "m1"), (3, 0, "p"), (4, 2, "m1")]
    levels = (InboxCounter.PLAIN, InboxCounter.ACKNOWLEDGED, InboxCounter.ASSURED)
    assert [counts[counter] for counter in levels] == [1, 2, 1]


async def test_error_message_is_passed_to_on_returned(it: Talk) -> None:
    it.peer.say(f"<message from='{SENDER}' to='{JID}' id='p' type='error'><body>x</body></message>")
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


async def test_malformed_request_is_refused(it: Talk) -> None:
    for bad in BAD:
        assert error_of(await it.ask(bad)) == "modify/bad-request", bad
    other = f"<received xmlns='{QOS}' msgId='1'/>"
    assert error_of(await it.ask(other)) == "cancel/feature-not-implemented"
    offer = f"<assured xmlns='{QOS}' msgId='1'>{MESSAGE}</assured>"
    assert error_of(await it.ask(offer, "get")) == "cancel/feature-not-implemented"
    assert it.device.inbox.counts()[InboxCounter.REFUSED] == len(BAD)
    assert it.device.inbox.held() == (0, 0)
    assert error_of(await it.acknowledged()) == "result"
    assert it.device.sessions == 1


async def test_unknown_key_is_item_not_found(it: Talk) -> None:
    assert error_of(await it.deliver()) == "cancel/item-not-found"
    await it.assured()
    other = MESSAGE.replace("go", "stop")
    assert error_of(await it.assured(message=other)) == "cancel/conflict"
    assert error_of(await it.deliver()) == "result"
    assert [message.xml()[0].text for message in it.application.got] == ["go"]
    await it.assured(message=other)  # the key is free again
    await it.deliver()
    assert [message.xml()[0].text for message in it.application.got] == ["go", "stop"]


async def test_untrusted_sender_is_refused(talk: Talking) -> None:
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


async def test_sender_is_untrusted_if_the_check_fails(
    talk: Talking, caplog: pytest.LogCaptureFixture
) -> None:
    def trusts(_sender: str) -> bool:
        raise RuntimeError("no roster")

    async with talk(trusts=trusts) as it:
        assert error_of(await it.acknowledged()) == "cancel/not-allowed"
    assert "`trusts` raised an exception" in caplog.text


@pytest.mark.parametrize(
    "error", [RuntimeError("no"), sqlite3.IntegrityError("no")], ids=["its own", "of SQLite"]
)
async def test_application_failure_is_rolled_back_and_repeated(
    it: Talk, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    it.application.fails = error
    await it.assured()
    assert error_of(await it.deliver()) == "wait/internal-server-error"
    assert error_of(await it.acknowledged()) == "wait/internal-server-error"
    it.peer.say(f"<message from='{SENDER}' to='{JID}' id='p'/>")
    assert error_of(await it.deliver()) == "wait/internal-server-error"
    assert (it.did(), it.application.after) == ([], [])
    assert it.device.inbox.counts()[InboxCounter.FAILED] == 4
    assert "p" not in {reply.get("id") for reply in it.peer.replies}
    it.application.fails = None
    assert error_of(await it.deliver()) == "result"
    assert it.did() == [(1, "m1")]
    assert caplog.text.count("`on_message` raised an exception") == 4


async def test_failure_after_the_commit_changes_nothing(
    it: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    it.application.fails_after = True
    assert error_of(await it.acknowledged()) == "result"
    assert error_of(await it.acknowledged()) == "result"
    assert it.did() == [(1, "m1"), (2, "m1")]
    assert caplog.text.count("`afterwards` or `on_returned` raised an exception") == 2


async def test_application_that_ends_the_transaction_stops_the_device(it: Talk) -> None:
    receive = it.device._receive
    object.__setattr__(receive, "on_message", lambda _message, db: db.execute("COMMIT"))
    it.peer.say(f"<message from='{SENDER}' to='{JID}' id='p'/>")
    async with asyncio.timeout(5):
        while it.device.online:
            await it.device.changed()
    with pytest.raises(InboxError, match="ended the transaction"):
        await it.device.send("<message/>")


async def test_disk_failure_answers_nothing_and_a_restart_continues(it: Talk) -> None:
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


async def test_failure_to_open_the_inbox_closes_the_outbox(it: Talk, tmp_path: Path) -> None:
    Inbox.open(tmp_path / "other", "other@gw.example/fw").close()
    await it.device.close()
    receive = it.device._receive
    it.device._receive = ReceiveOptions(tmp_path / "other", it.application.act)
    with pytest.raises(InboxError, match="belongs to other"):
        await it.device.start()
    with pytest.raises(DeviceStopped):
        await it.device.send("<message/>")
    it.device._receive = receive
    await it.start()
    assert error_of(await it.acknowledged()) == "result"
