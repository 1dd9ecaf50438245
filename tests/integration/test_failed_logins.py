"""Failed logins: the operator's log names account and reason, the peer learns neither."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from edge.ops.certificates import certificates
from edge.ops.devices import devices
from firmware_sim.attackers.stanzas import STARTTLS
from tests.helpers.gateway import PASSWORD, Gateway, port_of
from tests.helpers.hostile import HEADER
from tests.helpers.issued_certificates import issue, serial_of
from tests.helpers.processes import Process
from tests.helpers.xmpp import Client, Closed, trusted_ca_context

ADDRESSES = {"SCRAM-SHA-256": "127.0.0.2", "SCRAM-SHA-1": "127.0.0.3", "PLAIN": "127.0.0.4"}
"""An address for the tests of each mechanism: few failures of one are written at once."""


class Server(NamedTuple):
    """A running gateway; the methods log in from an address and return the peer's answer."""

    gateway: Gateway
    process: Process

    async def fail(self, mechanism: str, user: str, from_: str = "127.0.0.1") -> str:
        """Log in with a wrong password, if the mechanism needs one."""
        async with await Client.connect(port_of(self.process), from_=from_) as client:
            await client.start_tls(self.gateway.ca)
            await client.element()
            return await client.authenticate(mechanism, user, "wrong")

    async def present(self, certificate: Path, from_: str = "127.0.0.1") -> str:
        """Log in with a certificate; the answer is `handshake` if TLS fails."""
        try:
            async with await Client.connect(port_of(self.process), from_=from_) as client:
                await client.start_tls(self.gateway.ca, certificate=certificate)
                await client.element()
                return await client.authenticate("EXTERNAL", "", "")
        except (ssl.SSLError, ConnectionError, Closed):  # with TLS 1.3, when the client reads
            return "handshake"

    def expect(
        self,
        reason: str,
        account: str,
        mechanism: str = "EXTERNAL",
        from_: str = "127.0.0.1",
        certificate: Path | None = None,
    ) -> None:
        """Wait for the operator's line about a failed login, with a certificate that TLS accepted,
        if there was one."""
        account_field = f"account={account}, " if account else ""
        source = f"source={from_}, value=1, {account_field}mechanism={mechanism}"
        if certificate is not None:
            source += f", serial={serial_of(certificate)}"
        self.process.wait_for_stderr(f"Warning: limit authentication: {reason} ({source})\n")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A gateway with accounts and certificates, of which some are revoked."""
    folder = tmp_path_factory.mktemp("gw") / "gateway"
    options = {"authenticate_delay": 0.0, "authenticate_failures": 1000}
    gateway = Gateway(folder, "cam1", "stolen", **options)
    for name in ("pump1", "lost", "removed"):
        devices.add(folder, name, None, trusted=True, certificate=True)
    devices.revoke(folder, "stolen")
    with gateway.run() as process:
        yield Server(gateway, process)
        assert process.terminate() == 0


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
async def test_only_the_operator_gets_the_reason_of_a_failed_login(
    running: Server, mechanism: str, user: str, reason: str
) -> None:
    address = ADDRESSES[mechanism]
    assert await running.fail(mechanism, user, address) == "not-authorized"
    running.expect(reason, user, mechanism, address)


async def test_the_event_has_the_account_and_the_reason(running: Server) -> None:
    await running.fail("PLAIN", "cam2")
    running.process.wait_for_stderr("account=cam2")
    found = running.gateway.events("system")
    (event,) = [e for e in found if e["tags"].get("account") == "cam2"]
    assert (event["kind"], event["name"], event["level"]) == ("limit", "authentication", "Warning")
    assert (event["source"], event["text"]) == ("127.0.0.1", "unknown account")
    assert event["tags"] == {"account": "cam2", "mechanism": "PLAIN"}


async def test_a_client_that_falls_back_to_other_mechanisms_is_logged_once(
    running: Server,
) -> None:
    async with await Client.connect(port_of(running.process), from_="127.0.0.6") as client:
        await client.start_tls(running.gateway.ca)
        await client.element()
        for mechanism in ADDRESSES:
            assert await client.authenticate(mechanism, "cam1", "typo") == "not-authorized"
    assert await running.fail("PLAIN", "other", "127.0.0.6") == "not-authorized"
    running.expect("unknown account", "other", "PLAIN", "127.0.0.6")
    lines = [line for line in running.process.stderr.splitlines() if "source=127.0.0.6" in line]
    assert [line.partition("account=")[2] for line in lines] == [
        "cam1, mechanism=SCRAM-SHA-256)",
        "other, mechanism=PLAIN)",
    ]


async def test_an_invalid_mechanism_is_logged_without_an_account(running: Server) -> None:
    assert await running.fail("EXTERNAL", "") == "invalid-mechanism"
    running.expect("invalid mechanism", "")


# Certificates.


async def test_a_failed_handshake_is_logged_with_the_fault_of_the_certificate(
    running: Server, tmp_path: Path
) -> None:
    gateway, other = running.gateway, Gateway(tmp_path / "other")
    devices.add(other.folder, "pump1", None, trusted=True, certificate=True)
    lost = shutil.copytree(certificates.device_folder(gateway.folder, "lost"), tmp_path / "lost")
    await asyncio.to_thread(devices.revoke, gateway.folder, "lost")
    for certificate, reason in (
        (certificates.device_folder(other.folder, "pump1"), "certificate of another CA"),
        (lost, "certificate revoked"),
    ):
        assert await running.present(certificate, "127.0.0.5") == "handshake"
        running.expect(reason, "", from_="127.0.0.5")


@pytest.mark.parametrize(
    ("days_ago", "condition", "reason"),
    [
        (60, "credentials-expired", "certificate expired"),
        (-60, "not-authorized", "certificate not valid yet"),
    ],
)
async def test_a_certificate_with_wrong_dates_is_logged_with_its_device_and_serial(
    running: Server, tmp_path: Path, days_ago: int, condition: str, reason: str
) -> None:
    known = issue(running.gateway, tmp_path / "known", days_ago, "pump1")
    unknown = issue(running.gateway, tmp_path / "unknown", days_ago)
    for certificate, device in ((known, "pump1"), (unknown, "")):
        assert await running.present(certificate, "127.0.0.7") == condition
        running.expect(reason, device, from_="127.0.0.7", certificate=certificate)


async def test_a_certificate_refused_after_tls_is_logged_with_its_device(
    running: Server, tmp_path: Path
) -> None:
    """The gateway also refuses certificates that are not in its revocation list."""
    folder = running.gateway.folder
    unknown = issue(running.gateway, tmp_path / "unknown", 0)
    assert await running.present(unknown) == "not-authorized"
    running.expect("certificate unknown", "", certificate=unknown)
    removed = shutil.copytree(certificates.device_folder(folder, "removed"), tmp_path / "removed")
    for fault, act in (
        ("certificate revoked", devices.revoke),
        ("account removed", devices.remove),
    ):
        await asyncio.to_thread(act, folder, "removed")
        (folder / "pki" / "crl.pem").unlink(missing_ok=True)
        assert await running.present(removed) == "not-authorized"
        running.expect(fault, "removed", certificate=removed)


async def test_a_failed_handshake_of_direct_tls_is_logged(running: Server, tmp_path: Path) -> None:
    other = Gateway(tmp_path / "other")
    devices.add(other.folder, "pump1", None, trusted=True, certificate=True)
    certificate = certificates.device_folder(other.folder, "pump1")
    context = trusted_ca_context(running.gateway.ca, certificate, ("xmpp-client",))
    with suppress(ssl.SSLError, ConnectionError, Closed):
        port = running.process.host_port("xmpps")[1]
        async with await Client.connect_tls(port, context) as client:
            await client.element()
    running.expect("certificate of another CA", "")


async def test_a_device_that_does_not_trust_the_gateway_is_logged(
    running: Server, tmp_path: Path
) -> None:
    """The device sends the TLS alert itself, because asyncio's client does not."""
    other = Gateway(tmp_path / "other")

    def connect() -> None:
        with (
            socket.create_connection(running.process.host_port("xmpps"), 30) as plain,
            pytest.raises(ssl.SSLCertVerificationError),
        ):
            trusted_ca_context(other.ca).wrap_socket(plain, server_hostname="gw.example")

    await asyncio.to_thread(connect)
    running.process.wait_for_stderr(
        "limit tls: the peer refuses the gateway's certificate: unknown ca"
        " (source=127.0.0.1, value=1)"
    )


