"""Stream management over real sockets (XEP-0198)."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest

from tests.helpers.gateway import Gateway, bind_session, log_in
from tests.helpers.in_process import in_process
from tests.helpers.xmpp import CLIENT, SM, STANZAS, Client

PING = "<ping xmlns='urn:xmpp:ping'/>"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    return Gateway(tmp_path_factory.mktemp("gw") / "gateway", "cam1", "cam2", require_tls=False)


def ping(number: int) -> str:
    return f"<iq type='get' id='p{number}' to='gw.example'>{PING}</iq>"


def offer(number: int) -> str:
    """Return a stanza whose handling adds a row."""
    message = "<message xmlns='jabber:client'/>"
    assured = f"<assured xmlns='urn:xmpp:qos' msgId='m{number}'>{message}</assured>"
    return f"<iq type='set' id='p{number}' to='gw.example'>{assured}</iq>"


async def ids(client: Client, count: int) -> list[str]:
    """Read this many answers; return their ids."""
    return [(await client.stanza()).get("id", "") for _ in range(count)]


async def start_session(port: int, resource: str) -> tuple[Client, str]:
    """Begin a resumable session, send three pings and read the answers; return it and its id."""
    client = await bind_session(port, "cam1", resource)
    token = await client.enable()
    for number in range(3):
        client.send(ping(number))
    assert await ids(client, 3) == ["p0", "p1", "p2"]
    return client, token


async def test_handled_stanzas_are_acknowledged_in_order(port: int) -> None:
    async with await bind_session(port, "cam1", "order") as client:
        await client.iq("get", PING)
        await client.enable()
        assert await client.handled() == 0, "earlier stanzas do not count"
        for number in range(20):
            client.send(offer(number) if number % 2 else ping(number))
            client.send("<message to='gw.example' type='error'/>")
        client.send(f"<r xmlns='{SM[1:-1]}'/>")
        answers = []
        while (element := await client.element()).tag != f"{SM}a":
            answers += [element.get("id")] if element.tag == f"{CLIENT}iq" else []
        assert element.get("h") == "40"
        assert answers == [f"p{number}" for number in range(20)]


async def test_stanzas_before_stream_management_do_not_count(port: int) -> None:
    """Their units of work are committed after it was enabled."""
    async with await bind_session(port, "cam1", "early") as client:
        client.send(offer(90) + offer(91) + f"<enable xmlns='{SM[1:-1]}'/>" + offer(92))
        found = [await client.element() for _ in range(4)]
        assert sorted(one.get("id", "") for one in found) == ["", "p90", "p91", "p92"]
        assert await client.handled() == 1


async def test_the_gateway_requests_acknowledgements(port: int) -> None:
    async with await bind_session(port, "cam1", "requested") as client:
        await client.enable()
        for number in range(8):
            client.send(ping(number))
        found = [(await client.element()).tag for _ in range(9)]
        assert found.count(f"{SM}r") == 1
        assert found[-1] == f"{SM}r"
        client.acknowledge(8)
        client.send(ping(8))
        assert (await client.element()).get("id") == "p8"
        assert (await client.element()).tag == f"{SM}r", "the end of a burst has a request, too"


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ("<a xmlns='urn:xmpp:sm:3' h='7'/>", "undefined-condition"),
        ("<a xmlns='urn:xmpp:sm:3' h='-1'/>", "bad-format"),
        ("<a xmlns='urn:xmpp:sm:3'/>", "bad-format"),
        ("<unknown xmlns='urn:xmpp:sm:3'/>", "unsupported-stanza-type"),
    ],
)
async def test_invalid_management_data_ends_the_stream(port: int, sent: str, expected: str) -> None:
    async with await bind_session(port, "cam1", "wrong") as client:
        await client.enable()
        client.send(sent)
        assert await client.closed() == expected


@pytest.mark.parametrize(
    "sent",
    [
        "<r xmlns='urn:xmpp:sm:3'/>",
        "<a xmlns='urn:xmpp:sm:3' h='0'/>",
        "<resume xmlns='urn:xmpp:sm:3' previd='x' h='0'/>",
        "<enable xmlns='urn:xmpp:sm:3' resume='perhaps'/>",
    ],
)
async def test_unexpected_stream_management_requests_are_refused(port: int, sent: str) -> None:
    async with await bind_session(port, "cam1", "refused") as client:
        client.send(sent)
        assert (await client.element()).tag == f"{SM}failed"
        await client.enable()
        client.send("<enable xmlns='urn:xmpp:sm:3'/>")
        assert (await client.element()).tag == f"{SM}failed"
        assert (await client.iq("get", PING)).get("type") == "result"


async def resumed(port: int, token: str, h: int, user: str = "cam1") -> tuple[Client, int]:
    """Resume; return the new connection, and the number of handled stanzas."""
    client = await log_in(port, user)
    answer = await client.resume(token, h)
    assert answer.tag == f"{SM}resumed"
    assert answer.get("previd") == token
    return client, int(answer.attrib["h"])


async def test_a_session_is_resumed_after_its_connection_was_cut(port: int) -> None:
    client, token = await start_session(port, "cut")
    client.cut()
    second, handled = await resumed(port, token, 1)
    async with second:
        assert handled == 3
        assert await ids(second, 2) == ["p1", "p2"], "unacknowledged stanzas are repeated"
        second.acknowledge(3)
        second.send(ping(3))
        assert await ids(second, 1) == ["p3"]
        assert await second.handled() == 4


@pytest.mark.parametrize("seed", range(3))
async def test_a_burst_over_a_repeatedly_cut_link_is_answered_once_in_order(
    port: int, seed: int, scale: Callable[[int, int], int]
) -> None:
    """Each stanza is answered once, in order."""
    rng, total = random.Random(seed), scale(60, 600)
    client = await bind_session(port, "cam2", "burst")
    token = await client.enable()
    waiting = [offer(number) for number in range(total)]
    unconfirmed: list[str] = []
    confirmed = 0
    answers: list[str] = []
    while len(answers) < total:
        for _ in range(rng.randint(1, 12)):
            if waiting:
                unconfirmed.append(waiting.pop(0))
                client.send(unconfirmed[-1])
        if rng.random() < 0.5:
            client.send(f"<r xmlns='{SM[1:-1]}'/>")
        for _ in range(rng.randint(0, 10)):
            if len(answers) + len(waiting) == total:
                break
            answers.append((await client.stanza()).get("id", ""))
            if rng.random() < 0.3:
                client.acknowledge(len(answers))
        if rng.random() < 0.5:
            await client.writer.drain()
        client.cut()
        client, handled = await resumed(port, token, len(answers), "cam2")
        assert handled >= confirmed
        unconfirmed = unconfirmed[handled - confirmed :]
        confirmed = handled
        for stanza in unconfirmed:
            client.send(stanza)
    async with client:
        assert answers == [f"p{number}" for number in range(total)]
        assert await client.handled() == total
        client.send("</stream:stream>")
        assert await client.closed() is None


async def test_a_resumption_replaces_an_open_connection(port: int) -> None:
    async with await bind_session(port, "cam1", "twice") as old:
        token = await old.enable()
        old.send(ping(0))
        assert await ids(old, 1) == ["p0"]
        new, handled = await resumed(port, token, 1)
        async with new:
            assert handled == 1
            assert await old.closed() == "conflict"
            assert (await new.iq("get", PING)).get("type") == "result"


def failure(answer: Element) -> tuple[str, str | None]:
    return answer[0].tag.removeprefix(STANZAS), answer.get("h")


async def test_resuming_an_ended_session_returns_its_count_of_handled_stanzas(port: int) -> None:
    client, token = await start_session(port, "ended")
    client.send("</stream:stream>")
    assert await client.closed() is None
    async with await log_in(port, "cam1") as owner:
        assert failure(await owner.resume(token, 0)) == ("item-not-found", "3")
    async with await log_in(port, "cam2") as other:
        assert failure(await other.resume(token, 0)) == ("item-not-found", None)


async def test_a_resumption_that_acknowledges_unsent_stanzas_is_refused(port: int) -> None:
    client = await bind_session(port, "cam1", "ahead")
    token = await client.enable()
    client.cut()
    async with await log_in(port, "cam1") as second:
        second.send(f"<resume xmlns='{SM[1:-1]}' previd='{token}' h='5'/>")
        assert await second.closed() == "undefined-condition"
    async with await log_in(port, "cam1") as second:
        assert failure(await second.resume(token, 0)) == ("item-not-found", "0")


async def messages(client: Client, count: int) -> list[str]:
    """Read this many messages; skip other stanzas."""
    found: list[str] = []
    while len(found) < count:
        stanza = await client.element()
        if stanza.tag == f"{CLIENT}message" and stanza.get("type") != "error":
            found.append(stanza.get("id", ""))
    return found


def chat_message(number: int, to: str) -> str:
    return f"<message type='chat' id='c{number}' to='{to}'><body>{number}</body></message>"


async def test_messages_for_a_detached_session_arrive_with_the_resumption(port: int) -> None:
    client = await bind_session(port, "cam1", "away")
    token = await client.enable()
    client.send("<presence/>")
    assert await client.handled() == 1
    client.cut()
    async with await bind_session(port, "cam2", "sender") as sender:
        for number in range(5):
            sender.send(chat_message(number, "cam1@gw.example/away"))
        await sender.iq("get", PING)
    second, handled = await resumed(port, token, 1)
    async with second:
        assert handled == 1
        assert await messages(second, 5) == [f"c{number}" for number in range(5)]
        second.send("</stream:stream>")
        await second.closed()


async def test_unacknowledged_messages_are_rerouted_when_a_session_expires(
    tmp_path: Path,
) -> None:
    """The test waits for a second, because resumption is offered in whole seconds."""
    async with in_process(tmp_path, "cam1", "cam2", resume_time=1.0) as front:
        client = await front.bind_session("cam1")
        token = await client.enable()
        client.send("<presence/>")
        assert await client.handled() == 1
        client.cut()
        async with await front.bind_session("cam2") as sender:
            for number in range(3):
                sender.send(chat_message(number, "cam1@gw.example/fw"))
            await sender.iq("get", PING)
            async with await front.bind_session("cam1", "other") as other:
                other.send("<presence/>")
                assert await messages(other, 3) == ["c0", "c1", "c2"]
        async with await front.log_in("cam1") as second:
            assert failure(await second.resume(token, 1)) == ("item-not-found", "1")
