"""A device's presence, level 0, and full buffers, against a scripted server."""

from __future__ import annotations

import asyncio
import base64
import hashlib

import pytest

from firmware_sim.device.limits import InboxLimits, OutboxLimits, SendPolicy
from firmware_sim.errors import DeviceStopped, MessageRefused, NotSent
from tests.helpers.talk import JID, MESSAGE, NAMESPACES, QOS, SENDER, Talk, Talking, error_of


async def test_presence_announces_the_capabilities(talk: Talking) -> None:
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
            (identity,) = [each for name, each in found if name == "identity"]
            text = f"{identity['category']}/{identity['type']}//<{'<'.join(features)}<"
            digest = hashlib.sha1(text.encode(), usedforsecurity=False).digest()
            assert base64.b64encode(digest).decode() == caps.get("ver")


async def test_presence_subscription_is_left_to_the_operator(it: Talk) -> None:
    it.peer.say(f"<presence type='subscribe' from='{SENDER}' to='{JID}'/>")
    await it.acknowledged()
    assert [other.get("type") for other in it.peer.others] == [None]


async def test_device_pauses_and_resumes_reading(it: Talk) -> None:
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
    await it.device.close()
    it.device.pause_reading()  # without a session nothing happens
    it.device.resume_reading()


async def test_answers_are_dropped_while_the_write_buffer_is_full(talk: Talking) -> None:
    async with talk(limits=InboxLimits(unsent_bytes=-1)) as it:
        head = f"type='set' id='q' from='{SENDER}' to='{JID}'"
        it.peer.say(f"<iq {head}><acknowledged xmlns='{QOS}'>{MESSAGE}</acknowledged></iq>")
        it.peer.say(f"<iq type='get' id='p' from='{SENDER}'><ping xmlns='urn:xmpp:ping'/></iq>")
        await it.peer.until(lambda: bool(it.peer.replies))
        assert [reply.get("id") for reply in it.peer.replies] == ["p"]
        assert it.did() == [(1, "m1")]


async def test_plain_message_is_sent_once_or_not_at_all(talk: Talking) -> None:
    async with talk({"limits": OutboxLimits(message_bytes=300)}) as it:
        assert await it.device.send("<message id='a'><body>&lt;</body></message>", qos=0) == 0
        assert await it.device.send_log("E", "", qos=0, to="x@gw.example/'\"&") == 0
        await it.peer.until(lambda: len(it.peer.others) == 3)
        _, first, second = it.peer.others
        found = (first.tag, first.get("to"), first.get("id"))
        assert found == ("{jabber:client}message", "gw.example", "a")
        assert (first[0].tag, first[0].text) == ("{jabber:client}body", "<")
        assert second.get("to") == "x@gw.example/'\"&"
        assert sum(it.device.counts().values()) == 0
        with pytest.raises(MessageRefused, match="more than 300 bytes"):
            await it.device.send(f"<message>{'x' * 300}</message>", qos=0)
        it.device.cut()
        with pytest.raises(NotSent, match="no session"):
            await it.device.send("<message/>", qos=0)
    with pytest.raises(DeviceStopped):
        await it.device.send("<message/>", qos=0)


async def test_plain_message_is_refused_while_the_write_buffer_is_full(talk: Talking) -> None:
    async with talk({"policy": SendPolicy(unsent_bytes=100_000)}) as it:
        for writer in it.peer._writers:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
        body = f"<message><body>{'x' * 30_000}</body></message>"
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while sent < 2000:  # what the kernel buffers is large
                await it.device.send(body, qos=0)
                sent += 1

        with pytest.raises(NotSent, match="buffer of the connection is full"):
            await flood()
        assert sent > 2
        for writer in it.peer._writers:
            writer.transport.resume_reading()  # type: ignore[attr-defined]
