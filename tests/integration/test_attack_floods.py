"""Tests of floods by an authenticated device: others are served, and memory is bounded.

Memory is measured from outside, and so are the response times of an honest device.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from firmware_sim.attackers.stanzas import message, ping, presence, roster_change
from tests.helpers.gateway import PASSWORD, Gateway, bind_session
from tests.helpers.hostile import HONEST, AttackedGateway, assert_unharmed, discard, flood, smoke
from tests.helpers.xmpp import Client, condition

GROWTH_KIB = 32 * 1024
"""Growth allowed for eight flooding sessions: all their input, output and TLS buffers are full."""
SESSIONS = 8
PATIENCE_S = 8.0
"""Maximum time for an answer to an honest device during a flood, on two busy cores."""


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedGateway]:
    gateway = Gateway(
        tmp_path_factory.mktemp("floods") / "gateway",
        HONEST, "evil", "victim",
        require_tls=False,
    )  # fmt: skip
    with gateway.run() as process:
        yield AttackedGateway(gateway, process)
        assert process.terminate() == 0
        assert "Traceback" not in process.stderr, process.stderr


def change(password: str) -> str:
    return (
        "<iq type='set' id='c'><query xmlns='jabber:iq:register'>"
        f"<username>evil</username><password>{password}</password></query></iq>"
    )


ROSTER = "<iq type='get' id='r'><query xmlns='jabber:iq:roster'/></iq>"
SILENT = "victim@gw.example/silent"
AVAILABLE = "<presence/>"
LARGE_PRESENCE = presence(3_900)
OFF_AND_ON = f"<presence type='unavailable'/>{LARGE_PRESENCE}"
PROBE = "<presence type='probe' to='evil@gw.example'/>"

FLOODS = {
    "presence to own sessions": (AVAILABLE, LARGE_PRESENCE * 4),
    "presence that comes and goes": (LARGE_PRESENCE, OFF_AND_ON * 4),
    "probes": (LARGE_PRESENCE, PROBE * 200),
    "rosters": ("", ROSTER * 200),
    "roster changes": (ROSTER, "".join(roster_change(n, f"n{n}@gw.example") for n in range(100))),
    "password changes": ("", change(PASSWORD) * 100),
    "unanswered iqs": (AVAILABLE, ping(1, SILENT) * 100),
    "messages to a device that never reads": (AVAILABLE, message(SILENT, 4_000) * 10),
    "stored messages for a device that never reads": (
        AVAILABLE,
        message("victim@gw.example", 4_000, "chat") * 10,
    ),
    "presence to a device that never reads": (AVAILABLE, presence(3_900, SILENT) * 10),
    "as many stanzas as possible": ("", "<iq/>" * 2000),
    "as many bytes as possible": ("", " " * 64 * 1024),
}

EXPECTED_LIMITS = {
    "messages to a device that never reads": "crowded",
    "stored messages for a device that never reads": "offline_bytes",
    "as many stanzas as possible": "rate",
    "as many bytes as possible": "rate",
}
"""The limit that refuses a flood: it must be in the event log with the account as its source."""


def is_refusal_logged(attacked: AttackedGateway, rule: str) -> bool:
    """Return whether the event log has a refusal of the attacker by this limit."""
    return any(
        (event["kind"], event["name"], event["source"]) == ("limit", rule, "evil@gw.example")
        for event in attacked.gateway.events("system")
    )


async def fill_roster(attacked: AttackedGateway) -> None:
    """Fill the roster of the attacker with the largest accepted contacts."""
    async with await bind_session(attacked.port, "evil", "fat") as evil:
        reading = asyncio.create_task(discard(evil))
        for number in range(200):
            evil.send(roster_change(number, f"{number}{'a' * 500}@gw.example"))
            await evil.writer.drain()
        evil.send("</stream:stream>")
        await reading


@asynccontextmanager
async def flooding(
    attacked: AttackedGateway, first: str, data: str, *, reads: bool
) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        silent = await stack.enter_async_context(
            await bind_session(attacked.port, "victim", "silent")
        )
        silent.send(AVAILABLE)
        await silent.element()
        silent.pause_reading()
        evil = [
            await stack.enter_async_context(await bind_session(attacked.port, "evil", f"r{n}"))
            for n in range(SESSIONS)
        ]
        for client in evil:
            client.send(first)
            if not reads:
                client.pause_reading()
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(flood(client, data.encode())) for client in evil
        ]
        if reads:
            tasks += [asyncio.create_task(discard(client)) for client in evil]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in (*evil, silent):
            client.cut()


async def response_time(client: Client) -> float:
    started = time.monotonic()
    assert (await client.iq("get", "<query xmlns='jabber:iq:version'/>")).get("type") == "result"
    return time.monotonic() - started


async def log_in_time(attacked: AttackedGateway) -> float:
    """Measure a log-in by PLAIN, whose password hash waits in the same queue as the attackers'."""
    started = time.monotonic()
    async with await attacked.open_tls_stream("127.0.0.2") as client:
        assert await client.authenticate("PLAIN", HONEST, PASSWORD) == "success"
        return time.monotonic() - started


