"""Tests of attacks on stream management (XEP-0198) of a running gateway."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from xml.etree.ElementTree import Element

import pytest

from firmware_sim.attackers.stanzas import PING
from tests.helpers.gateway import PASSWORD, Gateway
from tests.helpers.hostile import HONEST, AttackedGateway, unharmed, until_closed
from tests.helpers.xmpp import Client, Closed, condition

SM = "urn:xmpp:sm:3"
STANZAS = 16
"""The configured limit of unacknowledged stanzas."""


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedGateway]:
    gateway = Gateway(
        tmp_path_factory.mktemp("hostile") / "gateway",
        HONEST, "evil", "victim",
        unacknowledged_stanzas=STANZAS,
        sessions_per_account=4,
    )  # fmt: skip
    with gateway.run() as process:
        yield AttackedGateway(gateway, process)
        assert process.terminate() == 0


async def log_in_resumable(
    attacked: AttackedGateway, name: str, resource: str = "fw"
) -> tuple[Client, str]:
    """Log in with a resumable session; return the client and the session's id."""
    client = await attacked.log_in(name, resource)
    client.send(f"<enable xmlns='{SM}' resume='true'/>")
    enabled = await client.element()
    assert enabled.tag == f"{{{SM}}}enabled"
    return client, enabled.attrib["id"]


async def authenticate(attacked: AttackedGateway, name: str) -> Client:
    """Authenticate without binding."""
    client = await attacked.open_tls_stream()
    assert await client.authenticate("SCRAM-SHA-256", name, PASSWORD) == "success"
    return client


async def resume(client: Client, previd: str, h: str = "0") -> Element:
    client.send(f"<resume xmlns='{SM}' previd='{previd}' h='{h}'/>")
    return await client.element()


async def test_another_accounts_session_cannot_be_resumed(attacked: AttackedGateway) -> None:
    async with unharmed(attacked):
        victim, token = await log_in_resumable(attacked, "victim")
        victim.writer.transport.abort()
        async with await authenticate(attacked, "evil") as evil:
            failed = await resume(evil, token)
            assert failed.tag == f"{{{SM}}}failed"
            assert failed[0].tag.endswith("}item-not-found")
            assert "h" not in failed.attrib, "the count is not revealed to another account"
        plain = base64.b64encode(f"\0evil\0{PASSWORD}".encode()).decode()
        async with await attacked.open_tls_stream() as evil:
            evil.send(
                "<authenticate xmlns='urn:xmpp:sasl:2' mechanism='PLAIN'>"
                f"<initial-response>{plain}</initial-response>"
                f"<resume xmlns='{SM}' previd='{token}' h='0'/></authenticate>"
            )
            success = await evil.element()
            assert success.find(f"{{{SM}}}resumed") is None
            assert success.find(f"{{{SM}}}failed") is not None
        async with await authenticate(attacked, "victim") as again:
            assert (await resume(again, token)).tag == f"{{{SM}}}resumed"


@pytest.mark.parametrize("state", ["alive", "waiting"])
async def test_a_session_is_resumed_once(attacked: AttackedGateway, state: str) -> None:
    """The last client to resume a session has it."""
    async with unharmed(attacked):
        first, token = await log_in_resumable(attacked, "victim")
        if state == "waiting":
            first.writer.transport.abort()
        async with (
            await authenticate(attacked, "victim") as second,
            await authenticate(attacked, "victim") as third,
        ):
            assert (await resume(second, token)).tag == f"{{{SM}}}resumed"
            answer = await resume(third, token)
            if answer.tag == f"{{{SM}}}resumed":
                assert await second.closed() == "conflict"
            else:
                assert answer.tag == f"{{{SM}}}failed"
        if state == "alive":
            assert await first.closed() in ("conflict", None)


async def guess_ids(client: Client) -> None:
    for number in range(100):
        await resume(client, f"guess-{number}")


async def test_guessing_ids_ends_the_stream(attacked: AttackedGateway) -> None:
    async with unharmed(attacked), await authenticate(attacked, "evil") as evil:
        with pytest.raises(Closed, match="policy-violation"):
            await guess_ids(evil)


