"""Tests of notifying users of events, and of asking devices for capabilities, over sockets."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import Element

import pytest

from edge.server.refusal_counters import Refusal
from edge.xmpp.namespaces import EVENTLOG
from tests.helpers.gateway import PASSWORD, UNPACED, Gateway, port_of
from tests.helpers.in_process import in_process
from tests.helpers.xmpp import CLIENT, Client, condition, log_in

LOG = f"{{{EVENTLOG}}}log"
OLGA = "olga@gw.example"


def logged_event(message: Element) -> Element:
    log = message.find(LOG)
    assert log is not None
    return log


def counted(log: Element) -> str | None:
    return next(tag.get("value") for tag in log if tag.get("name") == "count")


async def refused(port: int, gateway: Gateway, times: int) -> None:
    """Let a device be refused that may not use the gateway's services."""
    async with await log_in(port, gateway.ca, "cam1", PASSWORD) as client:
        for number in range(times):
            client.send(f"<message id='m{number}' to='gw.example'><body>x</body></message>")
            assert condition(await client.element()) == "not-acceptable"


async def test_users_are_notified_at_once_or_when_they_log_in(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", "cam1", "olga", notify=[OLGA], refusal_window=0.5)
    with gateway.run() as process:
        port = port_of(process)
        await refused(port, gateway, 1)
        async with await log_in(port, gateway.ca, "olga", PASSWORD) as olga:
            olga.send("<presence/>")
            (first,) = await messages(olga, 1)
            assert first.find("{urn:xmpp:delay}delay") is not None
            assert logged_event(first).get("id") == "unreadable"
            assert logged_event(first).get("subject") == "cam1@gw.example"
            await refused(port, gateway, 5)
            found = await until_told(olga, 5)
            assert {log.get("id") for log in found} == {"unreadable"}
        assert process.terminate() == 0
    limits = [e for e in gateway.events("system") if e["kind"] == "limit"]
    assert {(e["name"], e["source"]) for e in limits} == {("unreadable", "cam1@gw.example")}
    assert sum(e["value"] for e in limits) == 6


async def until_told(client: Client, count: int) -> list[Element]:
    """Return a user's notifications until they report so many refusals."""
    found: list[Element] = []
    while sum(int(counted(log) or 0) for log in found) < count:
        found += [logged_event(message) for message in await messages(client, 1)]
    return found


async def messages(client: Client, count: int) -> list[Element]:
    found: list[Element] = []
    while len(found) < count:
        stanza = await client.stanza()
        if stanza.tag == f"{CLIENT}message":
            found.append(stanza)
    return found


PING = "<ping xmlns='urn:xmpp:ping'/>"


async def ask_much(client: Client) -> None:
    """Ask for more than may be unacknowledged, and acknowledge nothing."""
    await client.enable()
    client.send(f"<iq type='get' id='{'i' * 1000}' to='gw.example'>{PING}</iq>" * 200)
    assert await client.closed() == "resource-constraint"


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("unacknowledged_bytes", {}),
        ("unacknowledged_total_bytes", {"unacknowledged_total_bytes": 131_072}),
    ],
)
async def test_a_session_ended_for_unacknowledged_stanzas_is_notified(
    tmp_path: Path, rule: str, options: dict[str, int]
) -> None:
    async with in_process(tmp_path, "cam1", **UNPACED, **options) as front:
        async with await front.bound("cam1") as cam1:
            await ask_much(cam1)
        sources = front.refusals.take_sources()
        assert sources[Refusal("cam1@gw.example", rule)] >= 1
        assert {source for source, _rule in sources} == {"cam1@gw.example"}
