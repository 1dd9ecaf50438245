from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.helpers.gateway import NO_RATE_LIMITS, PASSWORD, Gateway, bind_session, log_in, port_of
from tests.helpers.in_process import in_process
from tests.helpers.xmpp import CLIENT, Client, condition

PING = "<ping xmlns='urn:xmpp:ping'/>"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    return Gateway(
        tmp_path_factory.mktemp("gw") / "gateway",
        "cam1", "cam2", "silent", "absent",
        require_tls=False,
        sessions_per_account=2,
        authenticate_delay=0.0,
        send_buffer=4096,
        stanza_bytes=10_000,
        unacknowledged_bytes=65_536,
        unacknowledged_stanzas=16,
    )  # fmt: skip


async def test_unauthenticated_peers_of_one_address_do_not_block_others(tmp_path: Path) -> None:
    """The oldest connection of the largest source is closed for another address."""
    limits = {"unauthenticated": 4, "unauthenticated_per_address": 4}
    async with in_process(tmp_path, "cam1", **limits) as front:
        port = front.port
        idle = [await Client.connect(port) for _ in range(4)]
        for client in idle:
            await client.element()
        async with await Client.connect(port) as refused:
            assert await refused.closed() == "resource-constraint"
        async with await bind_session(port, "cam1", from_="127.0.0.2") as honest:
            assert (await honest.iq("get", PING)).get("type") == "result"
        assert await idle[0].closed() == "resource-constraint"
        for client in idle:
            client.cut()


async def test_sessions_of_an_account_are_limited(port: int) -> None:
    first = await bind_session(port, "cam1", "one")
    await first.enable()
    second = await bind_session(port, "cam1", "two")
    third = await log_in(port, "cam1")
    async with first, second, third:
        request = "<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>three</resource></bind>"
        assert condition(await third.iq("set", request, to=None)) == "resource-constraint"
        async with await bind_session(port, "cam1", "two") as replacement:
            assert await second.closed() == "conflict", "a session of the same JID is replaced"
            first.cut()
            while (answer := await third.iq("set", request, to=None)).get("type") == "error":
                assert condition(answer) == "resource-constraint"
            assert (await replacement.iq("get", PING)).get("type") == "result"


@pytest.mark.parametrize("user", ["cam3", "nobody"])
async def test_failed_logins_are_limited_for_known_and_unknown_users(
    tmp_path: Path, user: str
) -> None:
    gateway = Gateway(
        tmp_path / "gateway", "cam1", "cam3", require_tls=False,
        authenticate_failures=3, authenticate_again=3600.0, authenticate_delay=0.0,
    )  # fmt: skip
    with gateway.run() as process:
        port = port_of(process)
        async with await bind_session(port, "cam3", from_="127.0.0.3"):
            pass
        for attempt in range(4):
            async with await Client.connect(port) as client:
                await client.element()
                outcome = await client.authenticate("SCRAM-SHA-256", user, "wrong")
                assert outcome == ("not-authorized" if attempt < 3 else "temporary-auth-failure")
        async with await Client.connect(port, from_="127.0.0.2") as client:
            await client.element()
            outcome = await client.authenticate("SCRAM-SHA-256", user, PASSWORD)
            assert outcome == "temporary-auth-failure", "the account is limited from anywhere"
            assert await client.authenticate("SCRAM-SHA-256", "cam1", PASSWORD) == "success"
        async with await bind_session(port, "cam3", from_="127.0.0.3") as honest:
            assert (await honest.iq("get", PING)).get("type") == "result"
        assert process.terminate() == 0
    failures = Counter[tuple[str, str]]()
    for event in gateway.events("system"):
        if event["kind"] == "limit":
            assert event["tags"]["account"] == user
            failures[event["source"], event["name"]] += event["value"]
    assert failures == {
        ("127.0.0.1", "authentication"): 3,
        ("127.0.0.1", "authentication_limit"): 1,
        ("127.0.0.2", "authentication_limit"): 1,
    }


async def test_failed_login_is_answered_after_a_doubling_delay(tmp_path: Path) -> None:
    async with in_process(tmp_path, "cam1", authenticate_delay=0.2) as front:
        loop = asyncio.get_running_loop()
        async with await Client.connect(front.port) as client:
            await client.element()
            for delay in (0.2, 0.4):
                started = loop.time()
                outcome = await client.authenticate("SCRAM-SHA-256", "cam1", "wrong")
                assert outcome == "not-authorized"
                assert loop.time() - started >= delay - 0.01
            started = loop.time()
            assert await client.authenticate("PLAIN", "cam1", "x") == "encryption-required"
            assert loop.time() - started >= 0.2 - 0.01


