"""Tests of a component's link to a scripted server: correct, invalid, hostile and lost."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from edge.config import load
from edge.config.limits import Limits
from edge.config.options import Log
from edge.engine.dispatch.hooks import new_context
from edge.engine.sessions import sessions
from edge.engine.store import events
from edge.engine.store.database import MessageBytes, Transaction
from edge.engine.store.events import NewEvent
from edge.engine.store.group_commit import Store
from edge.errors import ConfigError
from edge.features.accounts.store import accounts
from edge.features.eventlog import service as eventlog
from edge.routing.xmpp.router import Router
from edge.server.endpoints import Endpoints
from edge.server.refusal_counters import RefusalCounters
from edge.server.server_context import ServerContext
from edge.server.xmpp.component import dispatcher
from edge.server.xmpp.component import link as link_module
from edge.server.xmpp.component.component import Component
from tests.helpers.scripted_server import HEADER, SECRET, Link, Server, serving
from tests.helpers.store import DOMAIN, new_database, opened

PUMP = "pump1@users.example/fw"
PING = "<ping xmlns='urn:xmpp:ping'/>"
COUNT = "SELECT count(*) FROM temp.sessions"


def ping(number: int, from_: str = PUMP, to: str = DOMAIN) -> str:
    return f"<iq type='get' id='p{number}' from='{from_}' to='{to}'>{PING}</iq>"


def info(number: int) -> str:
    """Return a request that has a long answer."""
    return ping(number).replace(PING, "<query xmlns='http://jabber.org/protocol/disco#info'/>")


class Site:
    """A component in this process, its warnings, and the server to which it connects."""

    def __init__(
        self, folder: Path, server: Server, limits: Limits, store: Store, host: str
    ) -> None:
        text = (
            f'gateway.domain = "{DOMAIN}"\n[xmpp]\nlisten = ""\nlisten_tls = ""\n'
            f'component = "{host}:{server.port}"\ncomponent_secret = "secret"\n'
            f"trusted_domains = {json.dumps(['trusted.example'])}\n"
        )
        settings = replace(load.parse(text.encode()), limits=limits)
        self.secret = folder / "secret"
        self.secret.write_text(SECRET)
        self.secret.chmod(0o600)
        self.warnings: asyncio.Queue[str] = asyncio.Queue()
        self.faults: list[BaseException] = []
        self.refusals = RefusalCounters()
        self.store, self.server = store, server
        store.on_logged = self._keep_lost  # as the journal does
        self.router = Router(new_context(DOMAIN, limits, settings.xmpp, accounts=False))
        warn, fail = self.warnings.put_nowait, self.faults.append
        context = ServerContext(folder, settings, store, self.router.context, self.refusals)
        assert settings.component is not None
        self.component = Component(context, self.router, settings.component, warn, fail)
        self.endpoints = Endpoints(context, [self.component])

    def _keep_lost(self, found: Iterable[NewEvent]) -> None:
        for event in found:
            if event.name == "component_lost":
                self.warnings.put_nowait(event.text or "")

    @asynccontextmanager
    async def starting(self) -> AsyncIterator[asyncio.Task[list[tuple[str, load.Address]]]]:
        task = asyncio.create_task(self.component.start())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait({task})
            await self.endpoints.stop(2)
            assert self.faults == []

    async def next_warning(self) -> str:
        return await asyncio.wait_for(self.warnings.get(), 15)

    async def sessions(self) -> int:
        return await self.store.run(lambda tx: int(tx.row(COUNT)[0]))


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
def host() -> str:
    return "127.0.0.1"


@pytest.fixture
async def site(tmp_path: Path, limits: Limits, host: str) -> AsyncIterator[Site]:
    async with serving() as server, opened(new_database(tmp_path)) as store:
        await store.run(lambda tx: accounts.add(tx, "pump1@users.example", (), trusted=True))
        yield Site(tmp_path, server, limits, store, host)


@pytest.fixture
async def link(site: Site) -> AsyncIterator[Link]:
    """Start the component, accept it, and read the probe that it sends."""
    async with site.starting() as task:
        link = await site.server.link()
        await link.accept_handshake()
        assert await task == [("component", load.Address("127.0.0.1", site.server.port))]
        assert (await link.element()).get("type") == "probe"
        yield link


async def test_stanzas_in_one_read_with_the_handshake_are_answered(site: Site) -> None:
    async with site.starting() as task:
        link = await site.server.link()
        await link.accept_handshake(ping(1))
        await task
        found = {(await link.element()).get("id"), (await link.element()).get("type")}
        assert found & {"p1", "probe"}


async def test_a_stanza_may_declare_the_component_namespace_itself(link: Link) -> None:
    request = ping(1).replace("<iq ", "<iq xmlns='jabber:component:accept' ")
    assert (await link.ask(request)).get("type") == "result"


@pytest.mark.parametrize(
    ("condition", "warnings"),
    [
        ("not-authorized", "the server refused the secret"),
        ("host-unknown", "the server has no component of this name"),
        ("conflict", "another component of this name is connected to the server"),
        ("policy-violation", "the server ended the stream: policy-violation"),
    ],
)
async def test_a_stream_error_of_the_server_is_reported(
    site: Site, condition: str, warnings: str
) -> None:
    async with site.starting():
        link = await site.server.link()
        await link.read_stream_header()
        link.send(
            f"{HEADER}<stream:error><{condition} xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>"
            "<text xmlns='urn:ietf:params:xml:ns:xmpp-streams'>its\nwords</text>"
            "</stream:error></stream:stream>"
        )
        assert f"{warnings} (its words); retrying" in await site.next_warning()


@pytest.mark.parametrize(
    ("data", "warnings"),
    [
        ("<stream:stream " + "x" * 5000, "the stream header is too long"),
        (f"{HEADER}<handshake/><message><a></message>", "the server sent invalid data"),
        (f"{HEADER}<handshake/></stream:stream>", "the server ended the stream"),
        ("no XML>" * 1000, "the stream header is too long"),
        ("<html>", "the server sent invalid data"),
        (None, "the server closed the connection"),
    ],
)
async def test_the_link_is_retried_after_invalid_data(
    site: Site, data: str | None, warnings: str
) -> None:
    async with site.starting():
        link = await site.server.link()
        await link.read_stream_header()
        if data is None:
            link.close_connection()
        else:
            link.send(data)
        assert warnings in await site.next_warning()
        second = await site.server.link()
        await second.accept_handshake()


async def test_a_silent_server_is_disconnected(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "ATTACH_TIMEOUT", 0.2)
    async with site.starting():
        await (await site.server.link()).read_stream_header()
        assert "did not accept the component within" in await site.next_warning()
        monkeypatch.setattr(link_module, "ATTACH_TIMEOUT", 15.0)
        await (await site.server.link()).accept_handshake()
        assert "attached to" in await site.next_warning()


@pytest.mark.parametrize(
    ("host", "error", "warning"),
    [
        ("server.example", socket.gaierror(socket.EAI_NONAME, "unknown"), "resolved: unknown"),
        ("a..b", UnicodeError(), "a..b is not a valid host name"),
    ],
)
async def test_an_unusable_host_name_is_reported(
    site: Site, monkeypatch: pytest.MonkeyPatch, error: Exception, warning: str
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", fail)
    async with site.starting():
        assert warning in await site.next_warning()


async def test_stanzas_with_invalid_addresses_are_counted_and_dropped(
    site: Site, link: Link
) -> None:
    link.send(
        f"<message to='{DOMAIN}'/>",
        f"<message from='{PUMP}'/>",
        f"<message from='@' to='{DOMAIN}'/>",
        ping(2, to="elsewhere.example"),
        ping(3, from_=f"a@{DOMAIN}/x"),
        "<odd xmlns='urn:odd'/>",
    )
    assert (await link.ask(ping(4))).get("id") == "p4"
    assert site.refusals.take()["component_address"] == 5


async def test_answers_come_in_order_from_the_requested_address(link: Link) -> None:
    invalid = f"<iq type='get' id='b' from='{PUMP}' to='{DOMAIN}'/>"
    link.send(*(ping(n) + invalid for n in range(20)), f"<iq type='result' from='{PUMP}' to='x'/>")
    for number in range(20):
        answer, error = await link.element(), await link.element()
        found = (answer.get("id"), answer.get("to"), answer.get("from"))
        assert found == (f"p{number}", PUMP, DOMAIN)
        assert (error.get("id"), error.get("type")) == ("b", "error")


async def test_reading_pauses_while_too_many_units_wait(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "IN_FLIGHT", 2)
    link.send(*(ping(number) for number in range(500)))
    found = [(await link.element()).get("id") for _ in range(500)]
    assert found == [f"p{number}" for number in range(500)]


@pytest.mark.parametrize("limits", [replace(Limits(), sessions=6, unauthenticated=3)])
async def test_remote_sessions_are_limited(site: Site, link: Link) -> None:
    for number in range(40):
        answer = await link.ask(ping(number, from_=f"u{number}@any.example/x"))
        assert answer.get("to") == f"u{number}@any.example/x"
        assert await site.sessions() <= 6
    for number in range(40):
        await link.ask(ping(number, from_=f"u{number}@trusted.example/x"))
    assert await site.sessions() <= 6


@pytest.mark.parametrize("limits", [replace(Limits(), sessions_per_account=3)])
async def test_one_user_takes_only_the_sessions_of_one_account(site: Site, link: Link) -> None:
    """Another user's session remains, and a further session replaces the longest silent one."""
    await link.ask(ping(0, from_="u@trusted.example/x"))
    for number in range(20):
        link.send(ping(number, from_=f"pump1@users.example/{number}"))
        while (await link.element()).get("type") == "get":
            pass  # the gateway asks older sessions whether they are connected
    assert await site.sessions() == 4
    assert site.endpoints.used()["sessions_per_account"] == 3
    found = [one.resource for one in site.component.connected_sessions(0)]
    assert found == ["x", "17", "18", "19"]


