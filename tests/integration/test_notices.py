"""Tests of notifying users of events, over sockets."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import Element

import pytest

from edge.server.refusal_counters import Refusal
from edge.xmpp.namespaces import EVENTLOG
from tests.helpers.gateway import NO_RATE_LIMITS, PASSWORD, Gateway, port_of
from tests.helpers.in_process import in_process
from tests.helpers.xmpp import CLIENT, Client, condition, log_in

OLGA = "olga@gw.example"


async def next_notice(client: Client) -> tuple[Element, Element]:
    """Return a user's next message, and its log event."""
    while (message := await client.stanza()).tag != f"{CLIENT}message":
        pass
    log = message.find(f"{{{EVENTLOG}}}log")
    assert log is not None
    return message, log


async def send_refused(port: int, gateway: Gateway, times: int) -> None:
    """Let a device be refused that may not use the gateway's services."""
    async with await log_in(port, gateway.ca, "cam1", PASSWORD) as client:
        for number in range(times):
            client.send(f"<message id='m{number}' to='gw.example'><body>x</body></message>")
            assert condition(await client.element()) == "not-acceptable"


async def test_users_are_notified_at_once_or_when_they_log_in(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", "cam1", "olga", notify=[OLGA], refusal_window=0.5)
    with gateway.run() as process:
        port = port_of(process)
        await send_refused(port, gateway, 1)
        async with await log_in(port, gateway.ca, "olga", PASSWORD) as olga:
            olga.send("<presence/>")
            first, log = await next_notice(olga)
            assert first.find("{urn:xmpp:delay}delay") is not None
            assert (log.get("id"), log.get("subject")) == ("unreadable", "cam1@gw.example")
            await send_refused(port, gateway, 5)
            count = 0
            while count < 5:
                _, log = await next_notice(olga)
                assert log.get("id") == "unreadable"
                count += sum(int(tag.attrib["value"]) for tag in log if tag.get("name") == "count")
        assert process.terminate() == 0
    limits = [e for e in gateway.events("system") if e["kind"] == "limit"]
    assert {(e["name"], e["source"]) for e in limits} == {("unreadable", "cam1@gw.example")}
    assert sum(e["value"] for e in limits) == 6


PING = "<ping xmlns='urn:xmpp:ping'/>"


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("unacknowledged_bytes", {}),
        ("unacknowledged_total_bytes", {"unacknowledged_total_bytes": 131_072}),
    ],
)
async def test_refusal_names_the_account_of_unacknowledged_stanzas(
    tmp_path: Path, rule: str, options: dict[str, int]
) -> None:
    """It asks for more than may be unacknowledged, and acknowledges nothing."""
    async with in_process(tmp_path, "cam1", **NO_RATE_LIMITS, **options) as front:
        async with await front.bind_session("cam1") as cam1:
            await cam1.enable()
            cam1.send(f"<iq type='get' id='{'i' * 1000}' to='gw.example'>{PING}</iq>" * 200)
            assert await cam1.closed() == "resource-constraint"
        sources = front.refusals.take_sources()
        assert sources[Refusal("cam1@gw.example", rule)] >= 1
        assert {source for source, _rule in sources} == {"cam1@gw.example"}
