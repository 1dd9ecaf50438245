"""Messages to sessions of MQTT that begin."""

from __future__ import annotations

from pathlib import Path

from edge.engine.dispatch.hooks import Context
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.mqtt.packets import Property, Publish
from edge.routing.mqtt import MqttHooks, Peer
from tests.helpers.in_process import in_process
from tests.helpers.mqtt import MqttClient


async def test_what_is_sent_between_the_log_in_and_the_connack_follows_it(tmp_path: Path) -> None:
    """A message reaches the session that is bound, but has not been answered yet."""
    keep = {Property.SESSION_EXPIRY: 60}
    async with in_process(tmp_path, "ant", auto_create=["#"]) as gateway:
        hooks, at = gateway.router.context.hooks.of(MqttHooks), gateway.mqtt

        def publish(context: Context, tx: Transaction, sender: Sender) -> None:
            for qos, payload in enumerate((b"0", b"1")):
                packet = Publish("plant/temp", payload, qos, id=qos)
                work = hooks.handlers[Publish](context, packet, Peer())
                assert callable(work)
                work(tx, sender)

        async with await MqttClient.connect(at, "ant", clean=False, properties=keep) as client:
            await client.subscribe("plant/#", qos=1)
        gateway.router.context.hooks.on_session_bound.append(publish)
        async with await MqttClient.connect(at, "ant", clean=False, properties=keep) as client:
            assert client.connack.session_present
            assert [(await client.take()).payload for _ in range(2)] == [b"0", b"1"]
