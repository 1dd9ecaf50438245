"""Tests of stored messages at a running gateway that is killed, or whose clients disconnect.

A stored message is deleted only when it is acknowledged, keeps its order, and is repeated only if
it was not acknowledged.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from firmware_sim.attackers.stanzas import PING
from tests.helpers.gateway import Gateway, bound, known
from tests.helpers.in_process import in_process
from tests.helpers.processes import Process
from tests.helpers.xmpp import CLIENT, SM, Client, condition

DEVICES = ("cam1", "cam2")
UNACKNOWLEDGED = 64
"""The configured limit of unacknowledged stanzas; a page of stored messages is half of it."""


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    options = {"require_tls": False, "unacknowledged_stanzas": UNACKNOWLEDGED}
    return Gateway(tmp_path / "gateway", *DEVICES, **options)


def chat_message(number: int, to: str = "cam1@gw.example") -> str:
    return f"<message type='chat' id='{number}' to='{to}'><body>{number}</body></message>"


async def send_messages(
    at: int | Process, first: int, last: int, to: str = "cam1@gw.example"
) -> list[int]:
    """Send numbered messages at once; return the numbers of those refused with an error."""
    refused = []
    async with await bound(at, "cam2", "writer") as writer:
        writer.send("".join(chat_message(number, to) for number in range(first, last)))
        writer.send(f"<iq type='get' id='end' to='gw.example'>{PING}</iq>")
        while (stanza := await writer.element()).get("id") != "end":
            assert stanza.tag == f"{CLIENT}message"
            assert condition(stanza) == "service-unavailable"
            refused.append(int(stanza.attrib["id"]))
    return refused


async def read_messages(client: Client, last: int) -> list[int]:
    """Read messages until the one with this number; return their numbers."""
    found: list[int] = []
    while not found or found[-1] != last:
        stanza = await client.element()
        if stanza.tag == f"{CLIENT}message":
            found.append(int(stanza.attrib["id"]))
    return found


async def test_resumption_continues_a_page_of_stored_messages(process: Process) -> None:
    await send_messages(process, 0, 80)
    client = await bound(process, "cam1")
    token = await client.enable()
    client.send("<presence/>")
    assert await read_messages(client, 5) == list(range(6))
    client.cut()
    async with await known(process, "cam1") as again:
        answer = await again.resume(token, 4)
        assert answer.tag == f"{SM}resumed"
        found: list[int] = []
        while len(found) < 77:
            stanza = await again.element()
            if stanza.tag == f"{SM}r":
                again.acknowledge(4 + len(found))
            elif stanza.tag == f"{CLIENT}message":
                found.append(int(stanza.attrib["id"]))
        assert found == list(range(3, 80))


async def test_burst_arrives_completely_while_the_receiver_is_replaced(process: Process) -> None:
    writing = asyncio.create_task(send_messages(process, 0, 90))
    clients = []
    for _ in range(6):
        clients.append(await bound(process, "cam1"))
        await clients[-1].enable()
        clients[-1].send("<presence/>")
    client = clients[-1]
    assert await writing == []
    found: list[int] = []
    while len(set(found)) < 90:
        stanza = await client.element()
        if stanza.tag == f"{SM}r":
            client.acknowledge(client.stanzas)
        elif stanza.tag == f"{CLIENT}message":
            found.append(int(stanza.attrib["id"]))
    assert sorted(found) == list(range(90))
    for client in clients:
        client.cut()


async def test_session_that_acknowledges_nothing_is_ended(tmp_path: Path) -> None:
    async with in_process(tmp_path, *DEVICES, resume_time=0.5, stalled_time=0.5) as front:
        assert await send_messages(front.port, 0, 3) == []
        async with await front.bound("cam1", "mute") as mute:
            await mute.enable(resume=False)
            mute.send("<presence/>")
            assert await mute.closed() == "connection-timeout"
        async with await front.bound("cam1") as client:
            client.send("<presence/>")
            assert await read_messages(client, 2) == [0, 1, 2]
