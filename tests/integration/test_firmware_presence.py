"""A device's presence, level 0, and full buffers, against a scripted server."""

from __future__ import annotations

import asyncio
import base64
import hashlib

import pytest

from firmware_sim.device.errors import DeviceStopped, MessageRefused, NotSent
from firmware_sim.device.limits import InboxLimits, OutboxLimits, SendPolicy
from tests.helpers.talk import JID, MESSAGE, NAMESPACES, QOS, SENDER, Talk, TalkFactory, error_of


async def test_presence_announces_the_capabilities(start_talk: TalkFactory) -> None:
    async with start_talk(priority=5) as talk:
        await talk.peer.wait_until(lambda: bool(talk.peer.others))
        (presence,) = talk.peer.others
        priority, caps = presence
        assert (presence.get("type"), priority.text) == (None, "5")
        assert caps.tag == "{http://jabber.org/protocol/caps}c"
        assert caps.get("hash") == "sha-1"
        disco = "http://jabber.org/protocol/disco#info"
        node = f"{caps.get('node')}#{caps.get('ver')}"
        for node_attribute in ("", f" node='{node}'"):
            answer = await talk.ask(f"<query xmlns='{disco}'{node_attribute}/>", "get")
            found = [(child.tag.partition("}")[2], child.attrib) for child in answer[0]]
            features = sorted(each["var"] for name, each in found if name == "feature")
            assert set(NAMESPACES) <= set(features)
            (identity,) = [each for name, each in found if name == "identity"]
            text = f"{identity['category']}/{identity['type']}//<{'<'.join(features)}<"
            digest = hashlib.sha1(text.encode(), usedforsecurity=False).digest()
            assert base64.b64encode(digest).decode() == caps.get("ver")


async def test_presence_subscription_is_left_to_the_operator(talk: Talk) -> None:
    talk.peer.send_xml(f"<presence type='subscribe' from='{SENDER}' to='{JID}'/>")
    await talk.acknowledged()
    assert [other.get("type") for other in talk.peer.others] == [None]


async def test_device_pauses_and_resumes_reading(talk: Talk) -> None:
    await talk.acknowledged()
    talk.device.pause_reading()
    request = asyncio.create_task(talk.acknowledged())
    sending = asyncio.create_task(talk.device.send("<message/>", qos=0))
    await sending  # it can still send
    await talk.peer.wait_until(lambda: len(talk.peer.others) == 2)
    await asyncio.wait({request}, timeout=0.2)
    assert len(talk.application.handled) == 1
    talk.device.cut()  # a new session reads no more than the old one did
    request.cancel()
    await talk.peer.wait_until(lambda: talk.peer.sessions == 2 and len(talk.peer.others) == 3)
    request = asyncio.create_task(talk.acknowledged())
    await asyncio.wait({request}, timeout=0.2)
    assert len(talk.application.handled) == 1
    talk.device.resume_reading()
    assert error_of(await request) == "result"
    assert len(talk.application.handled) == 2
    await talk.device.close()
    talk.device.pause_reading()  # without a session nothing happens
    talk.device.resume_reading()


async def test_answers_are_dropped_while_the_write_buffer_is_full(start_talk: TalkFactory) -> None:
    async with start_talk(limits=InboxLimits(unsent_bytes=-1)) as talk:
        head = f"type='set' id='q' from='{SENDER}' to='{JID}'"
        talk.peer.send_xml(f"<iq {head}><acknowledged xmlns='{QOS}'>{MESSAGE}</acknowledged></iq>")
        talk.peer.send_xml(
            f"<iq type='get' id='p' from='{SENDER}'><ping xmlns='urn:xmpp:ping'/></iq>"
        )
        await talk.peer.wait_until(lambda: bool(talk.peer.replies))
        assert [reply.get("id") for reply in talk.peer.replies] == ["p"]
        assert talk.recorded_actions() == [(1, "m1")]


async def test_plain_message_is_sent_once_or_not_at_all(start_talk: TalkFactory) -> None:
    async with start_talk({"limits": OutboxLimits(message_bytes=300)}) as talk:
        assert await talk.device.send("<message id='a'><body>&lt;</body></message>", qos=0) == 0
        assert await talk.device.send_log("E", "", qos=0, to="x@gw.example/'\"&") == 0
        await talk.peer.wait_until(lambda: len(talk.peer.others) == 3)
        _, first, second = talk.peer.others
        found = (first.tag, first.get("to"), first.get("id"))
        assert found == ("{jabber:client}message", "gw.example", "a")
        assert (first[0].tag, first[0].text) == ("{jabber:client}body", "<")
        assert second.get("to") == "x@gw.example/'\"&"
        assert sum(talk.device.counts().values()) == 0
        with pytest.raises(MessageRefused, match="more than 300 bytes"):
            await talk.device.send(f"<message>{'x' * 300}</message>", qos=0)
        talk.device.cut()
        with pytest.raises(NotSent, match="no session"):
            await talk.device.send("<message/>", qos=0)
    with pytest.raises(DeviceStopped):
        await talk.device.send("<message/>", qos=0)


async def test_plain_message_is_refused_while_the_write_buffer_is_full(
    start_talk: TalkFactory,
) -> None:
    async with start_talk({"policy": SendPolicy(unsent_bytes=100_000)}) as talk:
        for writer in talk.peer._writers:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
        body = f"<message><body>{'x' * 30_000}</body></message>"
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while sent < 2000:  # the kernel's buffers are large
                await talk.device.send(body, qos=0)
                sent += 1

        with pytest.raises(NotSent, match="buffer of the connection is full"):
            await flood()
        assert sent > 2
        for writer in talk.peer._writers:
            writer.transport.resume_reading()  # type: ignore[attr-defined]
