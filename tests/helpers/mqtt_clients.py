"""Other people's MQTT clients as programs that tests command: one line in, one line out.

A program gets `HOST PORT USER@DOMAIN/CLIENTID CAFILE tls|wss PLAIN VERSION [WILL_TOPIC]` as
arguments (`VERSION` is `3.1.1` or `5`) and the password in $CLIENT_PASSWORD; it verifies the
certificate for the address. Its session is durable, and it connects again if it loses its
connection. It reads:

    subscribe FILTER QOS
    publish TOPIC QOS TEXT        not retained
    retain TOPIC TEXT             at QoS 1
    count TOPIC NUMBER            publish the numbers from 0 at QoS 2, several at a time
    quit                          disconnect, and end

and writes a line for each thing that happens; a keyword comes first: `online`, `refused`, `lost`,
`subscribed FILTER QOS`, `published TOPIC` (the exchange is complete; after `count`, all of them
are), `message TOPIC QOS RETAIN TEXT`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.helpers import clients
from tests.helpers.clients import PROGRAMS, Client, Login
from tests.helpers.gateway import DOMAIN, NO_RATE_LIMITS, PASSWORD, Gateway
from tests.helpers.processes import Process, free_port

VERSIONS: Final = {"v311": "3.1.1", "v5": "5"}

HOST: Final = "127.0.0.1"
"""The address of an `MqttSite`. Its certificate names it, because MQTT clients verify the name or
address that they connect to."""

PROGRAM_NAMES: Final = ("paho-v311", "paho-v5", "aiomqtt-v5", "mqttjs-v311", "mqttjs-v5")


def mosquitto(name: str) -> str:
    """Return the path of a program of mosquitto, such as `mosquitto_pub`; skip if it is missing."""
    found = shutil.which(name, path="/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"no {name} (make interop-packages)")
    return found


class MqttSite:
    """A gateway whose process can be killed and started again, on one port."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.gateway = Gateway(folder, *names, auto_create=["#"], **NO_RATE_LIMITS)
        self.gateway.configure_section("gateway", names=[HOST])
        self.port = free_port()
        listen = {"listen_tls": f"{HOST}:{self.port}", "listen_ws": f"{HOST}:0"}
        self.gateway.configure_section("mqtt", **listen)
        self.process: Process = self.gateway.run()

    def start(
        self, name: str, user: str, client_id: str, will_topic: str = "", transport: str = "tls"
    ) -> Client:
        """Start a program; use the result as a context manager.

        Args:
            name: one of `PROGRAM_NAMES`.
            will_topic: the topic of its will, which says "gone" at QoS 1; "" for none.
            transport: `tls`, or `wss` for WebSocket, whose port changes when the gateway restarts.
        """
        program, _, version = name.partition("-")
        python: list[str | Path] = [sys.executable, PROGRAMS / f"{program}_client.py"]
        command = clients.node_program("mqttjs") if program == "mqttjs" else python
        extra = (VERSIONS[version], *([will_topic] if will_topic else []))
        jid, ca = f"{user}@{DOMAIN}/{client_id}", self.gateway.ca
        port = self.port if transport == "tls" else self.process.host_port("mqttws")[1]
        login = Login(HOST, port, jid, ca, transport, "PLAIN", PASSWORD, extra)
        return clients.start(command, login)

    def restart(self) -> None:
        """Kill the gateway and start it again."""
        self.process.kill9()
        self.process.close()
        self.process = self.gateway.run()