@pytest.mark.parametrize("limits", [replace(Limits(), sessions_per_account=1)])
async def test_a_session_above_the_limit_is_refused_while_no_other_is_idle(
    site: Site, link: Link
) -> None:
    """Two stanzas in one read: the second comes while the first waits for its commit."""
    link.send(ping(1) + ping(2, from_="pump1@users.example/two"))
    found = [await link.element(), await link.element()]
    (refused,) = [one for one in found if one.get("type") == "error"]
    assert (refused.get("id"), refused.get("to")) == ("p2", "pump1@users.example/two")
    assert any(child.tag.endswith("}resource-constraint") for child in refused.iter())
    assert await site.sessions() == 1
    (refusal,) = site.refusals.take_sources()
    assert (refusal.source, refusal.rule) == ("pump1@users.example", "sessions_per_account")


@pytest.mark.parametrize(
    "stanza",
    [
        "<presence from='pump1@users.example' to='gw.example' type='unsubscribed'/>",
        "<presence from='pump1@users.example' to='gw.example' type='unavailable'/>",
        f"<presence from='{PUMP}' to='gw.example' type='error'/>",
        f"<message from='{PUMP}' to='gw.example' type='error'/>",
        f"<iq from='{PUMP}' to='gw.example' type='result' id='r'/>",
        f"<iq from='{PUMP}' to='gw.example' type='error' id='r'/>",
    ],
)
async def test_an_answer_of_nobody_begins_no_session(site: Site, link: Link, stanza: str) -> None:
    link.send(stanza)
    await link.ask(ping(1, from_="pump2@users.example/fw"))
    found = [one.account for one in site.component.connected_sessions(0)]
    assert found == ["pump2@users.example"]


