"""Failed logins: the operator's log names account and reason, the peer learns neither."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from edge.ops import certificates, current_time, devices, pki
from edge.ops.certificates import Issued
from tests.helpers.gateway import Gateway, port_of
from tests.helpers.processes import Process
from tests.helpers.xmpp import Client, Closed, trusting

DAY_MS = 24 * 3600 * 1000
ADDRESSES = {"SCRAM-SHA-256": "127.0.0.2", "SCRAM-SHA-1": "127.0.0.3", "PLAIN": "127.0.0.4"}
"""An address for the tests of each mechanism: few failures of one are written at once."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    made = Gateway(
        tmp_path_factory.mktemp("gw") / "gateway",
        *("cam1", "stolen"),
        authenticate_delay=0.0,
        authenticate_failures=1000,
    )
    for name in ("pump1", "lost", "gone"):
        devices.add(made.folder, name, None, trusted=True, certificate=True)
    devices.revoke(made.folder, "stolen")
    return made


@pytest.fixture(scope="module")
def process(gateway: Gateway) -> Iterator[Process]:
    with gateway.run() as process:
        yield process
        assert process.terminate() == 0


async def fail(
    process: Process, ca: Path, mechanism: str, user: str, from_: str = "127.0.0.1"
) -> str:
    """Log in with a wrong password; return what the peer is told."""
    async with await Client.connect(port_of(process), from_=from_) as client:
        await client.start_tls(ca)
        await client.element()
        return await client.authenticate(mechanism, user, "wrong")


def line(reason: str, account: str, mechanism: str, from_: str = "127.0.0.1") -> str:
    who = f"account={account}, " if account else ""
    return f"limit authentication: {reason} (source={from_}, value=1, {who}mechanism={mechanism})"


@pytest.mark.parametrize("mechanism", ADDRESSES)
@pytest.mark.parametrize(
    ("user", "reason"),
    [
        ("cam1", "wrong password"),
        ("nobody", "unknown account"),
        ("stolen", "account revoked"),
        ("pump1", "account without password"),
    ],
)
async def test_the_operator_reads_why_and_the_peer_does_not(
    gateway: Gateway, process: Process, mechanism: str, user: str, reason: str
) -> None:
    address = ADDRESSES[mechanism]
    assert await fail(process, gateway.ca, mechanism, user, address) == "not-authorized"
    process.wait_told(f"Warning: {line(reason, user, mechanism, address)}\n")


async def test_the_event_names_the_same(gateway: Gateway, process: Process) -> None:
    await fail(process, gateway.ca, "PLAIN", "cam2")
    process.wait_told("account=cam2")
    (event,) = [e for e in gateway.events("system") if e["tags"].get("account") == "cam2"]
    assert (event["kind"], event["name"], event["level"]) == ("limit", "authentication", "Warning")
    assert (event["source"], event["text"]) == ("127.0.0.1", "unknown account")
    assert event["tags"] == {"account": "cam2", "mechanism": "PLAIN"}


async def test_a_request_that_is_no_attempt_is_named_by_its_condition(
    gateway: Gateway, process: Process
) -> None:
    async with await Client.connect(port_of(process)) as client:
        await client.start_tls(gateway.ca)
        await client.element()
        assert await client.authenticate("EXTERNAL", "", "") == "invalid-mechanism"
    process.wait_told(line("invalid mechanism", "", "EXTERNAL"))


# Certificates.


def write(folder: Path, issued: Issued) -> Path:
    """Write a certificate and its key to a new folder."""
    folder.mkdir()
    for name, content in issued.contents.items():
        (folder / name).write_bytes(content.data)
    return folder


def issue(gateway: Gateway, folder: Path, days_ago: int) -> Path:
    """Issue a certificate for 30 days that the gateway does not know, some days ago."""
    moment = current_time.now().wall - days_ago * DAY_MS
    ours = pki.load(gateway.folder)
    return write(folder, certificates.issue(ours, "pump1@gw.example", 30, moment))


async def present(
    gateway: Gateway, process: Process, certificate: Path, from_: str = "127.0.0.1"
) -> str:
    """Log in with a certificate; return what the peer is told, or `handshake` if TLS fails."""
    try:
        async with await Client.connect(port_of(process), from_=from_) as client:
            await client.start_tls(gateway.ca, certificate=certificate)
            await client.element()
            return await client.authenticate("EXTERNAL", "", "")
    except (ssl.SSLError, ConnectionError, Closed):  # with TLS 1.3, when it reads
        return "handshake"


