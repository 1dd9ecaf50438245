from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from edge.engine.dispatch.hooks import Context
from edge.engine.dispatch.outputs import EndReason
from edge.engine.store import database
from edge.engine.store.database import Transaction
from edge.errors import StoreBusy
from edge.ops.devices import devices
from edge.server import external_changes, session_teardown, tls
from edge.server.refusal_counters import Refusal
from edge.server.xmpp.session import XmppSession
from firmware_sim.attackers.stanzas import PING, assured
from tests.helpers.gateway import PASSWORD
from tests.helpers.in_process import in_process
from tests.helpers.xmpp import CLIENT, SM, WAIT_S, Client, Closed, condition

SHORT = 0.05
"""Seconds that the database waits for another process, if a test needs it to give up."""


def chat_message(number: int, to: str) -> str:
    return f"<message type='chat' id='c{number}' to='{to}'><body>{number}</body></message>"


async def until_offloading(session: XmppSession, wanted: bool) -> None:
    async with asyncio.timeout(WAIT_S):
        while session.offloading is not wanted:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def next_message(client: Client) -> str | None:
    while (element := await client.element()).tag != f"{CLIENT}message":
        pass
    return element.get("id")


async def test_store_errors_are_answered_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT", SHORT)
    async with in_process(tmp_path, "cam1", authenticate_delay=0.0) as front:
        waiting = await front.log_in("cam1")
        client = await front.bind_session("cam1", "other")
        async with waiting, client, await Client.connect(front.port) as other:
            await other.element()
            await client.enable()
            with front.locked():
                client.send(assured(1, to="gw.example"))
                answer = await client.stanza()
                assert condition(answer) == "resource-constraint"
                result = await other.authenticate("SCRAM-SHA-256", "cam1", PASSWORD)
                assert result == "temporary-auth-failure"
                request = "<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>"
                answer = await waiting.iq("set", request, to=None)
                assert condition(answer) == "resource-constraint"
            assert await client.handled() == 1
            client.send(assured(1, to="gw.example"))
            assert (await client.stanza()).get("type") == "result"
            assert await waiting.bind("late") == "cam1@gw.example/late"
            assert front.refusals.take_sources()[Refusal("cam1@gw.example", "database_busy")] == 1


async def test_a_session_is_removed_when_the_store_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT", SHORT)
    monkeypatch.setattr(session_teardown, "RETRY_INTERVAL", SHORT)
    async with in_process(tmp_path, "cam1", "cam2") as front:
        leaving, other = (
            await front.bind_session("cam1", "leaving"),
            await front.bind_session("cam1", "other"),
        )
        async with leaving, other, await front.bind_session("cam2") as sender:
            other.send("<presence/>")
            await leaving.enable()
            sender.send(chat_message(1, "cam1@gw.example/leaving"))
            assert await next_message(leaving) == "c1"
            with front.locked():
                leaving.send("</stream:stream>")
                assert await leaving.closed() is None
                sender.send(assured(1, to="gw.example"))
                assert condition(await sender.element()) == "resource-constraint"
            assert await next_message(other) == "c1"


async def test_undelivered_stanzas_are_counted_if_they_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT", SHORT)
    monkeypatch.setattr(session_teardown, "RETRY_INTERVAL", SHORT)
    monkeypatch.setattr(session_teardown, "RETRIES", 1)
    async with in_process(tmp_path, "cam1", "cam2") as front:
        leaving, sender = await front.bind_session("cam1"), await front.bind_session("cam2")
        async with leaving, sender:
            await leaving.enable()
            sender.send(chat_message(1, "cam1@gw.example/fw"))
            assert await next_message(leaving) == "c1"
            with front.locked():
                leaving.send("</stream:stream>")
                assert await leaving.closed() is None
                while not (counts := front.refusals.take())["returned"]:
                    sender.send(assured(1, to="gw.example"))
                    assert condition(await sender.element()) == "resource-constraint"
                assert counts["returned"] == 1


