"""Hostile stream management (XEP-0198): another's session, false counts, acknowledging nothing.

After each attack the gateway lives, serves an honest device, and has not grown.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from xml.etree.ElementTree import Element

import pytest

from tests.helpers.gateway import PASSWORD, Gateway
from tests.helpers.hostile import HONEST, PING, Door, unharmed, until_closed
from tests.helpers.xmpp import Client, Closed, condition

SM = "urn:xmpp:sm:3"
STANZAS = 16
"""That a session may have sent and not acknowledged, as configured here."""


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    gateway = Gateway(
        tmp_path_factory.mktemp("hostile") / "gateway",
        HONEST, "evil", "victim",
        unacknowledged_stanzas=STANZAS,
        sessions_per_account=4,
    )  # fmt: skip
    with gateway.run() as process:
        yield Door(gateway, process)
        assert process.terminate() == 0


async def managed(door: Door, name: str, resource: str = "fw") -> tuple[Client, str]:
    """Log in with a session that can be resumed; returns its id too."""
    client = await door.log_in(name, resource)
    client.send(f"<enable xmlns='{SM}' resume='true'/>")
    enabled = await client.element()
    assert enabled.tag == f"{{{SM}}}enabled"
    return client, enabled.attrib["id"]


async def unbound(door: Door, name: str) -> Client:
    """Log in, and bind nothing."""
    client = await door.secured()
    assert await client.authenticate("SCRAM-SHA-256", name, PASSWORD) == "success"
    return client


async def resume(client: Client, previd: str, h: str = "0") -> Element:
    client.send(f"<resume xmlns='{SM}' previd='{previd}' h='{h}'/>")
    return await client.element()


async def test_nobody_resumes_the_session_of_another(door: Door) -> None:
    async with unharmed(door):
        victim, token = await managed(door, "victim")
        victim.writer.transport.abort()
        async with await unbound(door, "evil") as evil:
            failed = await resume(evil, token)
            assert failed.tag == f"{{{SM}}}failed"
            assert failed[0].tag.endswith("}item-not-found")
            assert "h" not in failed.attrib, "how much the victim had sent is nobody's business"
        plain = base64.b64encode(f"\0evil\0{PASSWORD}".encode()).decode()
        async with await door.secured() as evil:
            evil.send(
                "<authenticate xmlns='urn:xmpp:sasl:2' mechanism='PLAIN'>"
                f"<initial-response>{plain}</initial-response>"
                f"<resume xmlns='{SM}' previd='{token}' h='0'/></authenticate>"
            )
            success = await evil.element()
            assert success.find(f"{{{SM}}}resumed") is None
            assert success.find(f"{{{SM}}}failed") is not None
        async with await unbound(door, "victim") as again:
            assert (await resume(again, token)).tag == f"{{{SM}}}resumed"


@pytest.mark.parametrize("state", ["alive", "waiting"])
async def test_a_session_is_resumed_once(door: Door, state: str) -> None:
    """Who has the id and the password takes the session over; there are never two."""
    async with unharmed(door):
        first, token = await managed(door, "victim")
        if state == "waiting":
            first.writer.transport.abort()
        async with await unbound(door, "victim") as second, await unbound(door, "victim") as third:
            assert (await resume(second, token)).tag == f"{{{SM}}}resumed"
            answer = await resume(third, token)
            if answer.tag == f"{{{SM}}}resumed":
                assert await second.closed() == "conflict"
            else:
                assert answer.tag == f"{{{SM}}}failed"
        if state == "alive":
            assert await first.closed() in ("conflict", None)


@pytest.mark.parametrize(
    ("previd", "h", "condition"),
    [
        ("", "0", "bad-request"),
        ("x" * 5000, "0", "bad-request"),
        ("none", "-1", "bad-request"),
        ("none", "4294967296", "bad-request"),
        ("none", "\u0661", "bad-request"),
        ("none", "", "bad-request"),
        ("../../etc/passwd", "0", "item-not-found"),
        ("none", "4294967295", "item-not-found"),
    ],
)
async def test_ids_and_counts_that_are_none(
    door: Door, previd: str, h: str, condition: str
) -> None:
    async with unharmed(door), await unbound(door, "evil") as evil:
        failed = await resume(evil, previd, h)
        assert failed.tag == f"{{{SM}}}failed"
        assert failed[0].tag.endswith(f"}}{condition}")
        await evil.bind("after")
        assert (await evil.iq("get", PING)).get("type") == "result"


async def guess(client: Client) -> None:
    for number in range(100):
        await resume(client, f"guess-{number}")


async def test_ids_cannot_be_guessed_for_long(door: Door) -> None:
    async with unharmed(door), await unbound(door, "evil") as evil:
        with pytest.raises(Closed, match="policy-violation"):
            await guess(evil)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        ("1", "undefined-condition"),
        ("4294967295", "undefined-condition"),
        ("-1", "bad-format"),
        ("4294967296", "bad-format"),
        ("x" * 5000, "bad-format"),
        ("", "bad-format"),
    ],
)
async def test_false_counts_end_the_stream(door: Door, count: str, expected: str) -> None:
    async with unharmed(door):
        evil, _token = await managed(door, "evil")
        evil.send(f"<a xmlns='{SM}' h='{count}'/>")
        assert await evil.closed() == expected


async def test_a_count_beyond_what_was_sent_does_not_resume(door: Door) -> None:
    async with unharmed(door):
        evil, token = await managed(door, "evil")
        evil.writer.transport.abort()
        async with await unbound(door, "evil") as again:
            again.send(f"<resume xmlns='{SM}' previd='{token}' h='7'/>")
            said = await until_closed(again)
            assert b"<resumed" not in said or b"<stream:error" in said


async def ask(client: Client, times: int) -> None:
    """Ask for answers, one by one, and acknowledge none."""
    for number in range(times):
        client.send(f"<iq type='get' id='{number}' to='gw.example'>{PING}</iq>")
        while (await client.element()).get("id") != str(number):
            pass  # a request to acknowledge


async def test_who_acknowledges_nothing_is_ended(door: Door) -> None:
    async with unharmed(door):
        evil, _token = await managed(door, "evil")
        with pytest.raises(Closed, match="resource-constraint"):
            await ask(evil, 20 * STANZAS)


async def test_managing_what_is_managed_is_refused(door: Door) -> None:
    async with unharmed(door):
        evil, token = await managed(door, "evil")
        for again in (f"<enable xmlns='{SM}'/>", f"<resume xmlns='{SM}' previd='{token}' h='0'/>"):
            evil.send(again)
            failed = await evil.element()
            assert failed.tag == f"{{{SM}}}failed"
            assert failed[0].tag.endswith("}unexpected-request")
        evil.writer.transport.abort()


async def test_a_flood_of_requests_is_answered_and_costs_nothing(door: Door) -> None:
    async with unharmed(door):
        evil, _token = await managed(door, "evil")
        for _ in range(20):
            evil.send(f"<r xmlns='{SM}'/>" * 1000)
            for _ in range(1000):
                assert (await evil.element()).get("h") == "0"
        evil.writer.transport.abort()


async def test_sessions_that_wait_are_bounded(door: Door) -> None:
    """Who vanishes again and again leaves no more sessions waiting than an account may have."""
    async with unharmed(door):
        tokens = []
        for number in range(12):
            evil, token = await managed(door, "evil", f"r{number}")
            tokens.append(token)
            evil.writer.transport.abort()
        resumed = 0
        for token in tokens:
            async with await unbound(door, "evil") as again:
                resumed += (await resume(again, token)).tag == f"{{{SM}}}resumed"
        assert 1 <= resumed <= 4


async def test_who_floods_a_session_that_waits_does_not_end_it_and_fills_no_memory(
    door: Door,
) -> None:
    """What it has no room for is refused: the flood is the sender's own affair."""
    async with unharmed(door):
        victim, token = await managed(door, "victim")
        victim.send("<presence/>")
        await victim.element()
        victim.writer.transport.abort()
        async with await door.log_in("evil") as evil:
            message = f"<message to='victim@gw.example/fw'><body>{'x' * 4000}</body></message>"
            for _ in range(200):
                evil.send(message)
            told = [condition(await evil.element()) for _ in range(200 - STANZAS // 4)]
            assert set(told) == {"resource-constraint"}
        async with await unbound(door, "victim") as again:
            assert (await resume(again, token)).tag == f"{{{SM}}}resumed"
            again.send(f"<iq type='get' id='last' to='gw.example'>{PING}</iq>")
            while (await again.element()).get("id") != "last":
                pass