def old_tls() -> ssl.SSLContext:
    """Return the context of a client that has no TLS version from 1.2 on."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore"):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


@pytest.mark.parametrize("transport", ["xmpp", "xmpps"])
async def test_a_client_with_old_tls_gets_an_alert_and_is_logged(
    running: Server, transport: str
) -> None:
    """The operator's log has the reason."""
    address = f"127.0.1.{len(transport)}"

    def connect() -> None:
        host_port = running.process.host_port(transport)
        with (
            socket.create_connection(host_port, 30, (address, 0)) as plain,
            pytest.raises(ssl.SSLError, match="TLSV1_ALERT_PROTOCOL_VERSION"),
        ):
            old_tls().wrap_socket(plain, server_hostname="gw.example")

    await asyncio.to_thread(connect)
    running.process.wait_for_stderr(
        f"limit tls: the peer offers no TLS version from 1.2 on (source={address}, value=1)"
    )


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"", "the peer did not complete the handshake"),
        (b"GET / HTTP/1.1\r\n\r\n", "the peer sent something else than TLS"),
        (b"\x16\x03\x01\x00\x04\x01\x00\x00\x00", "handshake failed: length too short"),
    ],
)
async def test_a_handshake_that_fails_is_logged_with_the_reason(
    running: Server, sent: bytes, reason: str
) -> None:
    address = f"127.0.2.{len(sent) + 1}"

    def connect() -> None:
        host_port = running.process.host_port("xmpp")
        with socket.create_connection(host_port, 30, (address, 0)) as plain:
            plain.sendall(HEADER.encode() + STARTTLS.encode())
            received = b""
            while b"<proceed" not in received:
                received += plain.recv(4096)
            plain.sendall(sent)
            plain.shutdown(socket.SHUT_WR)
            while plain.recv(4096):
                pass

    await asyncio.to_thread(connect)
    running.process.wait_for_stderr(f"limit tls: {reason} (source={address}, value=1)")


