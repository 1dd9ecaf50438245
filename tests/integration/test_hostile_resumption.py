from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from tests.helpers.gateway import PASSWORD, Gateway
from tests.helpers.hostile import HONEST, AttackedGateway, assert_unharmed
from tests.helpers.xmpp import SM, Client

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


async def authenticate(attacked: AttackedGateway, name: str) -> Client:
    """Authenticate without binding."""
    client = await attacked.open_tls_stream()
    assert await client.authenticate("SCRAM-SHA-256", name, PASSWORD) == "success"
    return client


async def test_another_accounts_session_cannot_be_resumed(attacked: AttackedGateway) -> None:
    async with assert_unharmed(attacked):
        victim = await attacked.log_in("victim")
        token = await victim.enable()
        victim.writer.transport.abort()
        async with await authenticate(attacked, "evil") as evil:
            failed = await evil.resume(token, 0)
            assert failed.tag == f"{SM}failed"
            assert failed[0].tag.endswith("}item-not-found")
            assert "h" not in failed.attrib, "the count is not revealed to another account"
        plain = base64.b64encode(f"\0evil\0{PASSWORD}".encode()).decode()
        async with await attacked.open_tls_stream() as evil:
            evil.send(
                "<authenticate xmlns='urn:xmpp:sasl:2' mechanism='PLAIN'>"
                f"<initial-response>{plain}</initial-response>"
                f"<resume xmlns='{SM[1:-1]}' previd='{token}' h='0'/></authenticate>"
            )
            success = await evil.element()
            assert success.find(f"{SM}resumed") is None
            assert success.find(f"{SM}failed") is not None
        async with await authenticate(attacked, "victim") as owner:
            assert (await owner.resume(token, 0)).tag == f"{SM}resumed"


async def test_a_flood_of_requests_for_acknowledgement_is_answered(
    attacked: AttackedGateway,
) -> None:
    async with assert_unharmed(attacked):
        evil = await attacked.log_in("evil")
        await evil.enable()
        for _ in range(20):
            evil.send(f"<r xmlns='{SM[1:-1]}'/>" * 1000)
            for _ in range(1000):
                assert (await evil.element()).get("h") == "0"
        evil.writer.transport.abort()
