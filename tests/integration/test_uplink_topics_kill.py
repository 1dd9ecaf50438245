"""Items published to uplink topics are logged exactly once, even if the gateway is killed."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of
from tests.helpers.guide_examples import run_example
from tests.helpers.xmpp import CLIENT, Client, condition, log_in

PUBSUB = "http://jabber.org/protocol/pubsub"
PUMP = f"pump1@{DOMAIN}/fw"
OPTIONS = {"topics": ["plant/#"], "auto_create": ["plant/#", "other"]}


def container(text: str) -> str:
    return f"<json xmlns='urn:xmpp:json:0'>{text}</json>"


def readings(gateway: Gateway) -> list[tuple[str, float | None, str | None, int | None]]:
    """Return the logged readings of the pump: name, value, topic and QoS."""
    found = list(gateway.events("readings"))
    assert {(event["kind"], event["source"]) for event in found} <= {("reading", PUMP)}
    return [(e["name"], e.get("value"), e.get("topic"), e.get("qos")) for e in found]


async def publish(client: Client, node: str, payload: str) -> str:
    """Publish an item by iq; return `result` or the condition of the error."""
    item = f"<publish node='{node}'><item id='i1'>{payload}</item></publish>"
    request = f"<pubsub xmlns='{PUBSUB}'>{item}</pubsub>"
    client.send(f"<iq type='set' id='p' to='pubsub.{DOMAIN}'>{request}</iq>")
    answer = await client.element()
    return "result" if answer.get("type") == "result" else condition(answer)


async def assured(client: Client, to: str, content: str, *, step: str = "assured") -> str | None:
    """Offer a message or request its delivery; return the type of the answer."""
    inner = f"<message xmlns='jabber:client'>{content}</message>" if step == "assured" else ""
    request = f"<{step} xmlns='urn:xmpp:qos' msgId='m1'>{inner}</{step}>"
    client.send(f"<iq type='set' id='a' to='{to}'>{request}</iq>")
    return (await client.element()).get("type")


async def test_published_readings_are_logged_once_and_survive_a_kill(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", "pump1", **OPTIONS)
    node = f"pubsub.{DOMAIN}/plant/boiler"
    with gateway.run() as process:
        async with await log_in(port_of(process), gateway.ca, "pump1", PASSWORD, "fw") as pump:
            assert await publish(pump, "plant/boiler", container('{"a": 1}')) == "result"
            assert await publish(pump, "plant/boiler", container('{"a": NaN}')) == "bad-request"
            assert await publish(pump, "other", container('{"a": 2}')) == "result"
            pack = container('[{"n": "b", "u": "Cel", "v": 3}]')
            for _ in range(2):  # the second is a repeat
                assert await assured(pump, node, pack) == "result"
            for _ in range(2):
                assert await assured(pump, node, "", step="deliver") == "result"
        process.kill9()
    expected = [("a", 1.0, "plant/boiler", None), ("b", 3.0, "plant/boiler", 2)]
    assert readings(gateway) == expected
    with gateway.run() as process:
        async with await log_in(port_of(process), gateway.ca, "pump1", PASSWORD, "fw") as pump:
            assert await assured(pump, node, "", step="deliver") == "result"
            last = container('{"c": true}')
            pump.send(f"<message to='{DOMAIN}'>{last}</message>")
            items = f"<pubsub xmlns='{PUBSUB}'><items node='plant/boiler'/></pubsub>"
            pump.send(f"<iq type='get' id='i' to='pubsub.{DOMAIN}'>{items}</iq>")
            answer = await pump.element()
            assert answer.tag == f"{CLIENT}iq"
            assert len(list(answer.iter(f"{{{PUBSUB}}}item"))) == 2
        assert process.terminate() == 0
    assert readings(gateway) == [*expected, ("c", 1.0, None, 0)]


def test_the_documented_example_runs(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", "pump1", **OPTIONS)
    with gateway.run() as process:
        words = [PUMP, "127.0.0.1", port_of(process), gateway.ca, tmp_path / "outbox"]
        run_example("urn:xmpp:json:0", tmp_path, *words)
    found = list(gateway.events("readings"))
    assert [(e["name"], e["value"], e.get("unit"), e["topic"], e["tags"]) for e in found] == [
        ("boiler1:temp", 71.5, "Cel", "plant/boiler1", {"timestamp": "2024-02-29T12:00:00Z"}),
        ("boiler1:flow", 0.3, "l/s", "plant/boiler1", {"timestamp": "2024-02-29T12:00:00Z"}),
        ("pump.watts", 1450.0, None, "plant/pump1", {}),
        ("pump.running", 1.0, None, "plant/pump1", {}),
    ]
