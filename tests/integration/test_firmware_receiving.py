"""A device that receives, against a scripted server over real TLS: steps and refusals."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from firmware_sim.device.errors import DeviceStopped, InboxError
from firmware_sim.device.inbox import Inbox, InboxCounter
from firmware_sim.device.receive_options import ReceiveOptions
from tests.helpers.talk import JID, MESSAGE, NAMESPACES, QOS, SENDER, Talk, TalkFactory, error_of


@pytest.mark.parametrize("namespace", NAMESPACES)
async def test_assured_message_is_held_and_delivered_once(talk: Talk, namespace: str) -> None:
    for _ in range(2):
        answer = await talk.assured(ns=namespace)
        (received,) = answer
        assert (answer.get("type"), received.tag) == ("result", f"{{{namespace}}}received")
        assert received.get("msgId") == "1"
    assert talk.application.handled == []
    for _ in range(2):
        answer = await talk.deliver(ns=namespace)
        assert (answer.get("type"), len(answer)) == ("result", 0)
    (message,) = talk.application.handled
    assert talk.application.after == [message]
    assert talk.recorded_actions() == [(1, "m1")]
    assert (message.number, message.sender, message.qos) == (1, SENDER, 2)
    assert (message.id, message.type) == ("m1", "")
    root = message.xml()
    assert (root.get("from"), root.get("to")) == (SENDER, JID)
    assert root[0].text == "go"


async def test_embedded_message_may_inherit_the_namespace(talk: Talk) -> None:
    inner = "<message id='m'><body>go<b/></body><x xmlns='urn:x'/></message>"
    assert error_of(await talk.acknowledged(inner)) == "result"
    (message,) = talk.application.handled
    tags = [element.tag for element in message.xml().iter()]
    client = "{jabber:client}"
    assert tags == [f"{client}message", f"{client}body", f"{client}b", "{urn:x}x"]


async def test_messages_of_each_level_are_delivered(talk: Talk) -> None:
    await talk.acknowledged()
    await talk.acknowledged()  # at least once: a repetition is a new message
    talk.peer.send_xml(f"<message from='{SENDER}' to='{JID}' id='p'><body>0</body></message>")
    await talk.assured()
    await talk.deliver()
    counts = talk.device.inbox.counts()
    assert {reply.get("id") for reply in talk.peer.replies} == {"q1", "q2", "q3", "q4"}
    found = [(message.number, message.qos, message.id) for message in talk.application.handled]
    assert found == [(1, 1, "m1"), (2, 1, "m1"), (3, 0, "p"), (4, 2, "m1")]
    levels = (InboxCounter.PLAIN, InboxCounter.ACKNOWLEDGED, InboxCounter.ASSURED)
    assert [counts[counter] for counter in levels] == [1, 2, 1]


async def test_error_message_is_passed_to_on_returned(talk: Talk) -> None:
    talk.peer.send_xml(
        f"<message from='{SENDER}' to='{JID}' id='p' type='error'><body>x</body></message>"
    )
    await talk.acknowledged(MESSAGE.replace("id=", "type='error' id="))
    assert talk.application.handled == talk.application.after == []
    assert talk.recorded_actions() == []
    assert [(m.qos, m.id) for m in talk.application.returned] == [(0, "p"), (1, "m1")]


MALFORMED = [
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


async def test_malformed_request_is_refused(talk: Talk) -> None:
    for request in MALFORMED:
        assert error_of(await talk.ask(request)) == "modify/bad-request", request
    other = f"<received xmlns='{QOS}' msgId='1'/>"
    assert error_of(await talk.ask(other)) == "cancel/feature-not-implemented"
    offer = f"<assured xmlns='{QOS}' msgId='1'>{MESSAGE}</assured>"
    assert error_of(await talk.ask(offer, "get")) == "cancel/feature-not-implemented"
    assert talk.device.inbox.counts()[InboxCounter.REFUSED] == len(MALFORMED)
    assert talk.device.inbox.held() == (0, 0)
    assert error_of(await talk.acknowledged()) == "result"
    assert talk.device.sessions == 1


async def test_unknown_key_is_item_not_found(talk: Talk) -> None:
    assert error_of(await talk.deliver()) == "cancel/item-not-found"
    await talk.assured()
    other = MESSAGE.replace("go", "stop")
    assert error_of(await talk.assured(message=other)) == "cancel/conflict"
    assert error_of(await talk.deliver()) == "result"
    assert [message.xml()[0].text for message in talk.application.handled] == ["go"]
    await talk.assured(message=other)  # the key is free again
    await talk.deliver()
    assert [message.xml()[0].text for message in talk.application.handled] == ["go", "stop"]


async def test_untrusted_sender_is_refused(start_talk: TalkFactory) -> None:
    trusted = {SENDER}
    async with start_talk(trusts=lambda sender: sender in trusted) as talk:
        assert error_of(await talk.assured()) == "result"
        trusted.clear()
        for request in (talk.assured, talk.deliver, talk.acknowledged):
            assert error_of(await request()) == "cancel/not-allowed"
        talk.peer.send_xml(f"<message from='{SENDER}' to='{JID}'><body>0</body></message>")
        await talk.deliver()
        assert talk.application.handled == []
        trusted.add(SENDER)
        assert error_of(await talk.deliver()) == "result"
        assert len(talk.application.handled) == 1


async def test_sender_is_untrusted_if_the_check_fails(
    start_talk: TalkFactory, caplog: pytest.LogCaptureFixture
) -> None:
    def trusts(_sender: str) -> bool:
        raise RuntimeError("no roster")

    async with start_talk(trusts=trusts) as talk:
        assert error_of(await talk.acknowledged()) == "cancel/not-allowed"
    assert "`trusts` raised an exception" in caplog.text


@pytest.mark.parametrize(
    "error", [RuntimeError("no"), sqlite3.IntegrityError("no")], ids=["its own", "of SQLite"]
)
async def test_application_failure_is_rolled_back_and_repeated(
    talk: Talk, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    talk.application.fails = error
    await talk.assured()
    assert error_of(await talk.deliver()) == "wait/internal-server-error"
    assert error_of(await talk.acknowledged()) == "wait/internal-server-error"
    talk.peer.send_xml(f"<message from='{SENDER}' to='{JID}' id='p'/>")
    assert error_of(await talk.deliver()) == "wait/internal-server-error"
    assert (talk.recorded_actions(), talk.application.after) == ([], [])
    assert talk.device.inbox.counts()[InboxCounter.FAILED] == 4
    assert "p" not in {reply.get("id") for reply in talk.peer.replies}
    talk.application.fails = None
    assert error_of(await talk.deliver()) == "result"
    assert talk.recorded_actions() == [(1, "m1")]
    assert caplog.text.count("`on_message` raised an exception") == 4


async def test_failure_after_the_commit_changes_nothing(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    talk.application.fails_after = True
    assert error_of(await talk.acknowledged()) == "result"
    assert error_of(await talk.acknowledged()) == "result"
    assert talk.recorded_actions() == [(1, "m1"), (2, "m1")]
    assert caplog.text.count("`afterwards` or `on_returned` raised an exception") == 2


async def test_application_that_ends_the_transaction_stops_the_device(talk: Talk) -> None:
    receive = talk.device._receive
    object.__setattr__(receive, "on_message", lambda _message, db: db.execute("COMMIT"))
    talk.peer.send_xml(f"<message from='{SENDER}' to='{JID}' id='p'/>")
    async with asyncio.timeout(5):
        while talk.device.online:
            await talk.device.changed()
    with pytest.raises(InboxError, match="ended the transaction"):
        await talk.device.send("<message/>")


async def test_disk_failure_answers_nothing_and_a_restart_continues(talk: Talk) -> None:
    await talk.assured("1")
    talk.device.inbox.database.execute("PRAGMA max_page_count=1")
    message = MESSAGE.replace("go", "x" * 30_000)
    talk.peer.send_xml(
        f"<iq type='set' id='big' from='{SENDER}'>"
        f"<assured xmlns='{QOS}' msgId='2'>{message}</assured></iq>"
    )
    async with asyncio.timeout(5):
        while talk.device.online:
            await talk.device.changed()
    with pytest.raises(InboxError, match="full"):
        await talk.device.send("<message/>")
    assert not [reply for reply in talk.peer.replies if reply.get("id") == "big"]
    await talk.restart()
    assert error_of(await talk.deliver("1")) == "result"
    assert error_of(await talk.deliver("2")) == "cancel/item-not-found"


async def test_failure_to_open_the_inbox_closes_the_outbox(talk: Talk, tmp_path: Path) -> None:
    Inbox.open(tmp_path / "other", "other@gw.example/fw").close()
    await talk.device.close()
    receive = talk.device._receive
    talk.device._receive = ReceiveOptions(tmp_path / "other", talk.application.act)
    with pytest.raises(InboxError, match="belongs to other"):
        await talk.device.start()
    with pytest.raises(DeviceStopped):
        await talk.device.send("<message/>")
    talk.device._receive = receive
    await talk.start()
    assert error_of(await talk.acknowledged()) == "result"
