from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from xml.etree.ElementTree import Element

from edge.engine.sessions import sessions
from edge.engine.store.database import Transaction
from edge.server.xmpp.session import XmppSession
from tests.helpers.in_process import InProcessGateway, in_process
from tests.helpers.xmpp import BIND, SM, WAIT_S, Client, condition

PING = "<ping xmlns='urn:xmpp:ping'/>"
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
NAMES = ("one", "two", "three", "four")


async def refused(client: Client, resource: str = "fw") -> str | None:
    """Try to bind; return the condition of the refusal."""
    bind = f"<bind xmlns='{BIND}'><resource>{resource}</resource></bind>"
    answer = await client.iq("set", bind, to=None)
    return None if answer.get("type") == "result" else condition(answer)


@asynccontextmanager
async def full(folder: Path) -> AsyncIterator[tuple[InProcessGateway, Client, Client]]:
    """Open a gateway on which one address has two sessions."""
    async with (
        in_process(folder, *NAMES, sessions_per_address=2, sessions_per_account=2) as gateway,
        await gateway.bind_session("one") as one,
        await gateway.bind_session("two") as two,
    ):
        yield gateway, one, two


async def until_waiting(gateway: InProcessGateway, client: Client) -> None:
    """Wait until a session that lost its connection waits for it."""
    async with asyncio.timeout(WAIT_S):
        while True:
            session = await gateway.store.run(lambda tx: sessions.find(tx, client.full))
            assert session is not None
            if session.detached:
                return


async def test_sessions_are_limited_per_address(tmp_path: Path) -> None:
    async with full(tmp_path) as (gateway, one, _two), await gateway.log_in("three") as three:
        assert await refused(three) == "resource-constraint"
        async with await gateway.bind_session("four", from_=ELSEWHERE) as four:
            assert (await four.iq("get", PING)).get("type") == "result"
            used = gateway.endpoints.used()
            assert (used["sessions"], used["sessions_per_address"]) == (3, 2)
        async with await gateway.bind_session("one") as replacement:
            assert await one.closed() == "conflict", "it replaces a session of its account"
            assert (await replacement.iq("get", PING)).get("type") == "result"
            assert await refused(three) == "resource-constraint"
        while await refused(three) is not None:  # until the replaced session has ended
            pass
    logged = [e for e in gateway.gateway.events("system") if e["kind"] == "limit"]
    assert (logged[0]["name"], logged[0]["source"]) == ("sessions_per_address", HERE)
    assert logged[0]["tags"] == {"limit": "2"}


async def another_session(
    gateway: InProcessGateway, full_jid: str, before: XmppSession | None
) -> XmppSession:
    """Wait until the full JID has another session than `before`, and return it."""
    async with asyncio.timeout(WAIT_S):
        while (found := gateway.session(full_jid)) in (before, None):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
    assert found is not None
    return found


async def test_a_session_replaced_while_it_is_bound_gets_a_conflict(tmp_path: Path) -> None:
    bind = f"<iq type='set' id='b'><bind xmlns='{BIND}'><resource>fw</resource></bind></iq>"
    async with (
        in_process(tmp_path, "one") as gateway,
        await gateway.log_in("one") as first,
        await gateway.log_in("one") as second,
    ):
        full_jid = f"one@{first.domain}/fw"
        running, go_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def hold_others(_tx: Transaction) -> bool:
            loop.call_soon_threadsafe(running.set)
            return go_on.wait(WAIT_S)

        held = asyncio.create_task(gateway.store.run(hold_others))
        await running.wait()
        first.send(bind)
        replaced = await another_session(gateway, full_jid, None)
        second.send(bind)
        await another_session(gateway, full_jid, replaced)
        go_on.set()
        assert await held
        assert await first.closed() == "conflict"
        assert (await second.element()).get("type") == "result"


async def test_a_detached_session_is_evicted_at_the_address_limit(tmp_path: Path) -> None:
    async with full(tmp_path) as (gateway, one, _two):
        token = await one.enable()
        one.cut()
        await until_waiting(gateway, one)
        async with (
            await gateway.bind_session("three"),
            await gateway.log_in("one", from_=ELSEWHERE) as reconnected,
        ):
            assert (await reconnected.resume(token, 0)).tag == f"{SM}failed"


async def test_a_resumed_session_counts_for_its_new_address(tmp_path: Path) -> None:
    async with full(tmp_path) as (gateway, one, two):
        token = await one.enable()
        one.cut()
        await until_waiting(gateway, one)
        async with await gateway.log_in("one", from_=ELSEWHERE) as moved:
            assert (await moved.resume(token, 0)).tag == f"{SM}resumed"
            assert gateway.endpoints.used()["sessions_per_address"] == 1
            async with await gateway.bind_session("three"):
                moved.cut()
                await until_waiting(gateway, one)
                async with await gateway.log_in("one") as from_old_address:
                    failed = await from_old_address.resume(token, 0)
                    assert failed.tag == f"{SM}failed", "its old address is full"
                async with await gateway.log_in("one", from_=ELSEWHERE) as from_new_address:
                    assert (await from_new_address.resume(token, 0)).tag == f"{SM}resumed", (
                        "it still waits to be resumed"
                    )
        assert (await two.iq("get", PING)).get("type") == "result"


async def test_usage_is_reported_by_the_name_of_its_limit(tmp_path: Path) -> None:
    async with in_process(tmp_path, *NAMES) as gateway:
        assert set(gateway.endpoints.used().values()) == {0}
        async with (
            await gateway.bind_session("one") as one,
            await gateway.log_in("two") as two,
            await Client.connect(gateway.port, from_=ELSEWHERE) as unauthenticated,
        ):
            await unauthenticated.element()
            await one.enable()
            assert (await one.iq("get", PING)).get("type") == "result"
            used = gateway.endpoints.used()
            assert used["sessions"] == used["sessions_per_account"] == 1
            assert (used["unauthenticated"], used["unauthenticated_per_address"]) == (2, 1)
            assert used["unacknowledged_bytes"] == used["unacknowledged_total_bytes"] > 0
            assert used["unacknowledged_stanzas"] == 1
            two.cut()
        limits = type(gateway.router.context.limits).__struct_fields__
        assert set(used) - {"paused"} <= set(limits), "each is the name of an option"


async def test_later_characters_in_resources_and_node_names(tmp_path: Path) -> None:
    node = "site/\U0001f6b0 \u1e9e"
    async with (
        in_process(tmp_path, *NAMES) as gateway,
        await gateway.bind_session("one", "\U0001f6b0") as one,
        await gateway.bind_session("two") as two,
    ):
        assert one.full == "one@gw.example/\U0001f6b0"
        service = "pubsub.gw.example"
        request = (
            f"<pubsub xmlns='http://jabber.org/protocol/pubsub'><%s node='{node}'%s/></pubsub>"
        )
        for name, more in (("create", ""), ("subscribe", " jid='one@gw.example'")):
            answer = await one.iq("set", request % (name, more), to=service)
            assert answer.get("type") == "result", name
        one.send("<presence/>")
        two.send(f"<message to='{one.full}' type='chat'><body>hi</body></message>")
        one.send(f"<message to='{service}/{node}'><value xmlns='urn:example:x'/></message>")
        seen: list[Element] = []
        async with asyncio.timeout(WAIT_S):
            while len(seen) < 2:
                stanza = await one.stanza()
                if stanza.tag.endswith("message"):
                    seen.append(stanza)
        assert any(one.findtext("{jabber:client}body") == "hi" for one in seen)
        found = [each.get("node") for one in seen for each in one.iter() if each.get("node")]
        assert found == [node]
