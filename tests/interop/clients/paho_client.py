"""paho-mqtt as a program; `tests/helpers/mqtt_clients.py` describes its commands."""

from __future__ import annotations

import os
import socket
import ssl
import sys
import time
from collections import deque
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

WAIT_S = 30.0
EXPIRY_S = 3600
DELAY_S = 0.1


def write(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def on_connect(_client: mqtt.Client, _data: Any, _flags: Any, reason: Any, _rest: Any) -> None:
    write("refused" if reason.is_failure else "online")


def on_disconnect(*_arguments: object) -> None:
    write("lost")


def on_message(_client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
    write("message", message.topic, message.qos, int(message.retain), message.payload.decode())


def publish(client: mqtt.Client, topic: str, qos: int, *texts: str, retain: bool = False) -> None:
    sent = [client.publish(topic, text, qos, retain) for text in texts]
    for each in sent:
        each.wait_for_publish(WAIT_S)
    write("published", topic)


def wait_for_server(host: str, port: int, ca: str) -> None:
    """Wait until the server answers a TLS handshake.

    If an attempt to connect again fails, paho-mqtt 2.2 forgets which messages it has released, and
    publishes them again as new ones (`_messages_reconnect_reset_out`).
    """
    context = ssl.create_default_context(cafile=ca)
    while True:
        try:
            with socket.create_connection((host, port)) as plain:
                context.wrap_socket(plain, server_hostname=host).close()
            return
        except OSError:
            time.sleep(DELAY_S)


def run(client: mqtt.Client, wanted: deque[str]) -> None:
    """Carry out the commands; `wanted` gets the filter of each SUBSCRIBE: its SUBACK may come
    before the identifier is known here."""
    for line in sys.stdin:
        match line.split():
            case ["subscribe", filter_, qos]:
                wanted.append(filter_)
                client.subscribe(filter_, int(qos))
            case ["publish", topic, qos, text]:
                publish(client, topic, int(qos), text)
            case ["retain", topic, text]:
                publish(client, topic, 1, text, retain=True)
            case ["count", topic, number]:
                publish(client, topic, 2, *map(str, range(int(number))))
            case ["quit"]:
                break


def main() -> None:
    host, port, jid, ca, transport, _mechanism, version, *will = sys.argv[1:]
    user, _, client_id = jid.partition("/")
    is_v5 = version == "5"
    client = mqtt.Client(
        CallbackAPIVersion.VERSION2,
        client_id,
        clean_session=None if is_v5 else False,
        protocol=mqtt.MQTTv5 if is_v5 else mqtt.MQTTv311,
        transport="websockets" if transport == "wss" else "tcp",
    )
    client.username_pw_set(user, os.environ["CLIENT_PASSWORD"])
    client.tls_set(ca)
    client.on_connect, client.on_message = on_connect, on_message
    client.on_disconnect = on_disconnect
    client.on_pre_connect = lambda _client, _data: wait_for_server(host, int(port), ca)
    client.reconnect_delay_set(1, 1)
    wanted = deque[str]()

    def on_subscribe(
        _client: mqtt.Client, _data: Any, _mid: int, reasons: list[Any], _properties: Any
    ) -> None:
        write("subscribed", wanted.popleft(), reasons[0].value)

    client.on_subscribe = on_subscribe
    for topic in will:
        client.will_set(topic, "gone", 1)
    options: dict[str, Any] = {}
    if is_v5:
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = EXPIRY_S
        options = {"clean_start": False, "properties": properties}
    client.connect(host, int(port), **options)
    client.loop_start()
    run(client, wanted)
    client.disconnect()
    client.loop_stop()


if __name__ == "__main__":
    main()