async def test_resumption_waits_for_stanzas_in_flight_and_the_last_request_wins(
    tmp_path: Path,
) -> None:
    async with in_process(tmp_path, "cam1") as front:
        old = await front.bind_session("cam1")
        first, second = await front.log_in("cam1"), await front.log_in("cam1")
        token = await old.enable()
        async with old, first, second:
            with front.locked():
                for number in range(5):
                    old.send(assured(number, to="gw.example"))
                await old.writer.drain()
                old.send("<message type='error' to='gw.example'/>")
                old.send(f"<r xmlns='{SM[1:-1]}'/>")
                first.send(f"<resume xmlns='{SM[1:-1]}' previd='{token}' h='0'/>")
                assert await old.closed() == "conflict"
                second.send(f"<resume xmlns='{SM[1:-1]}' previd='{token}' h='0'/>")
                assert await first.closed() == "conflict"
            answer = await second.element()
            assert answer.tag == f"{SM}resumed"
            handled = int(answer.attrib["h"])
            answers = [await second.stanza() for _ in range(min(handled, 5))]
            assert [a.get("id") for a in answers] == [str(n) for n in range(min(handled, 5))]
            assert {a.get("type") for a in answers} <= {"result"}
            for number in range(handled, 5):
                second.send(assured(number, to="gw.example"))
                assert (await second.stanza()).get("id") == str(number)


async def test_a_session_survives_the_loss_of_its_second_connection(tmp_path: Path) -> None:
    async with in_process(tmp_path, "cam1") as front:
        old, lost, last = [await front.log_in("cam1") for _ in range(3)]
        await old.bind("fw")
        token = await old.enable()
        async with old, lost, last:
            with front.locked():
                lost.send(f"<resume xmlns='{SM[1:-1]}' previd='{token}' h='0'/>")
                assert await old.closed() == "conflict"
                lost.send("</stream:stream>")
                lost.cut()
            answer = await last.resume(token, 0)
            assert answer.tag == f"{SM}resumed"
            assert (await last.iq("get", PING)).get("type") == "result"


async def test_a_waiting_session_is_evicted_at_the_limit_of_all_sessions(tmp_path: Path) -> None:
    async with in_process(tmp_path, "cam1", "cam2", sessions=2, unauthenticated=2) as front:
        cut, other = await front.bind_session("cam1"), await front.bind_session("cam2", "one")
        token = await cut.enable()
        cut.cut()
        new = await front.log_in("cam2")
        async with other, new:
            await new.bind("two")
            async with await front.log_in("cam1") as returning:
                assert (await returning.resume(token, 0)).tag == f"{SM}failed"
                request = "<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>"
                answer = await returning.iq("set", request, to=None)
                assert condition(answer) == "resource-constraint"


def use_free_pages(tx: Transaction) -> None:
    """Give the free pages of the database back, so that it has no space for more."""
    while tx.row("PRAGMA freelist_count") != (0,):
        tx.rows("PRAGMA incremental_vacuum(1)")


async def test_senders_of_undelivered_stanzas_get_errors_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_teardown, "RETRY_INTERVAL", SHORT)
    monkeypatch.setattr(session_teardown, "RETRIES", 1)
    async with in_process(tmp_path, "cam1", "cam2") as front:
        leaving, sender = await front.bind_session("cam1"), await front.bind_session("cam2")
        async with leaving, sender:
            await leaving.enable()
            sender.send(chat_message(1, leaving.full))
            large = f"<body>{'x' * 30_000}</body>"
            sender.send(f"<message type='chat' id='c2' to='{leaving.full}'>{large}</message>")
            assert await next_message(leaving) == "c1"
            assert await next_message(leaving) == "c2"
            await front.store.run(use_free_pages)
            await front.store.run(lambda tx: tx.row("PRAGMA max_page_count = 1"))
            leaving.send("</stream:stream>")
            assert await leaving.closed() is None
            errors = [await sender.element() for _ in range(2)]
            assert [answer.get("id") for answer in errors] == ["c1", "c2"]
            assert {condition(answer) for answer in errors} == {"resource-constraint"}
            assert front.refusals.take()["returned"] == 2
            async with await front.bind_session("cam1") as second:
                assert (await second.iq("get", PING)).get("type") == "result"