# Many failures.


async def test_failures_behind_one_address_do_not_lock_out_devices_that_logged_in_before(
    tmp_path: Path,
) -> None:
    """The addresses are remembered across a restart."""
    gateway = Gateway(tmp_path / "gateway", "cam1", "cam2", authenticate_delay=0.0)

    async def log_in(process: Process, user: str) -> str:
        async with await Client.connect(port_of(process)) as client:
            await client.start_tls(gateway.ca)
            await client.element()
            return await client.authenticate("SCRAM-SHA-256", user, PASSWORD)

    async def fail_often(process: Process) -> None:
        for number in range(40):
            await Server(gateway, process).fail("PLAIN", f"guess{number}")
        assert await log_in(process, "cam2") == "temporary-auth-failure"
        assert await log_in(process, "cam1") == "success"

    with gateway.run() as process:
        assert await log_in(process, "cam1") == "success"
        await fail_often(process)
    with gateway.run() as process:
        await fail_often(process)


async def test_repeated_failures_are_logged_together(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", "cam1", authenticate_delay=0.0)
    with gateway.run() as process:
        for _ in range(5):
            await Server(gateway, process).fail("PLAIN", "cam1")
        assert process.terminate() == 0
        lines = process.stderr.splitlines()
    assert [text.partition("value=")[2] for text in lines] == [
        f"{count}, account=cam1, mechanism=PLAIN)" for count in (1, 4)
    ]


async def test_log_lines_of_one_address_are_limited_for_all_account_names(tmp_path: Path) -> None:
    gateway = Gateway(
        tmp_path / "gateway", "cam1", authenticate_delay=0.0, authenticate_failures=1000
    )
    with gateway.run() as process:
        for number in range(40):
            await Server(gateway, process).fail("PLAIN", f"{number}{'x' * 100}")
        process.wait_for_stderr("account=7x")
        assert process.stderr.count("\n") == 8
        assert process.terminate() == 0
        assert process.stderr.count("\n") <= 33
    found = [e for e in gateway.events("system") if e["name"] == "authentication"]
    assert sum(event["value"] for event in found) == 40
    assert max(len(event["tags"].get("account", "")) for event in found) == 64