@pytest.mark.parametrize("from_", ["cam2@gw.example/fw", "cam1@gw.example/other", "@", ""])
async def test_foreign_from_address_is_refused(port: int, from_: str) -> None:
    async with await bind_session(port, "cam1") as client:
        client.send(f"<iq type='get' id='1' to='gw.example'>{PING}</iq>")
        client.send(f"<iq type='get' id='2' from='{from_}' to='gw.example'>{PING}</iq>")
        assert (await client.element()).get("id") == "1", "earlier stanzas are answered"
        assert await client.closed() == "invalid-from"


@pytest.mark.parametrize("from_", ["cam1@gw.example/fw", "CAM1@gw.example", "cam1@GW.example/fw"])
async def test_own_from_address_is_accepted(port: int, from_: str) -> None:
    async with await bind_session(port, "cam1") as client:
        client.send(f"<iq type='get' id='1' from='{from_}' to='gw.example'>{PING}</iq>")
        assert (await client.element()).get("type") == "result"


def chat_messages(count: int, size: int, to: str) -> str:
    return "".join(
        f"<message type='chat' id='c{n}' to='{to}'><body>{'x' * size}</body></message>"
        for n in range(count)
    )


async def received(client: Client, count: int) -> list[str]:
    """Read this many messages; skip errors and other stanzas."""
    found: list[str] = []
    while len(found) < count:
        element = await client.element()
        if element.tag == f"{CLIENT}message" and element.get("type") != "error":
            found.append(element.get("id", ""))
    return found


async def messages_before_answer(client: Client) -> list[str]:
    """Ping, and read until the answer; return the ids of the messages before it."""
    client.send(f"<iq type='get' id='end' to='gw.example'>{PING}</iq>")
    found: list[str] = []
    while (element := await client.element()).get("id") != "end":
        found += [element.get("id", "")] if element.tag == f"{CLIENT}message" else []
    return found


async def test_peer_that_does_not_read_is_disconnected(tmp_path: Path) -> None:
    """Its other messages are returned; without stream management, sent means received."""
    options = {"stalled_time": 0.5, "send_buffer": 4096, **NO_RATE_LIMITS}
    async with in_process(tmp_path, "cam1", "cam2", **options) as front:
        stalled = await front.bind_session("cam1", "stalled")
        stalled.pause_reading()
        async with (
            await front.bind_session("cam2") as sender,
            await front.bind_session("cam1", "other") as other,
        ):
            other.send("<presence/>")
            await messages_before_answer(other)
            sent = 0
            reader = asyncio.create_task(received(other, 1))
            while not reader.done():
                sender.send(chat_messages(10, 9000, "cam1@gw.example/stalled"))
                await sender.writer.drain()
                await messages_before_answer(sender)
                sent += 10
                assert sent < 20_000, "the session was never ended"
            assert await reader
        stalled.cut()


async def test_stored_message_is_deleted_after_delivery(port: int) -> None:
    """Without stream management, a sent message is a delivered one."""
    async with await bind_session(port, "cam2") as sender:
        sender.send(chat_messages(20, 100, "absent@gw.example"))
        await sender.iq("get", PING)
    async with await bind_session(port, "absent", "absent") as first:
        first.send("<presence/>")
        assert await received(first, 20) == [f"c{n}" for n in range(20)]
        assert (await first.iq("get", PING)).get("type") == "result"
    async with await bind_session(port, "absent", "absent") as second:
        second.send("<presence/>")
        assert await messages_before_answer(second) == []


async def test_password_change_is_in_order_with_stanzas(port: int) -> None:
    async with await bind_session(port, "cam2", "password") as client:
        change = (
            "<iq type='set' id='change'><query xmlns='jabber:iq:register'>"
            "<username>cam2</username><password>another horse</password></query></iq>"
        )
        ping = f"<iq type='get' id='after' to='gw.example'>{PING}</iq>"
        client.send(ping.replace("after", "before") + change + ping)
        found = [await client.element() for _ in range(3)]
        assert [element.get("id") for element in found] == ["before", "change", "after"]
        assert {element.get("type") for element in found} == {"result"}
        client.send(change.replace("another horse", PASSWORD))
        assert (await client.element()).get("type") == "result"
        client.send(change.replace("another horse", ""))
        assert (await client.element()).get("type") == "error"
