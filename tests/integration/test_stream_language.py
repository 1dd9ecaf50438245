"""The language of a stream holds for its stanzas that give none (RFC 6120, section 8.1.5)."""

from __future__ import annotations

from xml.etree.ElementTree import Element

import pytest

from tests.helpers.gateway import PASSWORD, Gateway
from tests.helpers.xmpp import Client, log_in

LANG = "{http://www.w3.org/XML/1998/namespace}lang"
QOS = "urn:xmpp:qos"
BODY = "<body>auf</body>"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    return Gateway(tmp_path_factory.mktemp("gw") / "gateway", "pump1", "valve1")


async def german(gateway: Gateway, port: int) -> Client:
    """Log in with streams in German."""
    client = await Client.connect(port)
    client.more = " xml:lang='de'"
    await client.start_tls(gateway.ca)
    await client.element()
    await client.authenticate("PLAIN", "pump1", PASSWORD)
    await client.bind("fw")
    return client


async def stanza(client: Client, tag: str) -> Element:
    while (found := await client.element()).tag != f"{{jabber:client}}{tag}":
        pass
    return found


async def test_recipients_learn_the_language_of_the_stream(gateway: Gateway, port: int) -> None:
    async with (
        await german(gateway, port) as pump,
        await log_in(port, gateway.ca, "valve1", PASSWORD) as valve,
    ):
        to = "valve1@gw.example/fw"
        pump.send(f"<message to='{to}'>{BODY}</message>")
        pump.send(f"<message to='{to}' xml:lang='fr'>{BODY}</message>")
        assert [(await stanza(valve, "message")).get(LANG) for _ in range(2)] == ["de", "fr"]
        pump.send(f"<presence to='{to}'/>")
        assert (await stanza(valve, "presence")).get(LANG) == "de"
        pump.send(f"<iq type='get' id='i' to='{to}'><ping xmlns='urn:xmpp:ping'/></iq>")
        assert (await stanza(valve, "iq")).get(LANG) == "de"
        valve.send("<message to='pump1@gw.example/fw'><body>open</body></message>")
        assert (await stanza(pump, "message")).get(LANG) is None


async def test_custody_keeps_the_language_of_the_stream(gateway: Gateway, port: int) -> None:
    message = f"<message xmlns='jabber:client'>{BODY}</message>"
    async with await german(gateway, port) as pump:
        for payload in (
            f"<assured xmlns='{QOS}' msgId='m1'>{message}</assured>",
            f"<deliver xmlns='{QOS}' msgId='m1'/>",
            f"<acknowledged xmlns='{QOS}'>{message}</acknowledged>",
        ):
            assert (await pump.iq("set", payload, "valve1@gw.example")).get("type") == "result"
    async with await log_in(port, gateway.ca, "valve1", PASSWORD) as valve:
        valve.send("<presence/>")
        languages: list[str | None] = []
        while len(languages) < 2:
            iq = await stanza(valve, "iq")
            name = iq[0].tag.rpartition("}")[2]
            answer = ""
            if name == "query":
                answer = f"<query xmlns='{iq[0].tag[1:].partition('}')[0]}'>"
                answer += f"<feature var='{QOS}'/></query>"
            elif name == "assured":
                answer = f"<received xmlns='{QOS}' msgId='{iq[0].get('msgId')}'/>"
            if name in ("assured", "acknowledged"):
                languages.append(iq[0][0].get(LANG))
            valve.send(f"<iq type='result' id='{iq.get('id')}' to='{iq.get('from')}'>{answer}</iq>")
        assert languages == ["de", "de"]


async def test_a_repeated_offer_in_another_language_is_the_same(
    gateway: Gateway, port: int
) -> None:
    offer = f"<assured xmlns='{QOS}' msgId='m2'><message xmlns='jabber:client'>{BODY}</message>"
    async with await german(gateway, port) as pump:
        first = await pump.iq("set", f"{offer}</assured>", "valve1@gw.example")
    async with await log_in(port, gateway.ca, "pump1", PASSWORD) as pump:
        second = await pump.iq("set", f"{offer}</assured>", "valve1@gw.example")
    assert [first.get("type"), second.get("type")] == ["result", "result"]