async def test_a_session_is_replaced_while_the_disk_is_full(tmp_path: Path) -> None:
    async with (
        in_process(tmp_path, "cam1", "cam2") as front,
        await front.bind_session("cam2") as sender,
    ):
        client = await front.bind_session("cam1")
        await client.enable()
        client.send("<presence/>")
        sender.send(chat_message(1, "cam1@gw.example"))
        assert await next_message(client) == "c1"
        await front.store.run(use_free_pages)
        await front.store.run(lambda tx: tx.row("PRAGMA max_page_count = 1"))
        async with await front.bind_session("cam1") as second:
            assert await client.closed() == "conflict"
            sender.send(chat_message(2, client.full))
            assert await next_message(second) == "c2"
            await front.store.run(lambda tx: tx.row("PRAGMA max_page_count = 100000"))
            second.send("<presence/>")
            assert await next_message(second) == "c1"


async def test_changes_of_another_process_are_handled_although_the_store_was_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT", SHORT)
    monkeypatch.setattr(external_changes, "RETRY_INTERVAL", SHORT)
    async with in_process(tmp_path, "cam1") as front, await front.bind_session("cam1") as client:
        await front.store.run(lambda _tx: None)
        handled = asyncio.Event()
        loop = asyncio.get_running_loop()

        def handle(_context: Context, _tx: Transaction) -> None:
            loop.call_soon_threadsafe(handled.set)

        front.router.context.hooks.on_external_change.append(handle)
        devices.revoke(front.gateway.folder, "cam1")
        with front.locked():
            front.store.on_changed[0]()
            with pytest.raises(StoreBusy):
                await front.store.run(lambda _tx: None)
        assert not handled.is_set()
        assert await client.closed() == "not-authorized"
        await asyncio.wait_for(handled.wait(), WAIT_S)


async def test_a_client_that_renegotiates_before_its_certificate_is_read_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL names no certificate while the next handshake has begun."""

    def fail(transport: asyncio.BaseTransport) -> bytes | None:
        raise ValueError("handshake not done yet")

    async with in_process(tmp_path, "cam1") as front:
        with monkeypatch.context() as patch:
            patch.setattr(tls, "peer_certificate", fail)
            async with await Client.connect(front.port) as client:
                await client.start_tls(front.gateway.ca)
                with pytest.raises((Closed, ConnectionError)):
                    await client.element()
        async with await Client.connect(front.port) as client:
            await client.start_tls(front.gateway.ca)
            await client.element()


async def test_a_stanza_whose_session_ended_is_not_counted_as_handled(tmp_path: Path) -> None:
    """Its work is prepared outside of the event loop, and the session ends meanwhile."""
    request = "<iq type='get' id='r'><query xmlns='jabber:iq:roster'/></iq>"
    async with in_process(tmp_path, "cam1") as running:
        client = await running.bind_session("cam1")
        token = await client.enable()
        context = running.context
        client.send(request)
        assert (await client.stanza()).get("id") == "r"
        go_on = threading.Event()
        context.hashing.submit(go_on.wait)
        try:
            client.send(request)
            session = running.session(client.full)
            assert session is not None
            await until_offloading(session, True)
            session.end(EndReason.EVICTED)
            await client.closed()
        finally:
            go_on.set()
        await until_offloading(session, False)
        async with await running.log_in("cam1") as client:
            failed = await client.resume(token, 0)
            assert (failed.tag, failed.get("h")) == (f"{SM}failed", "1")
