"""Publish readings exactly once with paho-mqtt: HOST PORT CA USER TOPIC, password on stdin.

HOST is the gateway's domain, or another name in `[gateway] names`: the certificate must be for it.
A message arrives exactly once across lost connections and restarts of the gateway. paho-mqtt keeps
it in memory only: what is not published when this program dies has to be published again.
"""

import json
import socket
import ssl
import sys
import time
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

host, port, ca, user, topic = sys.argv[1:]


def on_connect(_client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
    # "Bad user name or password" does not go away. All others do: paho-mqtt tries again by itself.
    print(f"refused: {reason}" if reason.is_failure else "online", file=sys.stderr)


def on_publish(_client: Any, _data: Any, mid: int, reason: Any, _properties: Any) -> None:
    # Not published: the topic is not allowed, or a limit is reached. `fieldpost events` says which.
    # paho-mqtt ignores the reason code of PUBREC, and calls both "Packet identifier not found".
    print(f"{mid} {reason}" if reason.is_failure else f"{mid} published", flush=True)


def wait_for_gateway(_client: Any, _data: Any) -> None:
    # If an attempt to connect again fails, paho-mqtt 2.2 forgets which messages it has released,
    # and publishes them again as new ones. So it connects only where somebody answers.
    context = ssl.create_default_context(cafile=ca)
    while True:
        try:
            with socket.create_connection((host, int(port)), 10.0) as plain:
                context.wrap_socket(plain, server_hostname=host).close()
            return
        except ssl.SSLCertVerificationError as error:
            sys.exit(f"{host}: {error}")  # CA is not its pki/ca.pem, or HOST is not its name
        except OSError:
            time.sleep(1.0)


client = mqtt.Client(CallbackAPIVersion.VERSION2, "sensor", protocol=mqtt.MQTTv5)
client.username_pw_set(user, sys.stdin.readline().rstrip("\n"))
client.tls_set(ca)
client.on_connect, client.on_publish = on_connect, on_publish
client.on_pre_connect = wait_for_gateway

# The client identifier and the session stay the same, so that each message is finished later.
session = Properties(PacketTypes.CONNECT)
session.SessionExpiryInterval = 24 * 3600
client.connect(host, int(port), clean_start=False, properties=session)
client.loop_start()
for celsius in (21.5, 21.7, 21.6):
    sent = client.publish(topic, json.dumps({"temperature": celsius}), qos=2)
    sent.wait_for_publish()  # however long the gateway is unreachable
client.disconnect()
client.loop_stop()
