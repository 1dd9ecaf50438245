"""One greedy account fills the queues of a running gateway, and a modest one still publishes."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.gateway import NO_RATE_LIMITS, PASSWORD, Gateway, port_of
from tests.helpers.xmpp import Client

SERVICE = "pubsub.gw.example"
PUBSUB = "http://jabber.org/protocol/pubsub"
QUEUEING = (
    "<configure><x xmlns='jabber:x:data' type='submit'>"
    "<field var='FORM_TYPE'><value>http://jabber.org/protocol/pubsub#node_config</value></field>"
    "<field var='pubsub#queueing'><value>1</value></field></x></configure>"
)


async def publish(client: Client, node: str, number: int) -> str | None:
    item = f"<item id='i{number}'><v xmlns='urn:v'>open valve</v></item>"
    payload = f"<pubsub xmlns='{PUBSUB}'><publish node='{node}'>{item}</publish></pubsub>"
    return (await client.iq("set", payload, SERVICE)).get("type")


async def test_a_greedy_account_leaves_room_in_the_queues(tmp_path: Path) -> None:
    limits = {
        "queue_items": 40,
        "queue_items_per_source": 16,
        "items_per_queue": 40,
        **NO_RATE_LIMITS,
    }
    gateway = Gateway(tmp_path / "gateway", "greedy", "modest", **limits)
    with gateway.run() as process:
        counts = {}
        for user in ("greedy", "modest"):
            async with await Client.connect(port_of(process)) as client:
                await client.start_tls(gateway.ca)
                await client.element()
                assert await client.authenticate("SCRAM-SHA-256", user, PASSWORD) == "success"
                await client.bind("fw")
                for node in (f"{user}/a", f"{user}/b"):
                    create = f"<create node='{node}'/>{QUEUEING}"
                    request = f"<pubsub xmlns='{PUBSUB}'>{create}</pubsub>"
                    assert (await client.iq("set", request, SERVICE)).get("type") == "result"
                answers = [
                    await publish(client, f"{user}/{'ab'[number % 2]}", number)
                    for number in range(20 if user == "greedy" else 10)
                ]
                counts[user] = answers.count("result")
        assert process.terminate() == 0
    assert counts == {"greedy": 16, "modest": 10}
    assert {e["source"] for e in gateway.events("system") if e["name"] == "queue_items_per_source"}