async def test_a_failed_handshake_names_the_certificates_fault(
    gateway: Gateway, process: Process, tmp_path: Path
) -> None:
    other = Gateway(tmp_path / "other")
    devices.add(other.folder, "pump1", None, trusted=True, certificate=True)
    lost = shutil.copytree(certificates.device_folder(gateway.folder, "lost"), tmp_path / "lost")
    await asyncio.to_thread(devices.revoke, gateway.folder, "lost")
    for certificate, reason in (
        (issue(gateway, tmp_path / "old", 60), "certificate expired"),
        (issue(gateway, tmp_path / "early", -60), "certificate not valid yet"),
        (certificates.device_folder(other.folder, "pump1"), "certificate of another CA"),
        (lost, "certificate revoked"),
    ):
        assert await present(gateway, process, certificate, "127.0.0.5") == "handshake"
        process.wait_told(line(reason, "", "EXTERNAL", "127.0.0.5"))


async def test_a_certificate_that_tls_accepts_is_named_with_its_device(
    gateway: Gateway, process: Process, tmp_path: Path
) -> None:
    """The gateway also refuses certificates that are not in its revocation list."""
    unknown = issue(gateway, tmp_path / "unknown", 0)
    assert await present(gateway, process, unknown) == "not-authorized"
    process.wait_told(line("certificate unknown", "", "EXTERNAL"))
    gone = shutil.copytree(certificates.device_folder(gateway.folder, "gone"), tmp_path / "gone")
    await asyncio.to_thread(devices.revoke, gateway.folder, "gone")
    for fault, change in (
        ("certificate revoked", lambda: None),
        ("account removed", lambda: devices.remove(gateway.folder, "gone")),
    ):
        await asyncio.to_thread(change)
        (gateway.folder / "pki" / "crl.pem").unlink(missing_ok=True)
        assert await present(gateway, process, gone) == "not-authorized"
        process.wait_told(line(fault, "gone", "EXTERNAL"))


async def test_a_failed_handshake_of_direct_tls_leaves_a_line(
    gateway: Gateway, process: Process, tmp_path: Path
) -> None:
    context = trusting(gateway.ca, issue(gateway, tmp_path / "old", 60), ("xmpp-client",))
    with suppress(ssl.SSLError, ConnectionError, Closed):
        async with await Client.connect_tls(process.host_port("xmpps")[1], context) as client:
            await client.element()
    process.wait_told(line("certificate expired", "", "EXTERNAL"))


async def test_a_device_that_does_not_trust_the_gateway_leaves_a_line(
    gateway: Gateway, process: Process, tmp_path: Path
) -> None:
    """The device sends the TLS alert itself, because asyncio does not."""
    other = Gateway(tmp_path / "other")

    def connect() -> None:
        with (
            socket.create_connection(process.host_port("xmpps"), 30) as plain,
            pytest.raises(ssl.SSLCertVerificationError),
        ):
            trusting(other.ca).wrap_socket(plain, server_hostname="gw.example")

    await asyncio.to_thread(connect)
    process.wait_told(
        "limit tls: the peer refuses the gateway's certificate: unknown ca"
        " (source=127.0.0.1, value=1)"
    )


# Many failures.


async def test_repeated_failures_are_folded(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", "cam1", authenticate_delay=0.0)
    with gateway.run() as process:
        for _ in range(5):
            await fail(process, gateway.ca, "PLAIN", "cam1")
        assert process.terminate() == 0
        lines = process.stderr.splitlines()
    assert [text.partition("value=")[2] for text in lines] == [
        f"{count}, account=cam1, mechanism=PLAIN)" for count in (1, 4)
    ]


async def test_one_address_writes_few_lines_whatever_names_it_tries(tmp_path: Path) -> None:
    gateway = Gateway(
        tmp_path / "gateway", "cam1", authenticate_delay=0.0, authenticate_failures=1000
    )
    with gateway.run() as process:
        for number in range(40):
            await fail(process, gateway.ca, "PLAIN", f"{number}{'x' * 100}")
        process.wait_told("account=7x")
        assert process.stderr.count("\n") == 8
        assert process.terminate() == 0
        assert process.stderr.count("\n") <= 33
    found = [e for e in gateway.events("system") if e["name"] == "authentication"]
    assert sum(event["value"] for event in found) == 40
    assert max(len(event["tags"].get("account", "")) for event in found) == 64
