"""Stored messages under attack, over real sockets: kills, cuts, turns, and buffers that overflow.

What was stored is lost only by who confirms it; it keeps its order, and is repeated at most where
it was not confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.config.limits import Limits
from firmware_sim.attackers.stanzas import PING
from tests.helpers.gateway import Gateway, port_of
from tests.helpers.hostile import authenticate_without_tls, log_in_without_tls
from tests.helpers.processes import Process
from tests.helpers.xmpp import CLIENT, SM, Client, condition

DEVICES = ("cam1", "cam2")
ROOM = 64
"""Stanzas that a session may leave unacknowledged here: a page of stored ones is half of it."""


def make(folder: Path, **options: object) -> Gateway:
    return Gateway(folder / "gateway", *DEVICES, require_tls=False, **options)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    with make(tmp_path, unacknowledged_stanzas=ROOM).run() as process:
        yield process
        assert process.terminate() == 0
        assert "Traceback" not in process.stderr, process.stderr


async def known(process: Process, user: str) -> Client:
    return await authenticate_without_tls(port_of(process), user)


async def bound(process: Process, user: str, resource: str = "fw") -> Client:
    return await log_in_without_tls(port_of(process), user, resource)


def letter(number: int, to: str = "cam1@gw.example") -> str:
    return f"<message type='chat' id='{number}' to='{to}'><body>{number}</body></message>"


async def write(process: Process, first: int, last: int, to: str = "cam1@gw.example") -> list[int]:
    """Send letters at once, and return the numbers of those that came back with an error."""
    refused = []
    async with await bound(process, "cam2", "writer") as writer:
        writer.send("".join(letter(number, to) for number in range(first, last)))
        writer.send(f"<iq type='get' id='end' to='gw.example'>{PING}</iq>")
        while (stanza := await writer.element()).get("id") != "end":
            assert stanza.tag == f"{CLIENT}message"
            assert condition(stanza) == "service-unavailable"
            refused.append(int(stanza.attrib["id"]))
    return refused


async def letters(client: Client, last: int) -> list[int]:
    """Read letters until the one with this number has come."""
    found: list[int] = []
    while not found or found[-1] != last:
        stanza = await client.element()
        if stanza.tag == f"{CLIENT}message":
            found.append(int(stanza.attrib["id"]))
    return found


async def test_what_is_stored_outlives_a_kill_and_comes_in_order(tmp_path: Path) -> None:
    gateway = make(tmp_path)
    with gateway.run() as process:
        assert await write(process, 0, 80) == []
        process.kill9()
    confirmed = -1
    for _ in range(3):
        with gateway.run() as process:
            client = await bound(process, "cam1")
            await client.enable()
            client.send("<presence/>")
            found = await letters(client, confirmed + 20)
            assert found == list(range(confirmed + 1, confirmed + 21)), "from what is not confirmed"
            client.acknowledge(1 + 10)  # its own presence came first
            confirmed += 10
            client.send(f"<iq type='get' id='end' to='gw.example'>{PING}</iq>")
            while (await client.element()).get("id") != "end":
                pass
            process.kill9()
            client.cut()
    with gateway.run() as process:
        async with await bound(process, "cam1") as client:
            client.send("<presence/>")
            assert await letters(client, 79) == list(range(confirmed + 1, 80))
        assert process.terminate() == 0


async def test_a_page_that_is_under_way_when_its_session_is_cut_comes_with_its_resumption(
    process: Process,
) -> None:
    await write(process, 0, 80)
    client = await bound(process, "cam1")
    token = await client.enable()
    client.send("<presence/>")
    assert await letters(client, 5) == list(range(6))
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


async def test_who_goes_unavailable_leaves_the_rest_to_another_session(process: Process) -> None:
    """Two sessions take turns: the second does not wait for somebody to write again."""
    await write(process, 0, 80)
    async with (
        await bound(process, "cam1", "one") as one,
        await bound(process, "cam1", "two") as two,
    ):
        await one.enable()
        one.send("<presence/>")
        assert await letters(one, 31) == list(range(32))
        two.send("<presence/>")
        await two.element()
        one.send("<presence type='unavailable'/>")
        heard = await one.handled()
        assert heard == 2
        one.acknowledge(one.stanzas)
        assert await letters(two, 79) == list(range(32, 80))


@pytest.mark.parametrize("state", ["deaf", "waiting"])
async def test_what_overflows_is_stored_in_order_and_nobody_is_told_an_error(
    process: Process, state: str
) -> None:
    """A burst of more than a session may leave unacknowledged, and less than may be stored."""
    client = await bound(process, "cam1")
    await client.enable()
    client.send("<presence/>")
    assert await client.handled() == 1
    if state == "waiting":
        client.cut()
    assert await write(process, 0, 98) == []
    async with await bound(process, "cam1") as again:
        again.send("<presence/>")
        assert await letters(again, 97) == list(range(98))
    client.cut()


async def test_where_nothing_more_can_be_stored_the_sender_is_told_of_each(
    process: Process,
) -> None:
    client = await bound(process, "cam1")
    await client.enable()
    client.send("<presence/>")
    assert await client.handled() == 1
    client.cut()
    refused = await write(process, 0, 160)
    async with await bound(process, "cam1") as again:
        again.send("<presence/>")
        kept = [number for number in range(160) if number not in refused]
        assert await letters(again, kept[-1]) == kept
    stored = Limits().offline_messages * 7 // 8  # as much as one source may
    assert len(kept) == stored + ROOM // 4, "and what its session had before that"
    assert sorted(refused) == refused


async def test_a_burst_while_the_receiver_is_replaced_again_and_again_arrives_whole(
    process: Process,
) -> None:
    writing = asyncio.create_task(write(process, 0, 90))
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


async def test_who_acknowledges_nothing_does_not_keep_what_is_stored_for_ever(
    tmp_path: Path,
) -> None:
    gateway = make(tmp_path, resume_time=0.5, stalled_time=0.5)
    with gateway.run() as process:
        assert await write(process, 0, 3) == []
        async with await bound(process, "cam1", "mute") as mute:
            await mute.enable(resume=False)
            mute.send("<presence/>")
            assert await mute.closed() == "connection-timeout"
        async with await bound(process, "cam1") as client:
            client.send("<presence/>")
            assert await letters(client, 2) == [0, 1, 2]
        assert process.terminate() == 0
