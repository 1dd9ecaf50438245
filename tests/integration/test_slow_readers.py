"""A slow device and those who send to it: nobody ends its session, and all is delivered or told.

Without timing: the slow one acknowledges, or reads, when the test says so.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from edge.errors import StoreBusy
from tests.helpers.gateway import UNPACED
from tests.helpers.in_process import InProcess, in_process
from tests.helpers.xmpp import CLIENT, SM, WAIT_S, Client, condition

PING = "<ping xmlns='urn:xmpp:ping'/>"
NAMES = ("slow", "flood", "meter", "valve")
BARE = "slow@gw.example"
ROOM = 64
"""Stanzas that a session may leave unacknowledged here: a source has a quarter of these."""
SHARE = ROOM // 4
OPTIONS = {"unacknowledged_stanzas": ROOM, **UNPACED}


def letter(name: str, number: int, to: str, size: int = 1) -> str:
    return (
        f"<message type='chat' id='{name}-{number}' to='{to}'><body>{'x' * size}</body></message>"
    )


async def there(gateway: InProcess, managed: bool = True) -> Client:
    """Begin the slow device's session, and read its own presence."""
    slow = await gateway.bound("slow")
    if managed:
        await slow.enable()
    slow.send("<presence/>")
    assert (await slow.stanza()).tag == f"{CLIENT}presence"
    return slow


async def answered(client: Client) -> list[str]:
    """Ask twice, and read until the answers have come; returns the ids of what came back.

    What finds no room is on its way back by the first answer, and is there by the second.
    """
    back = []
    for _ in range(2):
        client.send(f"<iq type='get' id='asked' to='gw.example'>{PING}</iq>")
        while (stanza := await client.stanza()).get("id") != "asked":
            assert stanza.get("type") == "error"
            back.append(stanza.get("id", ""))
    return back


async def letters(client: Client, count: int) -> list[str]:
    """Read so many messages, and acknowledge each time that is asked for."""
    found: list[str] = []
    while len(found) < count:
        stanza = await client.element()
        if stanza.tag == f"{SM}r":
            client.acknowledge(client.stanzas)
        elif stanza.tag == f"{CLIENT}message":
            found.append(stanza.get("id", ""))
    client.acknowledge(client.stanzas)
    return found


def of(name: str, found: list[str]) -> list[int]:
    """Return the numbers of one sender's messages, in the order in which they came."""
    return [int(id_.partition("-")[2]) for id_ in found if id_.startswith(f"{name}-")]


