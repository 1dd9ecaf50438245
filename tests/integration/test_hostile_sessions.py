"""Tests of attacks by authenticated devices on a running gateway.

Rate limits are off, because they would act before the limits that are tested.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

import pytest

from firmware_sim.attackers.stanzas import PING, assured, message, ping
from tests.helpers.gateway import NO_RATE_LIMITS, Gateway
from tests.helpers.hostile import (
    HONEST,
    AttackedGateway,
    assert_unharmed,
    discard,
    flood,
    read_until_closed,
    smoke,
)
from tests.helpers.xmpp import condition

STALLED_S = 0.5
KIB = 1024
MIB = 1024 * KIB
DURING_S = 1.0
PATIENCE_S = 8.0
"""Maximum time for an honest device's answer during a flood, on two busy cores."""
BULK_GROWTH_KIB = 16 * KIB
"""Growth allowed for a flood of large stanzas, which fills the buffers."""


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedGateway]:
    with run_gateway(tmp_path_factory, stalled_time=STALLED_S) as attacked:
        yield attacked


@pytest.fixture(scope="module")
def patient_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedGateway]:
    """A gateway that tolerates slow peers, such as a flood on a busy machine."""
    with run_gateway(tmp_path_factory) as attacked:
        yield attacked


@contextlib.contextmanager
def run_gateway(
    tmp_path_factory: pytest.TempPathFactory, **options: float
) -> Iterator[AttackedGateway]:
    gateway = Gateway(
        tmp_path_factory.mktemp("hostile") / "gateway",
        HONEST, "evil", "victim", "deaf",
        sessions_per_account=4,
        **options,
        **NO_RATE_LIMITS,
    )  # fmt: skip
    with gateway.run() as process:
        yield AttackedGateway(gateway, process)
        assert process.terminate() == 0


HOSTILE: dict[str, tuple[str | bytes, str]] = {
    "document type": ("<!DOCTYPE x [<!ENTITY a 'ha'>]>", "restricted-xml"),
    "invalid UTF-8": (b"<message><body>\xc3\x28</body></message>", "not-well-formed"),
    "a long body": (f"<message><body>{'n' * 70_000}", "policy-violation"),
    "many levels": (f"<message>{'<a>' * 100}{'</a>' * 100}</message>", "policy-violation"),
    "many elements": (f"<message>{'<a/>' * 3000}</message>", "policy-violation"),
    "no stanza": ("<x xmlns='urn:x'/>", "unsupported-stanza-type"),
}
"""Examples; the tests of the parser and of negotiation have all cases."""


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_faulty_stream_ends_no_other_session(attacked: AttackedGateway, name: str) -> None:
    data, expected = HOSTILE[name]
    async with assert_unharmed(attacked), await attacked.log_in("victim") as victim:
        async with await attacked.log_in("evil") as evil:
            evil.send(data)
            assert await evil.closed() == expected
        assert (await victim.iq("get", PING)).get("type") == "result"


ODD = {
    "an address of 3 KiB": f"<iq type='get' id='o' to='{'a' * 3000}@gw.example'>{PING}</iq>",
    "a fullwidth at": f"<iq type='get' id='o' to='honest&#xFF20;gw.example'>{PING}</iq>",
    "registration of another": "<iq type='set' id='o'><query xmlns='jabber:iq:register'>"
    "<username>honest</username><password>mine</password></query></iq>",
    "another's roster": "<iq type='set' id='o' to='honest@gw.example'>"
    "<query xmlns='jabber:iq:roster'><item jid='evil@gw.example'/></query></iq>",
}


@pytest.mark.parametrize("name", ODD)
async def test_odd_requests_get_stanza_errors(attacked: AttackedGateway, name: str) -> None:
    async with assert_unharmed(attacked), await attacked.log_in("evil") as evil:
        evil.send(ODD[name])
        answer = await evil.element()
        assert (answer.get("type"), answer.get("id")) == ("error", "o")
        assert condition(answer)
        assert (await evil.iq("get", PING)).get("type") == "result"


FLOODS = {
    "pings": ping(1, "gw.example") * 100,
    "malformed iqs": "<iq/>" * 2000,
    "presence": "<presence/>" * 500,
    "presences that differ": "".join(
        f"<presence><priority>{n}</priority></presence>" for n in range(100)
    ),
    "messages to nobody": message("nobody@gw.example", 1) * 100,
    "messages to a device": message("victim@gw.example", 1) * 100,
    "large messages": message("gw.example", 60_000),
    "assured messages": "".join(assured(n, to="gw.example") for n in range(100)),
    "blanks": " " * 65536,
}


@pytest.mark.parametrize("name", smoke(FLOODS, "assured messages"))
async def test_an_honest_device_is_answered_during_a_flood(
    patient_gateway: AttackedGateway, name: str
) -> None:
    attacked, data = patient_gateway, FLOODS[name].encode()
    async with assert_unharmed(attacked, BULK_GROWTH_KIB), contextlib.AsyncExitStack() as stack:
        evil = [
            await stack.enter_async_context(await attacked.log_in("evil", f"r{n}"))
            for n in range(3)
        ]
        async with await attacked.log_in(HONEST, "during") as honest:
            reading = [asyncio.create_task(discard(client)) for client in evil]
            flooding = [asyncio.create_task(flood(client, data)) for client in evil]
            slowest, pings = 0.0, 0
            deadline = time.monotonic() + DURING_S
            while pings < 20 or time.monotonic() < deadline:
                started = time.monotonic()
                assert (await honest.iq("get", PING)).get("type") == "result"
                slowest = max(slowest, time.monotonic() - started)
                pings += 1
            assert not any(task.done() for task in flooding), "the flood ended too early"
            assert slowest < PATIENCE_S
        for task in (*flooding, *reading):
            task.cancel()
        await asyncio.gather(*flooding, *reading, return_exceptions=True)
        for client in evil:
            client.writer.transport.abort()


async def test_a_device_that_does_not_read_its_answers_is_disconnected(
    attacked: AttackedGateway,
) -> None:
    async with assert_unharmed(attacked, BULK_GROWTH_KIB), await attacked.log_in("evil") as client:
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        requests = f"<iq type='get' id='{'i' * 4000}' to='gw.example'>{PING}</iq>".encode() * 16
        assert await flood(client, requests, 256 * MIB, STALLED_S * 8) < 64 * MIB, (
            "the gateway did not stop reading"
        )
        client.reader._transport.resume_reading()  # type: ignore[attr-defined]
        await read_until_closed(client)


async def test_a_device_may_return_after_an_abort(attacked: AttackedGateway) -> None:
    async with assert_unharmed(attacked):
        for _ in range(20):
            client = await attacked.log_in("evil")
            client.send(f"<iq type='get' id='1' to='gw.example'>{PING}</iq><message to='evil@gw")
            client.writer.transport.abort()
