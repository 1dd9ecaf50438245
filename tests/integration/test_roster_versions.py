"""Roster versions of a running gateway (RFC 6121, section 2.6): a device caches its roster."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import Element

import pytest

from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, bind_session, port_of
from tests.helpers.slix import peer
from tests.helpers.xmpp import Client

QUERY = "{jabber:iq:roster}query"
FEATURE = "{urn:xmpp:features:rosterver}ver"
PANEL = f"panel@{DOMAIN}"


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "gateway", "panel", "pump1", "pump2", require_tls=False)


async def request(client: Client, version: str | None = None) -> Element | None:
    """Request the roster; return the query of the result, or None if the result is empty."""
    known = "" if version is None else f" ver='{version}'"
    answer = await client.iq("get", f"<query xmlns='jabber:iq:roster'{known}/>", to=None)
    assert answer.get("type") == "result"
    return answer.find(QUERY)


async def change_contact(client: Client, contact: str, attributes: str = "") -> str:
    """Change a contact of a roster that was requested; return the version that is pushed."""
    item = f"<item jid='{contact}@{DOMAIN}'{attributes}/>"
    client.send(f"<iq type='set' id='s'><query xmlns='jabber:iq:roster'>{item}</query></iq>")
    answer, push = await client.element(), await client.element()
    assert answer.get("type") == "result"
    query = push.find(QUERY)
    assert contacts(query) == [f"{contact}@{DOMAIN}"]
    return version_of(query)


def contacts(query: Element | None) -> list[str | None]:
    assert query is not None
    return [item.get("jid") for item in query]


def version_of(query: Element | None) -> str:
    assert query is not None
    assert query.get("ver")
    return query.get("ver", "")


async def test_roster_is_sent_only_if_it_has_changed(gateway: Gateway) -> None:
    with gateway.run() as process:
        async with await bind_session(process, "panel") as client:
            assert contacts(await request(client, "")) == []
            version = await change_contact(client, "pump1")
            assert await request(client, version) is None
            full = await request(client, "")
            assert contacts(full) == [f"pump1@{DOMAIN}"]
            assert version_of(full) == version
            assert version_of(await request(client)) == version
        assert process.terminate() == 0
    with gateway.run() as process:
        async with (
            await bind_session(process, "panel") as client,
            await bind_session(process, "pump1") as pump,
        ):
            assert await request(client, version) is None, "a restart has changed the version"
            pushed = await change_contact(client, "pump2", " name='P'")
            pump.send(f"<presence type='subscribe' to='{PANEL}'/>")
            await pump.iq("get", "<ping xmlns='urn:xmpp:ping'/>")  # a request changes no roster
            assert await request(client, pushed) is None
            both = [f"pump1@{DOMAIN}", f"pump2@{DOMAIN}"]
            assert contacts(await request(client, version)) == both
            removed = await change_contact(client, "pump2", " subscription='remove'")
            assert len({version, pushed, removed}) == 3
            assert await request(client, removed) is None
            gateway.command("device", "remove", "pump1", "--yes")
            assert await request(client, removed) is None
            gateway.command("device", "add", "pump1")  # a new device is in no roster
        async with await bind_session(process, "panel") as client:  # no push comes in between
            assert contacts(await request(client, removed)) == []
        assert process.terminate() == 0


async def test_a_contact_that_another_process_removes_is_pushed(gateway: Gateway) -> None:
    """Otherwise, a client would keep it in the roster of the next version that it is sent."""
    with gateway.run() as process:
        async with await bind_session(process, "panel") as client:
            await request(client)
            await change_contact(client, "pump1")
            gateway.command("device", "remove", "pump1", "--yes")
            gateway.command("device", "add", "pump1")
            query = (await client.element()).find(QUERY)
            assert contacts(query) == [f"pump1@{DOMAIN}"]
            assert query is not None
            assert query[0].get("subscription") == "remove"
            assert await request(client, version_of(query)) is None
            assert contacts(await request(client)) == []
        assert process.terminate() == 0


async def test_versions_are_advertised_and_slixmpp_uses_them(gateway: Gateway) -> None:
    with gateway.run() as process:
        async with await Client.connect(port_of(process)) as client:
            await client.element()
            await client._scram("SCRAM-SHA-256", "panel", PASSWORD)
            client.open()
            assert (await client.element()).find(FEATURE) is not None
        async with await bind_session(process, "panel") as other:
            await request(other)
            await change_contact(other, "pump1")
        at, pubsub = ("127.0.0.1", port_of(process)), f"pubsub.{DOMAIN}"
        async with peer(f"{PANEL}/fw", PASSWORD, gateway.ca, at, pubsub) as session:
            roster = session.client.client_roster
            results = [await session.client.get_roster() for _ in range(2)]
            # slixmpp adds an empty query to an empty result.
            assert [len(result.xml.findall(f"{QUERY}/*")) for result in results] == [1, 0]
            assert roster.version == results[0].xml.find(QUERY).get("ver")
            assert set(roster) == {PANEL, f"pump1@{DOMAIN}"}  # it adds itself
        assert process.terminate() == 0
