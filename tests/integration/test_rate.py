from __future__ import annotations

import asyncio
from pathlib import Path

from tests.helpers.in_process import InProcessGateway, in_process
from tests.helpers.xmpp import SM, WAIT_S, Client

PING = "<ping xmlns='urn:xmpp:ping'/>"
STANZAS = {"stanzas_per_second": 200, "stanzas_at_once": 16}
BYTES = {"bytes_per_second": 64 * 1024, "bytes_at_once": 64 * 1024}


def pings(first: int, last: int) -> str:
    return "".join(
        f"<iq type='get' id='{number}' to='gw.example'>{PING}</iq>" for number in range(first, last)
    )


async def answers(client: Client, count: int) -> list[int]:
    return [int((await client.stanza()).get("id", "")) for _ in range(count)]


async def until_paused(gateway: InProcessGateway, connections: int = 1) -> None:
    async with asyncio.timeout(WAIT_S):
        while gateway.endpoints.used()["paused"] != connections:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.005)


def limit_events(gateway: InProcessGateway) -> list[tuple[str, str]]:
    found = gateway.gateway.events("system")
    return [(event["name"], event["source"]) for event in found if event["kind"] == "limit"]


async def test_a_burst_is_delayed_and_answered_in_order(tmp_path: Path) -> None:
    async with in_process(tmp_path, "pump", "valve", **STANZAS) as gateway:
        async with (
            await gateway.bind_session("pump") as pump,
            await gateway.bind_session("valve") as valve,
        ):
            loop = asyncio.get_running_loop()
            started = loop.time()
            pump.send(pings(0, 200))
            await until_paused(gateway)
            assert (await valve.iq("get", PING)).get("type") == "result", "others do not wait"
            assert await answers(pump, 200) == list(range(200))
            assert loop.time() - started >= (200 - 16) / 200 - 0.1, "the stanzas were delayed"
        await until_paused(gateway, 0)
    assert limit_events(gateway) == [("rate", "pump@gw.example")]


async def test_acknowledgements_of_a_rate_limited_session_are_handled(tmp_path: Path) -> None:
    """Acknowledgements before the next stanza count as bytes only."""
    async with (
        in_process(tmp_path, "pump", stanzas_per_second=1, stanzas_at_once=16) as gateway,
        await gateway.bind_session("pump") as pump,
    ):
        await pump.enable()
        pump.send(pings(0, 17))
        assert await answers(pump, 17) == list(range(17))
        pump.acknowledge(pump.stanzas)
        assert await pump.handled() == 17
        session = gateway.session("pump@gw.example/fw")
        assert session is not None
        assert session.management is not None
        assert not session.management.bytes, "nothing waits to be acknowledged"
        pump.send(f"<r xmlns='{SM[1:-1]}'/>" + pings(17, 19))
        await until_paused(gateway)
        pump.cut()
        await until_paused(gateway, 0)


async def test_bytes_before_authentication_are_rate_limited(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, "pump", "valve", **BYTES) as gateway,
        await Client.connect(gateway.port) as peer,
    ):
        await peer.element()
        loop = asyncio.get_running_loop()
        started = loop.time()
        peer.send(" " * 128 * 1024)
        await until_paused(gateway)
        async with await gateway.bind_session("valve") as valve:
            assert (await valve.iq("get", PING)).get("type") == "result"
        assert await peer.authenticate("SCRAM-SHA-1", "pump", "correct horse") == "success"
        assert loop.time() - started >= 0.9, "the bytes were delayed"
    assert limit_events(gateway) == [("rate", "127.0.0.1")]


async def test_large_stanzas_are_limited_by_their_bytes(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, "pump", **BYTES) as gateway,
        await gateway.bind_session("pump") as pump,
    ):
        ping = f"<iq type='get' id='0' to='gw.example'>{PING}<x>{'x' * 20_000}</x></iq>"
        pump.send(ping * 6)
        await until_paused(gateway)
        assert await answers(pump, 6) == [0] * 6