@pytest.mark.parametrize(
    ("count", "expected"), [("1", "undefined-condition"), ("x" * 5000, "bad-format")]
)
async def test_false_counts_end_the_stream(
    attacked: AttackedGateway, count: str, expected: str
) -> None:
    async with unharmed(attacked):
        evil, _token = await log_in_resumable(attacked, "evil")
        evil.send(f"<a xmlns='{SM}' h='{count}'/>")
        assert await evil.closed() == expected


async def test_a_count_beyond_what_was_sent_does_not_resume(attacked: AttackedGateway) -> None:
    async with unharmed(attacked):
        evil, token = await log_in_resumable(attacked, "evil")
        evil.writer.transport.abort()
        async with await authenticate(attacked, "evil") as again:
            again.send(f"<resume xmlns='{SM}' previd='{token}' h='7'/>")
            said = await until_closed(again)
            assert b"<resumed" not in said or b"<stream:error" in said


async def ask(client: Client, times: int) -> None:
    """Ask for answers, one by one, and acknowledge none."""
    for number in range(times):
        client.send(f"<iq type='get' id='{number}' to='gw.example'>{PING}</iq>")
        while (await client.element()).get("id") != str(number):
            pass  # a request to acknowledge


async def test_who_acknowledges_nothing_is_ended(attacked: AttackedGateway) -> None:
    async with unharmed(attacked):
        evil, _token = await log_in_resumable(attacked, "evil")
        with pytest.raises(Closed, match="resource-constraint"):
            await ask(evil, 20 * STANZAS)


async def test_stream_management_is_enabled_once(attacked: AttackedGateway) -> None:
    async with unharmed(attacked):
        evil, token = await log_in_resumable(attacked, "evil")
        for again in (f"<enable xmlns='{SM}'/>", f"<resume xmlns='{SM}' previd='{token}' h='0'/>"):
            evil.send(again)
            failed = await evil.element()
            assert failed.tag == f"{{{SM}}}failed"
            assert failed[0].tag.endswith("}unexpected-request")
        evil.writer.transport.abort()


async def test_a_flood_of_requests_for_acknowledgement_is_answered(
    attacked: AttackedGateway,
) -> None:
    async with unharmed(attacked):
        evil, _token = await log_in_resumable(attacked, "evil")
        for _ in range(20):
            evil.send(f"<r xmlns='{SM}'/>" * 1000)
            for _ in range(1000):
                assert (await evil.element()).get("h") == "0"
        evil.writer.transport.abort()


async def test_waiting_sessions_are_limited(attacked: AttackedGateway) -> None:
    """Lost connections leave no more waiting sessions than an account may have."""
    async with unharmed(attacked):
        tokens = []
        for number in range(12):
            evil, token = await log_in_resumable(attacked, "evil", f"r{number}")
            tokens.append(token)
            evil.writer.transport.abort()
        resumed = 0
        for token in tokens:
            async with await authenticate(attacked, "evil") as again:
                resumed += (await resume(again, token)).tag == f"{{{SM}}}resumed"
        assert 1 <= resumed <= 4


async def test_a_flood_does_not_end_a_waiting_session(
    attacked: AttackedGateway,
) -> None:
    """Excess stanzas are refused to their sender."""
    async with unharmed(attacked):
        victim, token = await log_in_resumable(attacked, "victim")
        victim.send("<presence/>")
        await victim.element()
        victim.writer.transport.abort()
        async with await attacked.log_in("evil") as evil:
            message = f"<message to='victim@gw.example/fw'><body>{'x' * 4000}</body></message>"
            for _ in range(200):
                evil.send(message)
            conditions = [condition(await evil.element()) for _ in range(200 - STANZAS // 4)]
            assert set(conditions) == {"resource-constraint"}
        async with await authenticate(attacked, "victim") as again:
            assert (await resume(again, token)).tag == f"{{{SM}}}resumed"
            again.send(f"<iq type='get' id='last' to='gw.example'>{PING}</iq>")
            while (await again.element()).get("id") != "last":
                pass
