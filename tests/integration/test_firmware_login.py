"""The firmware library logs in by password and certificate, over STARTTLS and direct TLS."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge.ops import devices
from firmware_sim.device import Device, ReceivedMessage, ReceiveOptions
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway
from tests.helpers.processes import Process


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    gateway = Gateway(tmp_path_factory.mktemp("gw") / "gateway", "pump1")
    devices.add(gateway.folder, "pump2", None, trusted=True, certificate=True)
    return gateway


@pytest.fixture(scope="module")
def process(gateway: Gateway) -> Iterator[Process]:
    with gateway.run() as process:
        yield process


def ignore(_message: ReceivedMessage, _db: sqlite3.Connection) -> None:
    """Ignore the message."""


@pytest.mark.parametrize(("name", "direct"), [("pump1", False), ("pump2", True)])
async def test_device_logs_in(
    gateway: Gateway, process: Process, tmp_path: Path, name: str, direct: bool
) -> None:
    secrets: dict[str, Any] = {"password": PASSWORD}
    if name == "pump2":
        files = gateway.folder / "devices" / name
        secrets = {"certificate": files / "cert.pem", "key": files / "key.pem"}
    async with Device(
        f"{name}@{DOMAIN}/fw",
        **secrets,
        outbox_path=tmp_path / "outbox",
        ca_file=gateway.ca,
        host="127.0.0.1",
        port=process.host_port("xmpps" if direct else "xmpp")[1],
        direct_tls=direct,
        receive=ReceiveOptions(tmp_path / "inbox", ignore),
    ) as device:
        await device.send_log("Entered", "in")
        await device.flush(30)
        assert device.last_error == ""
        assert device.sessions == 1
        assert len(list(device.delivered())) == 1


@pytest.mark.parametrize(
    ("secrets", "problem"),
    [
        ({}, "a password, or a certificate and its key"),
        ({"certificate": "c.pem"}, "belong together"),
        ({"password": "p", "certificate": "c.pem", "key": "k.pem"}, "not both"),
    ],
)
def test_secrets_are_checked(tmp_path: Path, secrets: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Device(f"pump1@{DOMAIN}/fw", **secrets, outbox_path=tmp_path / "o", ca_file=tmp_path / "ca")


async def test_the_certificate_of_another_device_is_refused(
    gateway: Gateway, process: Process, tmp_path: Path
) -> None:
    files = gateway.folder / "devices" / "pump2"
    async with Device(
        f"pump1@{DOMAIN}/fw",
        certificate=files / "cert.pem",
        key=files / "key.pem",
        outbox_path=tmp_path / "outbox",
        ca_file=gateway.ca,
        host="127.0.0.1",
        port=process.host_port("xmpp")[1],
    ) as device:
        await device.changed()
        assert device.last_error == "the server refused the certificate or offers no safe mechanism"


async def test_a_closed_port_is_reported(gateway: Gateway, tmp_path: Path) -> None:
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        async with Device(
            f"pump1@{DOMAIN}/fw",
            PASSWORD,
            outbox_path=tmp_path / "outbox",
            ca_file=gateway.ca,
            host="127.0.0.1",
            port=port,
        ) as device:
            await device.changed()
            assert device.last_error == f"no connection to 127.0.0.1:{port}: Connection refused"


@pytest.mark.parametrize("name", ["none.pem", "text.pem"])
async def test_an_unusable_certificate_is_reported(
    gateway: Gateway, process: Process, tmp_path: Path, name: str
) -> None:
    (tmp_path / "text.pem").write_text("text")
    files = gateway.folder / "devices" / "pump2"
    async with Device(
        f"pump2@{DOMAIN}/fw",
        certificate=tmp_path / name,
        key=files / "key.pem",
        outbox_path=tmp_path / "outbox",
        ca_file=gateway.ca,
        host="127.0.0.1",
        port=process.host_port("xmpp")[1],
    ) as device:
        await device.changed()
        assert name in device.last_error
