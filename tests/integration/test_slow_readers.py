"""Tests of senders to a device that reads or acknowledges slowly.

The tests do not depend on timing: the device reads and acknowledges only when the test requests it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from edge.errors import StoreBusy
from edge.server.mqtt.connection import MqttConnection
from edge.server.wire import SocketWire
from tests.helpers.gateway import NO_RATE_LIMITS
from tests.helpers.in_process import InProcessGateway, in_process
from tests.helpers.mqtt import MqttClient
from tests.helpers.relayed import relayed
from tests.helpers.xmpp import CLIENT, SM, WAIT_S, Client, condition
from tests.toy.client import ToyClient
from tests.toy.listener import ToyListener

PING = "<ping xmlns='urn:xmpp:ping'/>"
NAMES = ("slow", "flood", "meter", "valve")
BARE = "slow@gw.example"
LIMIT = 64
"""`unacknowledged_stanzas` in these tests; a sender's share is a quarter of it."""
SHARE = LIMIT // 4
OPTIONS = {"unacknowledged_stanzas": LIMIT, **NO_RATE_LIMITS}


def chat_message(name: str, number: int, to: str, size: int = 1) -> str:
    return (
        f"<message type='chat' id='{name}-{number}' to='{to}'><body>{'x' * size}</body></message>"
    )


async def connect_slow(gateway: InProcessGateway, managed: bool = True) -> Client:
    """Bind the slow device's session, and read its own presence."""
    slow = await gateway.bind_session("slow")
    if managed:
        await slow.enable()
    slow.send("<presence/>")
    assert (await slow.stanza()).tag == f"{CLIENT}presence"
    return slow


async def returned_ids(client: Client) -> list[str]:
    """Send two pings, and return the ids of the stanzas that are returned before their answers.

    Excess stanzas are being returned at the first answer, and have arrived at the second.
    """
    returned = []
    for _ in range(2):
        client.send(f"<iq type='get' id='end' to='gw.example'>{PING}</iq>")
        while (stanza := await client.stanza()).get("id") != "end":
            assert stanza.get("type") == "error"
            returned.append(stanza.get("id", ""))
    return returned


async def read_messages(client: Client, count: int) -> list[str]:
    """Read messages and acknowledge when requested; return their ids."""
    found: list[str] = []
    while len(found) < count:
        stanza = await client.element()
        if stanza.tag == f"{SM}r":
            client.acknowledge(client.stanzas)
        elif stanza.tag == f"{CLIENT}message":
            found.append(stanza.get("id", ""))
    client.acknowledge(client.stanzas)
    return found


def numbers_of(name: str, found: list[str]) -> list[int]:
    """Return the numbers of a sender's messages, in order of arrival."""
    return [int(id_.partition("-")[2]) for id_ in found if id_.startswith(f"{name}-")]


async def until_stored(gateway: InProcessGateway, count: int) -> None:
    """Wait until `count` messages are stored."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await gateway.store.read(lambda tx: tx.row("SELECT count(*) FROM offline")[0])
            if found == count:
                return


async def test_a_flood_does_not_end_the_session_or_block_others(tmp_path: Path) -> None:
    """The flood goes to the session's full JID, so that it is not stored."""
    async with (
        in_process(tmp_path, *NAMES, **OPTIONS) as gateway,
        await connect_slow(gateway) as slow,
        await gateway.bind_session("flood") as flood,
        await gateway.bind_session("meter") as meter,
    ):
        flood.send("".join(chat_message("flood", n, slow.full) for n in range(500)))
        returned = [await flood.stanza() for _ in range(500 - SHARE)]
        assert {condition(stanza) for stanza in returned} == {"resource-constraint"}
        assert numbers_of("flood", [stanza.get("id", "") for stanza in returned]) == list(
            range(SHARE, 500)
        )
        meter.send("".join(chat_message("meter", n, BARE) for n in range(SHARE)))
        assert await returned_ids(meter) == [], "each sender has its own share"
        found = await read_messages(slow, 2 * SHARE)
        assert numbers_of("flood", found) == list(range(SHARE))
        assert numbers_of("meter", found) == list(range(SHARE))
        assert await slow.handled() == 1, "the session was not replaced"
        flood.send(chat_message("flood", 500, slow.full))
        assert await read_messages(slow, 1) == ["flood-500"]
    refused = [e for e in gateway.gateway.events("system") if e["name"] == "crowded"]
    assert refused[0]["source"] == "flood@gw.example"
    assert refused[0]["value"] >= 1


async def test_excess_messages_are_stored_and_delivered_in_order(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, *NAMES, **OPTIONS) as gateway,
        await connect_slow(gateway) as slow,
        await gateway.bind_session("meter") as meter,
        await gateway.bind_session("valve") as valve,
    ):
        meter.send("".join(chat_message("meter", n, BARE) for n in range(70)))
        await until_stored(gateway, 70 - SHARE)
        valve.send("".join(chat_message("valve", n, BARE) for n in range(20)))
        assert await returned_ids(valve) == []
        found = await read_messages(slow, 90)
        assert numbers_of("meter", found) == list(range(70))
        assert numbers_of("valve", found) == list(range(20))
        assert await returned_ids(meter) == []
        await until_stored(gateway, 0)
        meter.send(chat_message("meter", 70, BARE))
        assert await read_messages(slow, 1) == ["meter-70"]