async def test_oversized_contact_is_refused(attacked: AttackedGateway) -> None:
    async with await attacked.log_in("evil", "large") as evil:
        item = f"<item jid='{'a' * 600}@gw.example'/>"
        answer = await evil.iq("set", f"<query xmlns='jabber:iq:roster'>{item}</query>", to=None)
        assert condition(answer) == "not-acceptable"
        evil.send(f"<presence type='subscribe' to='{'a' * 600}@gw.example'/>")
        assert (await evil.element()).get("type") == "error"


@pytest.mark.parametrize("reads", [True, False], ids=["reading", "not reading"])
@pytest.mark.parametrize("name", smoke(FLOODS, "messages to a device that never reads"))
async def test_others_are_served_and_memory_is_bounded(
    attacked: AttackedGateway,
    name: str,
    reads: bool,
    record_property: Callable[[str, object], None],
) -> None:
    if name == "rosters":
        await fill_roster(attacked)
    first, data = FLOODS[name]
    async with assert_unharmed(attacked, GROWTH_KIB):
        before, peak, slowest, slowest_login = attacked.resident(), 0, 0.0, 0.0
        honest = await attacked.log_in(HONEST, "during", "127.0.0.2")
        async with honest, flooding(attacked, first, data, reads=reads):
            for _ in range(4):
                for _ in range(4):
                    slowest = max(slowest, await response_time(honest))
                slowest_login = max(slowest_login, await log_in_time(attacked))
                peak = max(peak, attacked.resident())
        record_property("slowest_s", round(slowest, 3))
        record_property("log_in_s", round(slowest_login, 3))
        record_property("growth_kib", peak - before)
        assert slowest < PATIENCE_S
        assert slowest_login < PATIENCE_S
        assert peak - before < GROWTH_KIB, f"{peak - before} KiB"
        if name in EXPECTED_LIMITS:
            assert await asyncio.to_thread(is_refusal_logged, attacked, EXPECTED_LIMITS[name])


UNAUTHENTICATED_FLOODS = {
    "blanks": b" " * 64 * 1024,
    "a header that never ends": b"<?xml version='1.0'?><stream:stream " + b" " * 64 * 1024,
    "log-ins": b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='SCRAM-SHA-1'>"
    b"biwsbj1ldmlsLHI9eA==</auth>",
}


@pytest.mark.parametrize("name", smoke(UNAUTHENTICATED_FLOODS, "log-ins"))
async def test_unauthenticated_floods_block_nobody_and_memory_is_bounded(
    attacked: AttackedGateway, name: str
) -> None:
    """Peers without an account connect endlessly and send as many bytes as they can."""
    async with assert_unharmed(attacked, GROWTH_KIB):
        before, peak = attacked.resident(), 0
        honest = await attacked.log_in(HONEST, "during", "127.0.0.2")
        tasks = [
            asyncio.create_task(flood_connections(attacked, UNAUTHENTICATED_FLOODS[name]))
            for _ in range(60)
        ]
        async with honest:
            for _ in range(4):
                assert await response_time(honest) < PATIENCE_S
                assert await log_in_time(attacked) < PATIENCE_S
                peak = max(peak, attacked.resident())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert peak - before < GROWTH_KIB, f"{peak - before} KiB"


async def flood_connections(attacked: AttackedGateway, data: bytes) -> None:
    """Repeatedly connect and send until the gateway closes the connection."""
    while True:
        with contextlib.suppress(OSError):
            client = await attacked.connect()
            client.open()
            try:
                async with asyncio.timeout(1.0):
                    await flood(client, data)
            except TimeoutError:
                pass
            finally:
                client.cut()
