"""Messages that stream management acknowledged to their sender survive `kill -9`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.helpers.gateway import Gateway, bind_session, log_in, port_of
from tests.helpers.xmpp import CLIENT, SM, Client

TEXTS = ["0", "1", "2", "3"]
PING = "<ping xmlns='urn:xmpp:ping'/>"
DETACHED, READS_NOTHING, NOT_ACKNOWLEDGING = "detached", "reads nothing", "does not acknowledge"


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "gateway", "hub", "pump1", require_tls=False)


async def begin_session(port: int) -> Client:
    """Begin a session of the recipient that is available and acknowledges nothing."""
    client, _token = await begin_resumable(port)
    return client


async def begin_resumable(port: int) -> tuple[Client, str]:
    """Begin a session of the recipient; return also the id by which it can be resumed."""
    client = await bind_session(port, "pump1")
    token = await client.enable()
    client.send("<presence/>")
    while (await client.stanza()).tag != f"{CLIENT}presence":
        pass
    return client, token


async def until_detached(gateway: Gateway) -> None:
    async with asyncio.timeout(10):
        while True:
            shown = json.loads(gateway.command("device", "show", "pump1", "--json"))
            if shown["state"] == "detached":
                return
            await asyncio.sleep(0)


async def send_acknowledged(port: int, to: str) -> None:
    """Send messages, and wait until the gateway has acknowledged them."""
    async with await bind_session(port, "hub") as hub:
        await hub.enable()
        for text in TEXTS:
            hub.send(f"<message type='chat' to='{to}'><body>{text}</body></message>")
        assert await hub.handled() == len(TEXTS)


async def receive(client: Client, count: int) -> list[str | None]:
    found: list[str | None] = []
    while len(found) < count:
        stanza = await client.stanza()
        if stanza.tag == f"{CLIENT}message":
            found.append(stanza.findtext(f"{CLIENT}body"))
    return found


@pytest.mark.parametrize("to", ["pump1@gw.example", "pump1@gw.example/fw"])
@pytest.mark.parametrize("state", [DETACHED, READS_NOTHING, NOT_ACKNOWLEDGING])
async def test_acknowledged_messages_arrive_after_a_kill(
    gateway: Gateway, state: str, to: str
) -> None:
    with gateway.run() as process:
        async with await begin_session(port_of(process)) as recipient:
            if state == DETACHED:
                recipient.cut()
                await until_detached(gateway)
            elif state == READS_NOTHING:
                recipient.pause_reading()
            await send_acknowledged(port_of(process), to)
            if state == NOT_ACKNOWLEDGING:
                assert await receive(recipient, len(TEXTS)) == TEXTS
            process.kill9()
    with gateway.run() as process:
        async with await begin_session(port_of(process)) as recipient:
            assert await receive(recipient, len(TEXTS)) == TEXTS
            recipient.acknowledge(recipient.stanzas)
            await recipient.handled()
        async with await begin_session(port_of(process)) as recipient:
            recipient.send(f"<iq type='get' id='p'>{PING}</iq>")
            assert (await recipient.stanza()).get("id") == "p", "messages would come before"
            assert not list(gateway.events("logs"))
        assert process.terminate() == 0


@pytest.mark.parametrize("to", ["pump1@gw.example", "pump1@gw.example/fw"])
async def test_a_resumed_session_gets_each_message_once(gateway: Gateway, to: str) -> None:
    with gateway.run() as process:
        port = port_of(process)
        lost, token = await begin_resumable(port)
        received = lost.stanzas
        lost.cut()
        await until_detached(gateway)
        await send_acknowledged(port, to)
        async with await log_in(port, "pump1") as recipient:
            assert (await recipient.resume(token, received)).tag == f"{SM}resumed"
            assert await receive(recipient, len(TEXTS)) == TEXTS
            recipient.acknowledge(received + len(TEXTS))
            await recipient.handled()
        async with await begin_session(port) as recipient:
            recipient.send(f"<iq type='get' id='p'>{PING}</iq>")
            assert (await recipient.stanza()).get("id") == "p"
        assert process.terminate() == 0
