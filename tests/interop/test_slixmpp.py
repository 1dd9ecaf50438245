"""slixmpp's own client, by each SCRAM that is offered: disco, ping, an assured exchange."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from slixmpp import ClientXMPP
from slixmpp.xmlstream import ET

from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.helpers.processes import Process

QOS = "urn:xmpp:qos"
LOG = (
    "<log xmlns='urn:xmpp:eventlog' id='Entered' timestamp='2024-02-29T12:00:00Z'>"
    "<message>Door 7.</message><tag name='n' value='1'/></log>"
)
ASSURED = (
    f"<assured xmlns='{QOS}' msgId='a1'><message xmlns='jabber:client'>{LOG}</message></assured>"
)
DELIVER = f"<deliver xmlns='{QOS}' msgId='a1'/>"
DEVICES = {"SCRAM-SHA-256": "cam1", "SCRAM-SHA-1": "cam2"}
WAIT_S = 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    return Gateway(tmp_path_factory.mktemp("gateway") / "gw", *DEVICES.values())


@pytest.fixture(scope="module")
def running(folder: Gateway) -> Iterator[Process]:
    with folder.run() as process:
        yield process


@asynccontextmanager
async def session(gateway: Gateway, port: int, mechanism: str) -> AsyncIterator[Any]:
    """A session that is bound, over STARTTLS, with the gateway's certificate verified."""
    context = ssl.create_default_context(cafile=gateway.ca)
    jid = f"{DEVICES[mechanism]}@{DOMAIN}/fw"
    client: Any = ClientXMPP(jid, PASSWORD, sasl_mech=mechanism, ssl_context=context)
    client.enable_direct_tls = False
    client.enable_plaintext = False
    client.register_plugin("xep_0030")
    client.register_plugin("xep_0199")
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(why: Any) -> None:
        if not ready.done():
            ready.set_exception(AssertionError(f"no session: {why}"))

    client.add_event_handler("session_start", lambda _: ready.set_result(None))
    for name in ("failed_all_auth", "ssl_invalid_chain", "stream_error", "disconnected"):
        client.add_event_handler(name, fail)
    client.connect("127.0.0.1", port)
    try:
        await asyncio.wait_for(ready, WAIT_S)
        yield client
    finally:
        await client.disconnect()


async def ask(client: Any, xml: str) -> list[str]:
    """Send a request to the gateway; returns the names of what the result holds."""
    iq = client.Iq()
    iq["type"], iq["to"] = "set", DOMAIN
    iq.append(ET.fromstring(xml))
    result = await iq.send(timeout=WAIT_S)
    return [child.tag for child in result.xml]


@pytest.mark.parametrize("mechanism", list(DEVICES))
async def test_an_assured_exchange_by_slixmpp_ends_in_one_event(
    folder: Gateway, running: Process, mechanism: str
) -> None:
    async with session(folder, port_of(running), mechanism) as client:
        assert client.plugin["feature_mechanisms"].mech.name == mechanism
        assert {"starttls", "mechanisms"} <= set(client.features)
        assert client.boundjid.full == f"{DEVICES[mechanism]}@{DOMAIN}/fw"
        info = await client.plugin["xep_0030"].get_info(jid=DOMAIN, timeout=WAIT_S)
        assert {QOS, "urn:xmpp:ping"} <= set(info["disco_info"]["features"])
        assert await client.plugin["xep_0199"].send_ping(DOMAIN, timeout=WAIT_S)
        for _ in range(2):
            assert await ask(client, ASSURED) == [f"{{{QOS}}}received"]
        for _ in range(2):
            assert await ask(client, DELIVER) == []
    source = f"{DEVICES[mechanism]}@{DOMAIN}/fw"
    [event] = [event for event in folder.events() if event["source"] == source]
    assert (event["lane"], event["kind"], event["qos"]) == ("logs", "log", 2)
    assert (event["name"], event["text"], event["tags"]["n"]) == ("Entered", "Door 7.", "1")
