"""Scenarios that run on a gateway as a server, with and without front processes, and as a component
of Prosody."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import prosody
from tests.helpers.gateway import DOMAIN, PASSWORD
from tests.helpers.prosody import Prosody
from tests.helpers.sites import TRUSTED, UNTRUSTED, ComponentSite, ServerSite, Site
from tests.helpers.xmpp import Client, condition, log_message

INFO = "<query xmlns='http://jabber.org/protocol/disco#info'/>"
PING = "<ping xmlns='urn:xmpp:ping'/>"
LOG = "<log xmlns='urn:xmpp:eventlog'><message>plain</message></log>"
READINGS = (
    "<message xmlns='jabber:client'><fields xmlns='urn:xmpp:iot:sensordata' seqnr='1' done='true'>"
    "<node nodeId='boiler'><timestamp value='2026-01-02T03:04:05Z'>"
    "<numeric name='temperature' value='61.5' unit='C' momentary='true'/>"
    "<boolean name='burning' value='true'/></timestamp></node></fields></message>"
)
MALFORMED = (
    "<assured xmlns='urn:xmpp:qos'><message xmlns='jabber:client'/></assured>",
    "<assured xmlns='urn:xmpp:qos' msgId='m'/>",
    f"<assured xmlns='urn:xmpp:qos' msgId='m'>{log_message(1)}{log_message(2)}</assured>",
    "<deliver xmlns='urn:xmpp:qos'/>",
)
"""One for each trusted device, so that each has an event of its own."""
SIMULATED_S = 240


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prosody]:
    if prosody.PROGRAM is None:
        pytest.skip("no prosody (make interop-packages)")
    with Prosody(tmp_path_factory.mktemp("prosody") / "p", DOMAIN, *TRUSTED, UNTRUSTED) as running:
        yield running


@pytest.fixture(
    scope="module",
    params=["embedded", pytest.param("with fronts", marks=pytest.mark.long), "behind a server"],
)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    new_site: Site
    if request.param == "behind a server":
        new_site = ComponentSite(folder, request.getfixturevalue("server"))
    else:
        new_site = ServerSite(folder, fronts=2 if request.param == "with fronts" else 0)
    new_site.start()
    try:
        yield new_site
    finally:
        new_site.close()


@pytest.fixture
def site(running: Site) -> Site:
    """Return a running site that shows only the events from now on."""
    running.skip_earlier_events()
    return running


def logged(site: Site, user: str) -> list[tuple[str, int]]:
    return [(event["text"], event["qos"]) for event in site.events("logs", user)]


async def test_a_device_discovers_the_features_of_the_gateway(site: Site) -> None:
    async with await site.log_in("pump1") as client:
        info = await client.iq("get", INFO)
        features = {child.get("var") for child in info[0]}
        assert {"urn:xmpp:qos", "urn:xmpp:eventlog", "urn:xmpp:iot:sensordata"} <= features
        assert (await client.iq("get", PING)).get("type") == "result"


async def test_a_log_of_each_level_is_one_event(site: Site) -> None:
    async with await site.log_in("pump1") as client:
        client.send(f"<message to='{DOMAIN}'>{LOG}</message>")
        once = f"<acknowledged xmlns='urn:xmpp:qos'>{log_message(1, 'once')}</acknowledged>"
        assert (await client.iq("set", once)).get("type") == "result"
        for _ in range(3):
            assert await client.assured("level", log_message(2, "sure")) == "received"
        for _ in range(3):
            assert await client.deliver("level") == "delivered"
    assert logged(site, "pump1") == [("plain", 0), ("once.", 1), ("sure.", 2)]


async def test_readings_become_events(site: Site) -> None:
    async with await site.log_in("pump1") as client:
        assert await client.assured("r", READINGS) == "received"
        assert await client.deliver("r") == "delivered"
    found = [(e["name"], e["value"], e["unit"]) for e in site.events("readings", "pump1")]
    assert found == [("temperature", 61.5, "C"), ("burning", 1.0, None)]


async def test_an_exchange_goes_on_after_its_connection_was_cut(site: Site) -> None:
    for number in range(3):
        async with await site.log_in("pump1") as client:
            assert await client.assured(f"m{number}", log_message(number)) == "received"
            client.cut()
        async with await site.log_in("pump1") as client:
            assert await client.assured(f"m{number}", log_message(number)) == "received"
            assert await client.deliver(f"m{number}") == "delivered"
            client.cut()
        async with await site.log_in("pump1") as client:
            assert await client.deliver(f"m{number}") == "delivered"
    assert [event["tags"]["n"] for event in site.events("logs", "pump1")] == ["0", "1", "2"]


async def test_an_exchange_goes_on_after_the_gateway_was_killed(site: Site) -> None:
    async def once(step: Callable[[Client], Any]) -> None:
        async with await site.log_in("pump1") as client:
            await step(client)
        site.kill()
        site.start()

    async def offer(client: Client) -> None:
        assert await client.assured("kill", log_message(7)) == "received"

    async def deliver(client: Client) -> None:
        assert await client.deliver("kill") == "delivered"

    for step in (offer, offer, deliver, deliver):
        await once(step)
    assert [event["tags"]["n"] for event in site.events("logs", "pump1")] == ["7"]


async def test_untrusted_devices_are_refused_and_logged(site: Site) -> None:
    async with await site.log_in(UNTRUSTED) as client:
        assert await client.assured("m", log_message(1)) == "not-allowed"
        client.send(f"<message to='{DOMAIN}'>{LOG}</message>")
        assert condition(await client.element()) == "not-allowed"
        assert await client.deliver("m") == "item-not-found"
    rules = {event["name"] for event in site.events("system", UNTRUSTED)}
    assert "untrusted" in rules
    assert logged(site, UNTRUSTED) == []


async def test_malformed_requests_are_refused_and_logged(site: Site) -> None:
    for user, payload in zip(TRUSTED, MALFORMED, strict=True):
        async with await site.log_in(user) as client:
            assert condition(await client.iq("set", payload)) == "bad-request"
            assert (await client.iq("get", PING)).get("type") == "result"
        assert "malformed" in {event["name"] for event in site.events("system", user)}


async def test_offers_over_a_limit_are_refused_until_a_delivery(site: Site) -> None:
    async with await site.log_in("pump3") as client, await site.log_in("pump4") as other:
        for number in range(4):
            assert await client.assured(f"m{number}", log_message(number)) == "received"
        assert await client.assured("m4", log_message(4)) == "resource-constraint"
        assert await other.assured("m4", log_message(4)) == "received"
        assert await client.deliver("m0") == "delivered"
        assert await client.assured("m4", log_message(4)) == "received"
        for number in range(1, 5):
            assert await client.deliver(f"m{number}") == "delivered"
        assert await other.deliver("m4") == "delivered"
    rules = {event["name"] for event in site.events("system", "pump3")}
    assert "held_messages_per_source" in rules


def test_devices_that_fail_all_the_time_lose_nothing(site: Site, tmp_path: Path) -> None:
    names = tmp_path / "accounts.json"
    names.write_text(json.dumps(dict.fromkeys(TRUSTED, PASSWORD)))
    words = ["--accounts", str(names), "--devices", str(len(TRUSTED)), "--messages", "15"]
    words += ["--faults", "0.3", "--seconds", "3", "--retry-base", "0.5", "--json"]
    done = subprocess.run(
        [*site.simulator(), *words, "--state", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=SIMULATED_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["exact"] is True
    assert verdict["logged"] == verdict["delivered"] == 15 * len(TRUSTED)