@pytest.mark.parametrize("end", ["cut", "replaced"])
async def test_the_order_is_kept_if_the_session_ends(tmp_path: Path, end: str) -> None:
    """The next session gets the buffered messages before the stored ones."""
    async with in_process(tmp_path, *NAMES, resume_time=0.0, **OPTIONS) as gateway:
        slow = await connect_slow(gateway)
        async with await gateway.bind_session("meter") as meter:
            meter.send("".join(chat_message("meter", n, BARE) for n in range(70)))
            await until_stored(gateway, 70 - SHARE)
            if end == "cut":
                slow.cut()
                await until_stored(gateway, 70)
            async with await connect_slow(gateway) as second:
                assert numbers_of("meter", await read_messages(second, 70)) == list(range(70))
            assert await returned_ids(meter) == []
        slow.cut()


async def test_nothing_overtakes_returning_messages(tmp_path: Path) -> None:
    """Space that becomes free before the messages are stored is for later ones."""
    async with (
        in_process(tmp_path, *NAMES, **OPTIONS) as gateway,
        await connect_slow(gateway) as slow,
    ):
        session = gateway.session(slow.full)
        assert session is not None
        assert session.management is not None
        stanzas = [
            chat_message("meter", n, BARE).replace(
                "<message", "<message from='meter@gw.example/fw'"
            )
            for n in range(SHARE + 2)
        ]
        for stanza in stanzas[:-1]:
            session.deliver(relayed(stanza.encode()), None)
        session.acknowledge(session.management, session.management.sent)
        session.deliver(relayed(stanzas[-1].encode()), None)
        found: list[str] = []
        while len(found) < SHARE + 2:
            found.append((await slow.stanza()).get("id", ""))
        assert numbers_of("meter", found) == list(range(SHARE + 2))


async def test_the_latest_excess_presence_is_delivered(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, *NAMES, **OPTIONS) as gateway,
        await connect_slow(gateway) as slow,
        await gateway.bind_session("meter") as meter,
    ):
        presence = f"<presence to='{slow.full}'><status>{{}}</status></presence>"
        meter.send("".join(presence.format(n) for n in range(100)))
        assert await returned_ids(meter) == []
        statuses: list[str] = []
        while not statuses or statuses[-1] != "99":
            stanza = await slow.element()
            if stanza.tag == f"{SM}r":
                slow.acknowledge(slow.stanzas)
            elif stanza.tag == f"{CLIENT}presence":
                statuses.append(stanza.findtext(f"{CLIENT}status") or "")
            if len(statuses) == SHARE:
                slow.acknowledge(slow.stanzas)
        assert statuses == [*map(str, range(SHARE)), "99"]


async def test_stanzas_of_others_leave_space_for_own_answers(tmp_path: Path) -> None:
    """A buffer full of others' stanzas leaves space for the session's own requests."""
    async with in_process(tmp_path, *NAMES, **OPTIONS) as gateway:
        slow = await connect_slow(gateway)
        for name in NAMES[1:]:
            async with await gateway.bind_session(name) as sender:
                sender.send("".join(chat_message(name, n, slow.full) for n in range(LIMIT)))
                await returned_ids(sender)
        slow.send(f"<iq type='get' id='own' to='gw.example'>{PING}</iq>" * (LIMIT - 2))
        own: Counter[str | None] = Counter()
        while own["own"] < LIMIT - 2:
            own[(await slow.stanza()).get("id")] += 1
        session = gateway.session(slow.full)
        assert session is not None
        assert not session.ended
        slow.send(f"<iq type='get' id='own' to='gw.example'>{PING}</iq>" * 3)
        assert await slow.closed() == "resource-constraint", "its own requests count against it"


async def test_a_flood_does_not_end_a_session_without_stream_management(tmp_path: Path) -> None:
    async with in_process(tmp_path, *NAMES, send_buffer=4096, **NO_RATE_LIMITS) as gateway:
        slow = await connect_slow(gateway, managed=False)
        slow.pause_reading()
        async with (
            await gateway.bind_session("flood") as flood,
            await gateway.bind_session("meter") as meter,
        ):
            sent, returned = 0, 0
            while not (returned and gateway.endpoints.used()["send_buffer"]):
                flood.send(chat_message("flood", 0, slow.full, 9000) * 10)
                sent, returned = sent + 10, returned + len(await returned_ids(flood))
            meter.send(chat_message("meter", 0, slow.full, 9000))
            assert await returned_ids(meter) == [], "each sender has its own share"
            slow.reader._transport.resume_reading()  # type: ignore[attr-defined]
            found = await read_messages(slow, sent - returned + 1)
            assert len(numbers_of("flood", found)) == sent - returned
            assert numbers_of("meter", found) == [0]
        slow.cut()


