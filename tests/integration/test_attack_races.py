"""Tests of races at a running gateway: resumption, binding, revocation, and a stop under load.

At most one session wins each race, and no traceback is logged. A stored message is deleted only
when it is acknowledged, keeps its order, and is repeated only if it was not acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from edge.ops.devices import devices
from firmware_sim.attackers.stanzas import PING
from tests.helpers.gateway import PASSWORD, Gateway, bind_session, log_in, port_of
from tests.helpers.in_process import in_process
from tests.helpers.processes import Process
from tests.helpers.xmpp import CLIENT, SM, Client, Closed, condition

UNACKNOWLEDGED = 64
"""The configured limit of unacknowledged stanzas; a page of stored messages is half of it."""

BIND = (
    "<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>"
    "<resource>fw</resource></bind></iq>"
)


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    options = {"require_tls": False, "unacknowledged_stanzas": UNACKNOWLEDGED}
    return Gateway(tmp_path / "gateway", "cam1", "writer", **options)


def chat_message(number: int) -> str:
    return (
        f"<message type='chat' id='{number}' to='cam1@gw.example'><body>{number}</body></message>"
    )


async def send_messages(at: int | Process, count: int) -> list[int]:
    """Send messages 0 to `count` - 1 to cam1; return the numbers of those that were refused."""
    refused = []
    async with await bind_session(at, "writer") as writer:
        writer.send("".join(chat_message(number) for number in range(count)))
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


async def leave_session(process: Process, count: int) -> str:
    """Leave a disconnected session with unacknowledged messages; return its id for resumption."""
    client = await bind_session(process, "cam1")
    token = await client.enable()
    client.send("<presence/>")
    assert await client.handled() == 1
    client.cut()
    assert await send_messages(process, count) == []
    return token


async def outcome(client: Client) -> str:
    """Return the result of a race for one client: the answer's name, or the stream error."""
    try:
        found = await client.element()
    except Closed as end:
        return end.condition or "closed"
    if found.tag == f"{CLIENT}iq":
        return f"bound {found.get('type')}"
    return found.tag.removeprefix(SM)


async def is_alive(client: Client) -> bool:
    try:
        client.send(f"<iq type='get' id='still' to='gw.example'>{PING}</iq>")
        while (await client.element()).get("id") != "still":
            pass
    except (Closed, ConnectionError):
        return False
    return True


@pytest.mark.parametrize("first", ["bind", "resume"])
async def test_bind_races_with_resumption(own_process: Process, first: str) -> None:
    """One of the two sessions remains, and receives every message."""
    token = await leave_session(own_process, 20)
    one, two = await log_in(own_process, "cam1"), await log_in(own_process, "cam1")
    resume = f"<resume xmlns='{SM[1:-1]}' previd='{token}' h='1'/>"
    requests = [(one, BIND), (two, resume)]
    for client, request in requests if first == "bind" else reversed(requests):
        client.send(request)
    assert await outcome(one) == "bound result"
    assert await outcome(two) in ("resumed", "failed", "conflict")
    one.send("<presence/>")
    assert await read_messages(one, 19) == list(range(20))
    for client in (one, two):
        client.cut()


async def test_concurrent_resumptions_leave_one_session(own_process: Process) -> None:
    token = await leave_session(own_process, 5)
    clients = [await log_in(own_process, "cam1") for _ in range(8)]
    for client in clients:
        client.send(f"<resume xmlns='{SM[1:-1]}' previd='{token}' h='1'/>")
    results = [await outcome(client) for client in clients]
    assert set(results) <= {"resumed", "failed", "conflict"}
    alive = [client for client in clients if await is_alive(client)]
    assert len(alive) == 1
    for client in clients:
        client.cut()


async def test_revoked_device_neither_resumes_nor_binds(
    gateway: Gateway, own_process: Process
) -> None:
    token = await leave_session(own_process, 3)
    one, two = await log_in(own_process, "cam1"), await log_in(own_process, "cam1")
    await asyncio.to_thread(devices.revoke, gateway.folder, "cam1")
    one.send(f"<resume xmlns='{SM[1:-1]}' previd='{token}' h='1'/>")
    two.send(BIND)
    assert await outcome(two) in ("bound error", "not-authorized")
    if await outcome(one) == "resumed":  # it was replaced by two, or revoked while running
        assert await one.closed() in ("conflict", "not-authorized")
    for client in (one, two):
        client.cut()


async def connect_randomly(process: Process, rng: random.Random, token: str) -> None:
    """Log in, bind or resume, and send, until the gateway has stopped."""
    with contextlib.suppress(Closed, OSError, TimeoutError, AssertionError):
        client = await Client.connect(port_of(process))
        try:
            await client.element()
            mechanism = rng.choice(["SCRAM-SHA-1", "SCRAM-SHA-256"])
            password = rng.choice([PASSWORD, PASSWORD, "wrong"])
            assert await client.authenticate(mechanism, "cam1", password) == "success"
            if rng.random() < 0.5:
                await client.resume(token, 1)
            else:
                await client.bind(f"r{rng.randrange(4)}")
                await client.enable()
            for number in range(rng.randrange(20)):
                client.send(chat_message(number))
            client.send("<presence/>")
            await client.handled()
            if rng.random() < 0.5:
                await client.closed()
        finally:
            client.cut()


async def test_stop_with_many_clients_is_clean(gateway: Gateway, seed: int) -> None:
    rng = random.Random(seed)
    with gateway.run() as process:
        token = await leave_session(process, 10)
        tasks = [asyncio.create_task(connect_randomly(process, rng, token)) for _ in range(40)]
        for _ in range(rng.randrange(5, 30)):
            async with await Client.connect(port_of(process)) as client:
                await client.element()
        assert await asyncio.to_thread(process.terminate) == 0
        await asyncio.gather(*tasks)
        assert "Traceback" not in process.stderr, process.stderr
        assert "exception" not in process.stderr, process.stderr


async def test_resumption_continues_a_page_of_stored_messages(own_process: Process) -> None:
    await send_messages(own_process, 80)
    client = await bind_session(own_process, "cam1")
    token = await client.enable()
    client.send("<presence/>")
    assert await read_messages(client, 5) == list(range(6))
    client.cut()
    async with await log_in(own_process, "cam1") as resumed:
        answer = await resumed.resume(token, 4)
        assert answer.tag == f"{SM}resumed"
        found: list[int] = []
        while len(found) < 77:
            stanza = await resumed.element()
            if stanza.tag == f"{SM}r":
                resumed.acknowledge(4 + len(found))
            elif stanza.tag == f"{CLIENT}message":
                found.append(int(stanza.attrib["id"]))
        assert found == list(range(3, 80))


async def test_burst_arrives_completely_while_the_receiver_is_replaced(
    own_process: Process,
) -> None:
    writing = asyncio.create_task(send_messages(own_process, 90))
    clients = []
    for _ in range(6):
        clients.append(await bind_session(own_process, "cam1"))
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
    times = {"resume_time": 0.5, "stalled_time": 0.5}
    async with in_process(tmp_path, "cam1", "writer", **times) as front:
        assert await send_messages(front.port, 3) == []
        async with await front.bind_session("cam1", "silent") as silent:
            await silent.enable(resume=False)
            silent.send("<presence/>")
            assert await silent.closed() == "connection-timeout"
        async with await front.bind_session("cam1") as client:
            client.send("<presence/>")
            assert await read_messages(client, 2) == [0, 1, 2]
