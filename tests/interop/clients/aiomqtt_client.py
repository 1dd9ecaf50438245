"""aiomqtt as a program; `tests/helpers/mqtt_clients.py` describes its commands."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

EXPIRY_S = 3600
DELAY_S = 1.0


def write(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def read_messages(client: aiomqtt.Client) -> None:
    async for message in client.messages:
        text = bytes(message.payload or b"").decode()
        write("message", message.topic, message.qos, int(message.retain), text)


async def command(client: aiomqtt.Client, line: str) -> None:
    match line.split():
        case ["subscribe", filter_, qos]:
            [reason] = await client.subscribe(filter_, int(qos))
            write("subscribed", filter_, getattr(reason, "value", reason))
        case ["publish", topic, qos, text]:
            await client.publish(topic, text, int(qos))
            write("published", topic)
        case ["retain", topic, text]:
            await client.publish(topic, text, 1, retain=True)
            write("published", topic)


async def main() -> None:
    host, port, jid, ca, transport, _mechanism, _version, *will = sys.argv[1:]
    user, _, client_id = jid.partition("/")
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = EXPIRY_S
    client = aiomqtt.Client(
        host,
        int(port),
        username=user,
        password=os.environ["CLIENT_PASSWORD"],
        identifier=client_id,
        protocol=aiomqtt.ProtocolVersion.V5,
        transport="websockets" if transport == "wss" else "tcp",
        clean_start=False,
        properties=properties,
        tls_context=ssl.create_default_context(cafile=ca),
        will=aiomqtt.Will(will[0], "gone", 1) if will else None,
    )
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while True:
        try:
            async with client:
                write("online")
                reading = asyncio.create_task(read_messages(client))
                while (line := (await reader.readline()).decode()) not in ("", "quit\n"):
                    await command(client, line)
                reading.cancel()
                return
        except aiomqtt.MqttError:
            write("lost")
            await asyncio.sleep(DELAY_S)


if __name__ == "__main__":
    asyncio.run(main())
