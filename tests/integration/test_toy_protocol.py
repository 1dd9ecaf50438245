"""Another protocol beside XMPP: both share custody, outbox, nodes and shares (`tests.toy`)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from edge.config.options import Readings
from tests.helpers.gateway import DOMAIN, NO_RATE_LIMITS
from tests.helpers.in_process import InProcessGateway, in_process
from tests.helpers.live_workers import Worker, present, publish, take_message, take_several
from tests.helpers.pubsub import EVENT, element, form, options
from tests.helpers.shared_subscriptions import NODE
from tests.toy.client import SERVICE, WAIT_S, ToyClient
from tests.toy.listener import ToyListener

AT_NODE = f"{SERVICE}/{NODE}"
SHARE = "$share/pool/plant/#"
CONTENT = "{urn:x-fieldpost:content}"
ITEM = f".//{{{EVENT}}}item"
NAMES = ("engine", "ant", "bee")
CAPACITY = 10
"""The number of items that a member is assigned at a time (`subscription.DEFAULT_REQUESTS`)."""

LEVELS = pytest.mark.parametrize("qos", [0, 1, 2])


class Protocols(NamedTuple):
    """A gateway with a listener of each protocol, and an XMPP client that has created the node."""

    gateway: InProcessGateway
    toy: tuple[str, int]
    engine: Worker

    async def begin(self, name: str, client: str = "toy", seconds: int = 0) -> ToyClient:
        return await ToyClient.begin(self.toy, name, client, seconds)


@asynccontextmanager
async def protocols(folder: Path) -> AsyncIterator[Protocols]:
    async with in_process(folder, *NAMES, **NO_RATE_LIMITS) as gateway:
        toy = ToyListener(gateway.context)
        ((_, address),) = await toy.start()
        async with present(gateway.port, "engine") as (engine,):
            anyone = form("node_config", {"publish_model": "open"})
            await engine.ask(element("create", node=NODE) + element("configure", anyone))
            try:
                yield Protocols(gateway, (address.host, address.port), engine)
            finally:
                toy.stop_accepting()
                await toy.close(WAIT_S)


@LEVELS
@pytest.mark.parametrize(
    ("content_type", "payload", "tag", "text"),
    [
        ("application/json", b'{"t": 21.5}', "{urn:xmpp:json:0}json", '{"t": 21.5}'),
        ("text/plain", "21.5 °C".encode(), f"{CONTENT}text", "21.5 °C"),
        ("image/png", b"\0\xff", f"{CONTENT}data", b64encode(b"\0\xff").decode()),
    ],
)
async def test_xmpp_subscribers_get_what_the_toy_publishes(
    tmp_path: Path, qos: int, content_type: str, payload: bytes, tag: str, text: str
) -> None:
    async with protocols(tmp_path) as (gateway, toy, engine):
        bare = engine.client.full.partition("/")[0]
        await engine.ask(element("subscribe", node=NODE, jid=bare) + options(qos="2"))
        async with await ToyClient.begin(toy, "ant") as ant:
            if qos == 2:
                await ant.publish(1, AT_NODE, content_type, payload)
            else:
                ant.send("publish", 1, qos, AT_NODE, content_type, payload)
            if qos == 1:
                assert await ant.line() == ["acknowledged", "1"]
        message = await take_message(engine) if qos else await engine.client.stanza()
        assert message.findtext(f"{ITEM}/{tag}") == text
        assert gateway.context.store.waiting.units == 0


@LEVELS
async def test_the_toy_gets_what_xmpp_publishes(tmp_path: Path, qos: int) -> None:
    async with protocols(tmp_path) as running, await running.begin("ant") as ant:
        assert await ant.ask("subscribe", "plant/#", qos) == ["subscribed", "plant/#"]
        await publish(running.engine, "i1")
        payload = "<v xmlns='urn:v'/>"
        assert await ant.take() == [str(qos), AT_NODE, "", payload]
        assert await ant.ask("unsubscribe", "plant/#") == ["unsubscribed", "plant/#"]
        await publish(running.engine, "i2")
        assert await ant.ask("subscribe", "other/#", qos) == ["subscribed", "other/#"]


@LEVELS
async def test_subscribers_of_both_protocols_get_the_level_of_the_publication(
    tmp_path: Path, qos: int
) -> None:
    async with (
        protocols(tmp_path) as running,
        await running.begin("ant") as ant,
        await running.begin("bee") as bee,
    ):
        await bee.ask("subscribe", NODE, 2)
        ant.send("publish", 1, qos, AT_NODE, "text/plain", "21.5")
        if qos:
            await ant.line()
        if qos == 2:
            await ant.ask("release", 1)
        assert await bee.take() == [str(qos), AT_NODE, "text/plain", "21.5"]


async def test_one_share_has_members_of_both_protocols(tmp_path: Path) -> None:
    """Each gets items of publishers of both protocols, and no item goes to both."""
    async with (
        protocols(tmp_path) as running,
        present(running.gateway.port, "bee") as (bee,),
        await running.begin("ant") as ant,
        await running.begin("engine") as publisher,
    ):
        await bee.join(2, SHARE)
        await bee.expect_nothing()  # it answers which features it has
        assert await ant.ask("subscribe", SHARE, 2) == ["subscribed", SHARE]
        for number in range(CAPACITY):
            await publish(running.engine, f"x{number}")
            await publisher.publish(1, AT_NODE, "text/plain", f"t{number}")
        taken = [(await ant.take())[-1] for _ in range(CAPACITY)]
        for message in await take_several(bee, CAPACITY):
            item = message.find(ITEM)
            assert item is not None
            taken.append(item.findtext(f"{CONTENT}text") or item.get("id") or "")
        assert len(taken) == 2 * CAPACITY
        assert {text for text in taken if text.startswith("t")} == {
            f"t{n}" for n in range(CAPACITY)
        }
        await bee.expect_nothing()
        assert await ant.ask("unsubscribe", SHARE) == ["unsubscribed", SHARE]


async def test_accounts_get_messages_of_the_other_protocol(tmp_path: Path) -> None:
    async with protocols(tmp_path) as running, await running.begin("ant") as ant:
        engine = running.engine
        engine_bare = engine.client.full.partition("/")[0]
        await ant.publish(1, engine_bare, "application/json", '{"t": 1}')
        message = await take_message(engine)
        assert message.get("from") == f"ant@{DOMAIN}/toy"
        assert message.findtext("{urn:xmpp:json:0}json") == '{"t": 1}'
        qos = "<assured xmlns='urn:xmpp:qos' msgId='m1'><message><body>2</body></message></assured>"
        deliver = "<deliver xmlns='urn:xmpp:qos' msgId='m1'/>"
        for payload in (qos, deliver):
            answer = await engine.client.iq("set", payload, f"ant@{DOMAIN}")
            assert answer.get("type") == "result"
        level, sender, content_type, body = await ant.take()
        assert (level, sender, content_type) == ("2", engine.client.full, "")
        assert "<body>2</body>" in body


async def test_equal_ids_of_two_clients_are_two_messages(tmp_path: Path) -> None:
    async with (
        protocols(tmp_path) as running,
        await running.begin("ant", "one") as one,
        await running.begin("ant", "two") as two,
    ):
        message = "publish", 1, 2, DOMAIN, "application/json", '{"t": 21.5}'
        for client in (one, two, one):
            assert await client.ask(*message) == ["received", "1"]
        for client in (one, two, one):
            assert await client.ask("release", 1) == ["completed", "1"]
        assert len(list(running.gateway.gateway.events("readings"))) == 2
        assert await one.ask("release", 2) == ["refused", "release", "2", "NOT_HELD"]


async def test_a_rule_logs_readings_of_each_level_and_delivers_what_it_cannot_read(
    tmp_path: Path,
) -> None:
    async with protocols(tmp_path) as running, await running.begin("ant") as ant:
        rule = Readings(filter=NODE, name="%2", unit="Cel")
        running.gateway.context.settings.readings.append(rule)
        engine = running.engine
        bare = engine.client.full.partition("/")[0]
        await engine.ask(element("subscribe", node=NODE, jid=bare) + options(qos="2"))
        ant.send("publish", 0, 0, AT_NODE, "text/plain", "20.5")
        messages = [await engine.client.stanza()]
        done = await ant.ask("publish", 1, 1, AT_NODE, "application/octet-stream", "21.5")
        assert done == ["acknowledged", "1"]
        messages.append(await take_message(engine))
        for id, payload in ((2, "22.5"), (3, "warm")):
            await ant.publish(id, AT_NODE, "text/plain", payload)
            messages.append(await take_message(engine))
        texts = [message.findtext(f"{ITEM}/{CONTENT}text") for message in messages]
        assert texts == ["20.5", None, "22.5", "warm"]
        found = running.gateway.gateway.events("readings")
        assert [(one["name"], one["value"], one["unit"], one["qos"]) for one in found] == [
            (NODE.split("/")[1], 20.5 + level, "Cel", level) for level in (0, 1, 2)
        ]
        (event,) = (
            one for one in running.gateway.gateway.events("system") if one["name"] == "unlogged"
        )
        assert event["text"].startswith(f"{NODE}: invalid JSON")


async def test_a_durable_session_gets_what_was_published_while_it_was_away(tmp_path: Path) -> None:
    async with protocols(tmp_path) as running:
        for seconds, resumed in ((0, False), (3600, False), (3600, True)):
            async with await running.begin("ant", "kept", seconds) as ant:
                assert ant.is_resumed is resumed
                if resumed:
                    assert (await ant.take())[1:] == [AT_NODE, "", "<v xmlns='urn:v'/>"]
                await ant.ask("subscribe", NODE, 1)
            await publish(running.engine, f"i{seconds}")


@pytest.mark.parametrize(
    ("line", "refusal"),
    [
        (["dance"], ["malformed"]),
        (["publish", "1", "x", DOMAIN, "", ""], ["malformed"]),
        (["acknowledged", "x"], ["malformed"]),
        (["publish", "1", "1", f"{SERVICE}/none", "", "x"], ["NODE_NOT_FOUND"]),
        (["publish", "1", "0", f"{SERVICE}/none", "", "x"], ["no_destination"]),
        (["publish", "1", "2", f"nobody@{DOMAIN}", "", "x"], ["NO_ACCOUNT"]),
        (["publish", "1", "2", "ant@elsewhere.example", "", "x"], ["REMOTE_DOMAIN"]),
        (["subscribe", "none", "1"], ["NODE_NOT_FOUND"]),
        (["subscribe", "a/#/b", "1"], ["INVALID_FILTER"]),
    ],
)
async def test_refusals_name_their_reason(
    tmp_path: Path, line: list[str], refusal: list[str]
) -> None:
    async with protocols(tmp_path) as running, await running.begin("ant") as ant:
        answer = await ant.ask(*line)
        assert answer[0] == "refused"
        assert answer[1] == line[0]
        assert answer[-1:] == refusal