async def test_a_bare_address_is_no_session_of_a_device(site: Site, link: Link) -> None:
    link.send("<presence from='pump1@users.example' to='gw.example' type='probe'/>")
    assert (await link.element()).get("from") == DOMAIN
    assert site.component.connected_sessions(0) == []


async def test_unavailable_presence_ends_a_session(site: Site, link: Link) -> None:
    await link.ask(ping(1))
    link.send(f"<presence from='{PUMP}' to='{DOMAIN}' type='unavailable'/>")
    await link.ask(ping(2, from_="pump2@users.example/fw"))
    assert [one.account for one in site.component.connected_sessions(0)] == ["pump2@users.example"]
    assert await site.sessions() == 1


@pytest.mark.parametrize(
    ("answer", "remain"),
    [
        ("type='error'><error type='cancel'><service-unavailable xmlns='{}'/></error>", 1),
        ("type='error'><error type='cancel'><bad-request xmlns='{}'/></error>", 2),
        ("type='error'>", 2),
        ("type='result'><query xmlns='http://jabber.org/protocol/disco#info'/>", 2),
    ],
)
async def test_older_sessions_of_an_account_are_asked_whether_they_are_connected(
    site: Site, link: Link, answer: str, remain: int
) -> None:
    """The answer of the server or of the device decides whether the older session has ended."""
    await link.ask(ping(1))
    link.send(ping(2, from_="pump1@users.example/later"))
    query = await link.element()
    assert (query.get("to"), query[0].tag) == (
        PUMP,
        "{http://jabber.org/protocol/disco#info}query",
    )
    await link.element()
    content = answer.format("urn:ietf:params:xml:ns:xmpp-stanzas")
    link.send(f"<iq from='{PUMP}' to='{DOMAIN}' id='{query.get('id')}' {content}</iq>")
    await link.ask(ping(3, from_="pump1@users.example/later"))
    assert await site.sessions() == remain