async def test_a_flood_does_not_end_a_session_of_another_protocol(tmp_path: Path) -> None:
    """Its unread messages are XML for nobody, and go back when the session ends."""
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, fault: faults.append(fault))
    async with (
        in_process(tmp_path, *NAMES, send_buffer=4096, **NO_RATE_LIMITS) as gateway,
        await gateway.bind_session("flood") as flood,
    ):
        toy = ToyListener(gateway.context)
        ((_, address),) = await toy.start()
        client = await ToyClient.begin(address, "slow")
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        sent, returned = 0, 0
        while not returned:
            flood.send(chat_message("flood", sent, f"{BARE}/toy", 9000))
            sent, returned = sent + 1, len(await returned_ids(flood))
        assert [session.ended for session in toy._registry.sessions()] == [False]
        client.writer.transport.abort()
        slow = await connect_slow(gateway)
        found = numbers_of("flood", await read_messages(slow, 1))
        assert sent > found[0] > 0, "the first were read by the system"
        slow.cut()
        toy.stop_accepting()
        await toy.close(WAIT_S)
    assert faults == []


async def test_the_limit_of_all_sessions_ends_none_of_them(tmp_path: Path) -> None:
    """One sender floods many sessions that acknowledge nothing."""
    total = 128 * 1024
    options = {**NO_RATE_LIMITS, "unacknowledged_total_bytes": total, "sessions_per_account": 20}
    async with in_process(tmp_path, *NAMES, **options) as gateway:
        slow = []
        for number in range(12):
            slow.append(await gateway.bind_session("slow", f"r{number}"))
            await slow[-1].enable()
        async with await gateway.bind_session("flood") as flood:
            for client in slow:
                flood.send(chat_message("flood", 0, client.full, 4000) * 20)
            returned = await returned_ids(flood)
            assert 0 < gateway.endpoints.used()["unacknowledged_total_bytes"] <= total
            assert len(returned) > 100
            assert gateway.endpoints.used()["sessions"] == 13
        for client in slow:
            client.cut()


async def test_excess_messages_are_refused_if_the_disk_is_full(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, *NAMES, **OPTIONS) as gateway,
        await connect_slow(gateway) as slow,
        await gateway.bind_session("meter") as meter,
    ):
        meter.send("".join(chat_message("meter", n, BARE) for n in range(SHARE)))
        assert await returned_ids(meter) == []
        await gateway.store.run(lambda tx: tx.row("PRAGMA max_page_count = 1"))
        meter.send("".join(chat_message("meter", n, BARE, 9000) for n in range(SHARE, SHARE + 5)))
        for number in range(SHARE, SHARE + 5):
            stanza = await meter.stanza()
            assert stanza.get("id") == f"meter-{number}"
            assert condition(stanza) == "resource-constraint"
        await gateway.store.run(lambda tx: tx.row("PRAGMA max_page_count = 100000"))
        meter.send(chat_message("meter", SHARE + 5, BARE))
        found = await read_messages(slow, SHARE + 1)
        assert numbers_of("meter", found) == [*range(SHARE), SHARE + 5]


@pytest.mark.long
async def test_excess_messages_are_counted_if_the_store_is_busy(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, *NAMES, **OPTIONS) as gateway,
        await connect_slow(gateway) as slow,
        await gateway.bind_session("meter") as meter,
    ):
        meter.send("".join(chat_message("meter", n, BARE) for n in range(SHARE)))
        assert await returned_ids(meter) == []
        session = gateway.session(slow.full)
        assert session is not None
        with gateway.locked():  # longer than the store waits
            lost = f"<message type='chat' from='{meter.full}' to='{BARE}'/>".encode()
            session.deliver(relayed(lost), None)
            for _ in range(2):  # storing the message, and sending an error
                with pytest.raises(StoreBusy):
                    await gateway.store.run(lambda tx: tx.now)
            assert gateway.refusals.take()["returned"] == 1
        meter.send(chat_message("meter", SHARE, BARE))
        assert numbers_of("meter", await read_messages(slow, SHARE + 1)) == list(range(SHARE + 1))


async def test_a_client_that_is_not_read_is_not_silent(tmp_path: Path) -> None:
    """While it does not read, it is not read either, and its signs of life wait in the socket."""
    async with in_process(tmp_path, "cam1") as gateway:
        client = await MqttClient.connect(gateway.mqtt, "cam1")
        (connection,) = gateway.endpoints._endpoints[1]._registry._connections  # type: ignore[attr-defined]
        assert isinstance(connection, MqttConnection)
        wire = connection._wire
        assert isinstance(wire, SocketWire)
        connection._keep_alive = -1.0
        closed = []
        for change in (wire.pause_writing, wire.resume_writing):
            change()
            connection._check_keep_alive()
            closed.append(connection.closed)
        assert closed == [False, True]
        await client.close()