async def until_stored(gateway: InProcess, count: int) -> None:
    """Wait until so many messages are stored."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await gateway.store.read(lambda tx: tx.row("SELECT count(*) FROM offline")[0])
            if found == count:
                return


async def test_a_flooder_ends_nobodys_session_and_others_are_heard(tmp_path: Path) -> None:
    """The flooder's go to the session's full JID, as many as it likes; all of it is told."""
    async with (
        in_process(tmp_path, *NAMES, **OPTIONS) as gateway,
        await there(gateway) as slow,
        await gateway.bound("flood") as flood,
        await gateway.bound("meter") as meter,
    ):
        flood.send("".join(letter("flood", n, slow.full) for n in range(500)))
        back = [await flood.stanza() for _ in range(500 - SHARE)]
        assert {condition(stanza) for stanza in back} == {"resource-constraint"}
        assert of("flood", [stanza.get("id", "") for stanza in back]) == list(range(SHARE, 500))
        meter.send("".join(letter("meter", n, BARE) for n in range(SHARE)))
        assert await answered(meter) == [], "it has its own share"
        found = await letters(slow, 2 * SHARE)
        assert of("flood", found) == list(range(SHARE))
        assert of("meter", found) == list(range(SHARE))
        assert await slow.handled() == 1, "it is the same session"
        flood.send(letter("flood", 500, slow.full))
        assert await letters(slow, 1) == ["flood-500"]
    refused = [e for e in gateway.gateway.events("system") if e["name"] == "crowded"]
    assert refused[0]["source"] == "flood@gw.example"
    assert refused[0]["value"] >= 1


async def test_what_does_not_fit_is_stored_and_comes_in_order(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, *NAMES, **OPTIONS) as gateway,
        await there(gateway) as slow,
        await gateway.bound("meter") as meter,
        await gateway.bound("valve") as valve,
    ):
        meter.send("".join(letter("meter", n, BARE) for n in range(70)))
        await until_stored(gateway, 70 - SHARE)
        valve.send("".join(letter("valve", n, BARE) for n in range(20)))
        assert await answered(valve) == []
        found = await letters(slow, 90)
        assert of("meter", found) == list(range(70))
        assert of("valve", found) == list(range(20))
        assert await answered(meter) == []
        await until_stored(gateway, 0)
        meter.send(letter("meter", 70, BARE))
        assert await letters(slow, 1) == ["meter-70"]


@pytest.mark.parametrize("end", ["cut", "replaced"])
async def test_the_order_holds_where_the_session_ends_before_it_took_anything(
    tmp_path: Path, end: str
) -> None:
    """What it had in its buffer comes before what did not fit, for whoever comes next."""
    async with in_process(tmp_path, *NAMES, resume_time=0.0, **OPTIONS) as gateway:
        slow = await there(gateway)
        async with await gateway.bound("meter") as meter:
            meter.send("".join(letter("meter", n, BARE) for n in range(70)))
            await until_stored(gateway, 70 - SHARE)
            if end == "cut":
                slow.cut()
                await until_stored(gateway, 70)
            async with await there(gateway) as again:
                assert of("meter", await letters(again, 70)) == list(range(70))
            assert await answered(meter) == []
        slow.cut()


async def test_nothing_overtakes_what_is_on_its_way_back(tmp_path: Path) -> None:
    """Room that comes before the store had its turn is for what comes behind."""
    async with in_process(tmp_path, *NAMES, **OPTIONS) as gateway, await there(gateway) as slow:
        session = gateway.session(slow.full)
        assert session is not None
        assert session.management is not None
        stanzas = [
            letter("meter", n, BARE).replace("<message", "<message from='meter@gw.example/fw'")
            for n in range(SHARE + 2)
        ]
        for stanza in stanzas[:-1]:
            session.deliver(stanza.encode(), None)
        session.acknowledge(session.management, session.management.sent)
        session.deliver(stanzas[-1].encode(), None)
        found: list[str] = []
        while len(found) < SHARE + 2:
            found.append((await slow.stanza()).get("id", ""))
        assert of("meter", found) == list(range(SHARE + 2))


async def test_a_burst_from_many_finds_its_way(tmp_path: Path) -> None:
    """More sources than shares, at once, to somebody who reads and acknowledges all the while."""
    async with in_process(tmp_path, *NAMES, **OPTIONS) as gateway:
        slow = await there(gateway)
        senders = [await gateway.bound(name) for name in NAMES[1:]]
        for name, sender in zip(NAMES[1:], senders, strict=True):
            sender.send("".join(letter(name, n, BARE, 500) for n in range(30)))
        found = await letters(slow, 90)
        for name in NAMES[1:]:
            assert of(name, found) == list(range(30))
        for client in (slow, *senders):
            client.cut()


async def test_requests_that_do_not_fit_are_answered(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, *NAMES, **OPTIONS) as gateway,
        await there(gateway) as slow,
        await gateway.bound("meter") as meter,
    ):
        ask = f"<iq type='get' id='{{}}' to='{slow.full}'>{PING}</iq>"
        meter.send("".join(ask.format(n) for n in range(SHARE + 5)))
        for number in range(SHARE, SHARE + 5):
            stanza = await meter.stanza()
            assert stanza.get("id") == str(number)
            assert condition(stanza) == "resource-constraint"


async def test_of_presence_that_does_not_fit_the_last_one_comes(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, *NAMES, **OPTIONS) as gateway,
        await there(gateway) as slow,
        await gateway.bound("meter") as meter,
    ):
        show = f"<presence to='{slow.full}'><status>{{}}</status></presence>"
        meter.send("".join(show.format(n) for n in range(100)))
        assert await answered(meter) == []
        seen: list[str] = []
        while not seen or seen[-1] != "99":
            stanza = await slow.element()
            if stanza.tag == f"{SM}r":
                slow.acknowledge(slow.stanzas)
            elif stanza.tag == f"{CLIENT}presence":
                seen.append(stanza.findtext(f"{CLIENT}status") or "")
            if len(seen) == SHARE:
                slow.acknowledge(slow.stanzas)
        assert seen == [*map(str, range(SHARE)), "99"]


async def test_answers_of_its_own_do_not_share_with_what_others_send(tmp_path: Path) -> None:
    """A buffer that others have filled leaves a session all the room for its own requests."""
    async with in_process(tmp_path, *NAMES, **OPTIONS) as gateway:
        slow = await there(gateway)
        for name in NAMES[1:]:
            async with await gateway.bound(name) as sender:
                sender.send("".join(letter(name, n, slow.full) for n in range(ROOM)))
                await answered(sender)
        slow.send(f"<iq type='get' id='own' to='gw.example'>{PING}</iq>" * (ROOM - 2))
        own: Counter[str | None] = Counter()
        while own["own"] < ROOM - 2:
            own[(await slow.stanza()).get("id")] += 1
        session = gateway.session(slow.full)
        assert session is not None
        assert not session.ended
        slow.send(f"<iq type='get' id='own' to='gw.example'>{PING}</iq>" * 3)
        assert await slow.closed() == "resource-constraint", "what it asks for is its own affair"


async def test_without_stream_management_nobody_ends_it_either(tmp_path: Path) -> None:
    async with in_process(tmp_path, *NAMES, send_buffer=4096, **UNPACED) as gateway:
        slow = await there(gateway, managed=False)
        slow.deafen()
        async with await gateway.bound("flood") as flood, await gateway.bound("meter") as meter:
            sent, back = 0, 0
            while not (back and gateway.front.used()["send_buffer"]):
                flood.send(letter("flood", 0, slow.full, 9000) * 10)
                sent, back = sent + 10, back + len(await answered(flood))
            meter.send(letter("meter", 0, slow.full, 9000))
            assert await answered(meter) == [], "it has its own share"
            slow.reader._transport.resume_reading()  # type: ignore[attr-defined]
            found = await letters(slow, sent - back + 1)
            assert len(of("flood", found)) == sent - back
            assert of("meter", found) == [0]
        slow.cut()


async def test_what_all_sessions_hold_is_bounded_and_nobody_is_ended_for_others(
    tmp_path: Path,
) -> None:
    """One flooder and many who take nothing: the bound of all holds, and all of them stay."""
    total = 128 * 1024
    options = {**UNPACED, "unacknowledged_total_bytes": total, "sessions_per_account": 20}
    async with in_process(tmp_path, *NAMES, **options) as gateway:
        slow = []
        for number in range(12):
            slow.append(await gateway.bound("slow", f"r{number}"))
            await slow[-1].enable()
        async with await gateway.bound("flood") as flood:
            for client in slow:
                flood.send(letter("flood", 0, client.full, 4000) * 20)
            back = await answered(flood)
            assert 0 < gateway.front.used()["unacknowledged_total_bytes"] <= total
            assert len(back) > 100
            assert gateway.front.used()["sessions"] == 13
        for client in slow:
            client.cut()


async def test_what_cannot_be_stored_for_want_of_room_is_told(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, *NAMES, **OPTIONS) as gateway,
        await there(gateway) as slow,
        await gateway.bound("meter") as meter,
    ):
        meter.send("".join(letter("meter", n, BARE) for n in range(SHARE)))
        assert await answered(meter) == []
        await gateway.store.run(lambda tx: tx.row("PRAGMA max_page_count = 1"))
        meter.send("".join(letter("meter", n, BARE, 9000) for n in range(SHARE, SHARE + 5)))
        for number in range(SHARE, SHARE + 5):
            stanza = await meter.stanza()
            assert stanza.get("id") == f"meter-{number}"
            assert condition(stanza) == "resource-constraint"
        await gateway.store.run(lambda tx: tx.row("PRAGMA max_page_count = 100000"))
        meter.send(letter("meter", SHARE + 5, BARE))
        found = await letters(slow, SHARE + 1)
        assert of("meter", found) == [*range(SHARE), SHARE + 5]


@pytest.mark.long
async def test_what_can_neither_be_stored_nor_told_is_counted(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, *NAMES, **OPTIONS) as gateway,
        await there(gateway) as slow,
        await gateway.bound("meter") as meter,
    ):
        meter.send("".join(letter("meter", n, BARE) for n in range(SHARE)))
        assert await answered(meter) == []
        session = gateway.session(slow.full)
        assert session is not None
        with gateway.locked():  # longer than the store waits: what it was handed is nowhere yet
            session.deliver(
                f"<message type='chat' from='{meter.full}' to='{BARE}'/>".encode(), None
            )
            for _ in range(2):  # to store it, and to tell
                with pytest.raises(StoreBusy):
                    await gateway.store.run(lambda tx: tx.now)
            assert gateway.tally.take()["returned"] == 1
        meter.send(letter("meter", SHARE, BARE))
        assert of("meter", await letters(slow, SHARE + 1)) == list(range(SHARE + 1))
