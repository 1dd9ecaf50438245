"""A bridge from mosquitto to a gateway, as docs/how-to/move-from-mosquitto.md configures it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

from tests.helpers.clients import WAIT_S, Client
from tests.helpers.gateway import PASSWORD
from tests.helpers.mqtt_clients import HOST, MqttSite, mosquitto
from tests.helpers.processes import free_port

PAGE: Final = Path(__file__).parents[2] / "docs/how-to/move-from-mosquitto.md"

LOCAL: Final = """
user root
listener {port} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {folder}/
log_dest stdout
log_timestamp false
{bridge}
restart_timeout 1
"""


def bridge(site: MqttSite) -> str:
    """Return the page's configuration, for the addresses and files of a test."""
    [found] = re.findall(r"^```text\n(connection .*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    changes = {
        "gw.example:8883": f"{HOST}:{site.port}",
        "/etc/mosquitto/fieldpost-ca.pem": str(site.gateway.ca),
        "PASSWORD": PASSWORD,
    }
    for old, new in changes.items():
        assert old in found
        found = found.replace(old, new)
    return str(found)


def test_messages_arrive_once_although_the_gateway_was_away(tmp_path: Path) -> None:
    broker, publisher = mosquitto("mosquitto"), mosquitto("mosquitto_pub")
    site = MqttSite(tmp_path / "gateway", "site-a", "meter")
    port, folder = free_port(), tmp_path / "mosquitto"
    folder.mkdir()
    configuration = folder / "mosquitto.conf"
    text = LOCAL.format(port=port, folder=folder, bridge=bridge(site))
    configuration.write_text(text, "utf-8")
    topic = "plant/level"

    def publish(*texts: str) -> None:
        for text in texts:
            words = [publisher, "-p", str(port), "-t", topic, "-q", "2", "-m", text]
            subprocess.run(words, check=True, timeout=WAIT_S)

    def expect(client: Client, *texts: str) -> None:
        assert [client.expect("message") for _ in texts] == [f"{topic} 2 0 {t}" for t in texts]

    try:
        with (
            Client(["stdbuf", "--output=L", broker, "-v", "-c", configuration]) as bridging,
            site.start("paho-v5", "meter", "fw") as client,
        ):
            bridging.expect("Received", "CONNACK")
            client.expect("online")
            client.send_line("subscribe", topic, "2")
            client.expect("subscribed")
            publish("1", "2")
            expect(client, "1", "2")
            site.process.kill9()
            publish("3", "4")
            site.restart()
            expect(client, "3", "4")
            publish("5")
            expect(client, "5")
    finally:
        site.process.close()
