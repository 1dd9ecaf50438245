from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge.ops.devices import devices
from firmware_sim.device import Device, ReceiveOptions
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway
from tests.helpers.processes import Process

Make = Callable[..., Device]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    gateway = Gateway(tmp_path_factory.mktemp("gw") / "gateway", "pump1")
    devices.add(gateway.folder, "pump2", None, trusted=True, certificate=True)
    return gateway


@pytest.fixture
def make(gateway: Gateway, process: Process, tmp_path: Path) -> Make:
    def device(name: str, **options: Any) -> Device:
        host, port = process.host_port("xmpps" if options.get("direct_tls") else "xmpp")
        defaults: dict[str, Any] = {"host": host, "port": port, "ca_file": gateway.ca}
        defaults["outbox_path"] = tmp_path / "outbox"
        return Device(f"{name}@{DOMAIN}/fw", **{**defaults, **options})

    return device


def certificate(gateway: Gateway) -> dict[str, Path]:
    """Return the credentials of pump2."""
    files = gateway.folder / "devices" / "pump2"
    return {"certificate": files / "cert.pem", "key": files / "key.pem"}


@pytest.mark.parametrize(("name", "direct"), [("pump1", False), ("pump2", True)])
async def test_device_logs_in(
    gateway: Gateway, make: Make, tmp_path: Path, name: str, direct: bool
) -> None:
    secrets = certificate(gateway) if name == "pump2" else {"password": PASSWORD}
    receive = ReceiveOptions(tmp_path / "inbox")
    async with make(name, **secrets, direct_tls=direct, receive=receive) as device:
        await device.send_log("Entered", "in")
        await device.flush(30)
        assert (device.last_error, device.sessions) == ("", 1)
        assert len(list(device.delivered())) == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "a password, or a certificate and its key"),
        ({"certificate": "c.pem"}, "belong together"),
        ({"password": "p", "certificate": "c.pem", "key": "k.pem"}, "not both"),
        ({"password": "p", "port": 0}, "not a TCP port"),
        ({"password": "p", "jid": "gw.example"}, "full JID"),
        ({"password": "p", "jid": "pump1@gw.example"}, "full JID"),
        ({"password": "p", "jid": "gw.example/fw"}, "full JID"),
    ],
)
def test_invalid_arguments_raise(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Device(**{"jid": f"pump1@{DOMAIN}/fw", "outbox_path": "o", "ca_file": "ca", **options})


async def failure(device: Device) -> str:
    """Return why the device's first attempt to connect fails."""
    async with device:
        await device.changed()
        return device.last_error


async def test_certificate_of_another_device_is_refused(gateway: Gateway, make: Make) -> None:
    error = await failure(make("pump1", **certificate(gateway)))
    assert error == "the server refused the certificate or offers no safe mechanism"


async def test_closed_port_is_reported(make: Make) -> None:
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        error = await failure(make("pump1", password=PASSWORD, port=port))
        assert error == f"no connection to 127.0.0.1:{port}: Connection refused"


@pytest.mark.parametrize("file", ["none.pem", "text.pem"])
@pytest.mark.parametrize("option", ["ca_file", "certificate"])
async def test_unusable_file_is_reported(
    gateway: Gateway, make: Make, tmp_path: Path, option: str, file: str
) -> None:
    (tmp_path / "text.pem").write_text("text")
    files = {**certificate(gateway), option: tmp_path / file}
    assert file in await failure(make("pump2", **files))
