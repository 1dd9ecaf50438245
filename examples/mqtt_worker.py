"""Work on the jobs of a share with paho-mqtt: HOST PORT CA USER FILE, password on stdin.

Each job goes to one worker, and to another one if that dies. The result is stored once for each
job, which is JSON with an id: a job may come again if the acknowledgement was lost. QoS 1 and not
2: at QoS 2 a job that was sent waits for the worker that died, and paho-mqtt, which has nothing on
disk, does not know it any more.
"""

import json
import sqlite3
import sys
from contextlib import suppress
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

SHARE = "$share/workers/jobs/#"
TABLE = "CREATE TABLE IF NOT EXISTS results (job TEXT PRIMARY KEY, payload TEXT NOT NULL) STRICT"

host, port, ca, user, file = sys.argv[1:]
db = sqlite3.connect(file)
db.execute("PRAGMA synchronous = FULL")
db.execute(TABLE)


def on_connect(client: mqtt.Client, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
    if reason.is_failure:  # paho-mqtt tries again by itself
        print(f"refused: {reason}", file=sys.stderr)
    elif flags.session_present:
        print("subscribed", flush=True)  # the gateway has kept the subscription, and the jobs
    else:
        client.subscribe(SHARE, qos=1)


def on_subscribe(_client: Any, _data: Any, _mid: int, reasons: Any, _properties: Any) -> None:
    if reasons[0].is_failure:
        sys.exit(f"{SHARE}: {reasons[0]}")  # "Not authorized": see [[access]]
    print("subscribed", flush=True)


def on_message(client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
    text = message.payload.decode(errors="replace")
    try:
        job = str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError) as error:
        print(f"not a job: {text}: {error}", file=sys.stderr)  # it would be the same next time
    else:
        with db:
            db.execute("INSERT OR IGNORE INTO results (job, payload) VALUES (?, ?)", (job, text))
        print("stored", job, flush=True)
    client.ack(message.mid, message.qos)  # only now: a worker that dies before gets the job again


client = mqtt.Client(CallbackAPIVersion.VERSION2, "worker", protocol=mqtt.MQTTv5, manual_ack=True)
client.username_pw_set(user, sys.stdin.readline().rstrip("\n"))
client.tls_set(ca)
client.on_connect, client.on_subscribe, client.on_message = on_connect, on_subscribe, on_message
session = Properties(PacketTypes.CONNECT)
session.SessionExpiryInterval = 24 * 3600
client.connect(host, int(port), clean_start=False, properties=session)
with suppress(KeyboardInterrupt):
    client.loop_forever()
client.disconnect()
db.close()
