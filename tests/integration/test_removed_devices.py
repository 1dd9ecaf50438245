"""A device that is added under the name of a removed one has none of its rights."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, bind_session
from tests.helpers.xmpp import Client, condition

SERVICE = f"pubsub.{DOMAIN}"
PUBSUB = "http://jabber.org/protocol/pubsub"
LOG = "<message><log xmlns='urn:xmpp:eventlog'><message>x</message></log></message>"


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "gateway", "valve", "pump1", require_tls=False)


async def ask(client: Client, content: str, ns: str = PUBSUB) -> str:
    """Send a request to the publish-subscribe service; return the condition of a refusal."""
    answer = await client.iq("set", f"<pubsub xmlns='{ns}'>{content}</pubsub>", to=SERVICE)
    return condition(answer) or "" if answer.get("type") == "error" else "result"


def publishing(node: str) -> str:
    item = "<item id='x'><value xmlns='urn:example:x'/></item>"
    return f"<publish node='{node}'>{item}</publish>"


def retracting(node: str) -> str:
    return f"<retract node='{node}'><item id='x'/></retract>"


async def create_and_publish(valve: Client, pump: Client) -> None:
    """Let the pump own a node, publish to a node of the valve, and offer and release messages."""
    open_ = "<field var='pubsub#publish_model'><value>open</value></field>"
    form = f"<configure><x xmlns='jabber:x:data' type='submit'>{open_}</x></configure>"
    assert await ask(valve, f"<create node='ours'/>{form}") == "result"
    assert await ask(pump, "<create node='mine'/>") == "result"
    for node in ("ours", "mine"):
        assert await ask(pump, publishing(node)) == "result"
    for msg_id in ("held", "released"):
        assert await pump.assured(msg_id, LOG) == "received"
    assert await pump.deliver("released") == "delivered"


async def test_a_later_device_of_the_same_name_has_no_rights_of_its_predecessor(
    gateway: Gateway,
) -> None:
    with gateway.run() as process:
        async with await bind_session(process, "valve") as valve:
            async with await bind_session(process, "pump1") as pump:
                await create_and_publish(valve, pump)
            gateway.command("device", "remove", "pump1", "--yes")
            gateway.command("device", "add", "pump1", "--password", PASSWORD)
            async with await bind_session(process, "pump1") as pump:
                assert await ask(pump, retracting("ours")) == "forbidden"
                assert await ask(pump, publishing("ours")) == "forbidden"
                assert await ask(pump, publishing("mine")) == "forbidden"
                delete = "<delete node='mine'/>"
                assert await ask(pump, delete, f"{PUBSUB}#owner") == "forbidden"
                for msg_id in ("held", "released"):
                    assert await pump.deliver(msg_id) == "item-not-found"
            assert await ask(valve, retracting("ours")) == "result"
        assert "mine" in gateway.command("node", "list")
        gateway.command("node", "delete", "mine", "--yes")
        assert process.terminate() == 0


async def test_a_purge_deletes_nodes_and_items_and_notifies_subscribers(gateway: Gateway) -> None:
    with gateway.run() as process:
        async with await bind_session(process, "valve") as valve:
            async with await bind_session(process, "pump1") as pump:
                await create_and_publish(valve, pump)
            subscription = f"<subscribe node='mine' jid='{valve.full}'/>"
            assert await ask(valve, subscription) == "result"
            await valve.element()  # the last item
            await asyncio.to_thread(
                gateway.command, "device", "remove", "pump1", "--yes", "--purge"
            )
            deleted = await valve.element()
            assert deleted.find(f".//{{{PUBSUB}#event}}delete") is not None
            assert await ask(valve, retracting("ours")) == "item-not-found"
        assert process.terminate() == 0


async def test_a_device_gets_what_a_removed_one_had(gateway: Gateway) -> None:
    with gateway.run() as process:
        async with await bind_session(process, "valve") as valve:
            async with await bind_session(process, "pump1") as pump:
                await create_and_publish(valve, pump)
            gateway.command("device", "remove", "pump1", "--yes", "--give-to", "valve")
            assert await ask(valve, publishing("mine")) == "result"
            assert await ask(valve, "<delete node='mine'/>", f"{PUBSUB}#owner") == "result"
        assert process.terminate() == 0