async def test_a_lost_link_ends_all_sessions_and_is_reconnected(site: Site, link: Link) -> None:
    await link.ask(ping(1))
    assert await site.sessions() == 1
    link.close_connection()
    assert "the server closed the connection; retrying" in await site.next_warning()
    assert await site.sessions() == 0
    second = await site.server.link()
    await second.accept_handshake()
    assert "attached to" in await site.next_warning()
    assert (await second.element()).get("type") == "probe"
    assert (await second.ask(ping(2))).get("id") == "p2"


async def test_remote_users_are_notified_of_events_while_the_link_is_up(
    site: Site, link: Link
) -> None:
    event = NewEvent("system", name="heat", level="Error")

    def log_event(tx: Transaction) -> None:
        events.append(tx, events.SYSTEM, event)

    context = site.router.context
    site.store.before_commit = eventlog.notifier(context, Log(notify=["olga@users.example"]))
    await site.store.run(log_event)
    message = await link.element()
    assert (message.get("to"), message.get("from")) == ("olga@users.example", DOMAIN)
    assert message[1].get("id") == "heat"
    link.close_connection()
    await site.next_warning()
    await site.store.run(log_event)
    assert site.refusals.take()["component_unsent"] >= 1


@pytest.mark.parametrize(
    ("limits", "limit"),
    [(Limits(), 1), (replace(Limits(), stalled_time=0.2), link_module.UNSENT_BYTES)],
    ids=["bytes", "time"],
)
async def test_a_server_that_does_not_read_is_disconnected(
    site: Site, link: Link, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(link_module, "UNSENT_BYTES", limit)
    link.pause_reading()
    link.send(*(info(number) for number in range(10_000)))
    assert "the server does not read" in await site.next_warning()


async def test_a_store_error_is_answered_as_temporary(site: Site, link: Link) -> None:
    await site.store.close()
    answer = await link.ask(ping(1))
    assert answer.get("type") == "error"
    assert answer[0].get("type") == "wait"
    assert site.refusals.take()["database"] > 0


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff"])
async def test_an_unreadable_secret_is_a_configuration_error(
    site: Site, content: bytes | None
) -> None:
    site.secret.unlink()
    if content is not None:
        site.secret.write_bytes(content)
    with pytest.raises(ConfigError, match=r"xmpp\.component_secret"):
        await site.component.start()
    await site.endpoints.stop(1)


async def test_stanzas_of_a_unit_reach_only_connected_peers(site: Site, link: Link) -> None:
    await link.ask(ping(1))

    def unit(tx: Transaction) -> None:
        session = sessions.find(tx, PUMP)
        assert session is not None
        generation = session.generation
        tx.send(generation, MessageBytes(f"<message from='{DOMAIN}' to='{PUMP}' id='s'/>".encode()))
        tx.send(generation + 99, MessageBytes(b"<message id='lost'/>"))

    await site.store.run(unit)
    assert (await link.element()).get("id") == "s"
