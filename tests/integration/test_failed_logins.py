"""Failed logins: the operator's log names account and reason, the peer learns neither."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from edge.ops import certificates, current_time, devices, pki
from tests.helpers.gateway import Gateway, port_of
from tests.helpers.processes import Process
from tests.helpers.xmpp import Client, Closed, trusted_ca_context

DAY_MS = 24 * 3600 * 1000
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
        self, reason: str, account: str, mechanism: str = "EXTERNAL", from_: str = "127.0.0.1"
    ) -> None:
        """Wait for the operator's line about a failed login."""
        account_field = f"account={account}, " if account else ""
        source = f"source={from_}, value=1, {account_field}mechanism={mechanism}"
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


async def test_an_invalid_mechanism_is_logged_without_an_account(running: Server) -> None:
    assert await running.fail("EXTERNAL", "") == "invalid-mechanism"
    running.expect("invalid mechanism", "")


# Certificates.


def issue(gateway: Gateway, folder: Path, days_ago: int) -> Path:
    """Issue a certificate for 30 days that the gateway does not know, some days ago."""
    moment = current_time.now().wall - days_ago * DAY_MS
    issued = certificates.issue(pki.load(gateway.folder), "pump1@gw.example", 30, moment)
    folder.mkdir()
    for name, content in issued.contents.items():
        (folder / name).write_bytes(content.data)
    return folder


async def test_a_failed_handshake_is_logged_with_the_fault_of_the_certificate(
    running: Server, tmp_path: Path
) -> None:
    gateway, other = running.gateway, Gateway(tmp_path / "other")
    devices.add(other.folder, "pump1", None, trusted=True, certificate=True)
    lost = shutil.copytree(certificates.device_folder(gateway.folder, "lost"), tmp_path / "lost")
    await asyncio.to_thread(devices.revoke, gateway.folder, "lost")
    for certificate, reason in (
        (issue(gateway, tmp_path / "old", 60), "certificate expired"),
        (issue(gateway, tmp_path / "early", -60), "certificate not valid yet"),
        (certificates.device_folder(other.folder, "pump1"), "certificate of another CA"),
        (lost, "certificate revoked"),
    ):
        assert await running.present(certificate, "127.0.0.5") == "handshake"
        running.expect(reason, "", from_="127.0.0.5")


async def test_a_certificate_refused_after_tls_is_logged_with_its_device(
    running: Server, tmp_path: Path
) -> None:
    """The gateway also refuses certificates that are not in its revocation list."""
    folder = running.gateway.folder
    unknown = issue(running.gateway, tmp_path / "unknown", 0)
    assert await running.present(unknown) == "not-authorized"
    running.expect("certificate unknown", "")
    removed = shutil.copytree(certificates.device_folder(folder, "removed"), tmp_path / "removed")
    for fault, change in (
        ("certificate revoked", devices.revoke),
        ("account removed", devices.remove),
    ):
        await asyncio.to_thread(change, folder, "removed")
        (folder / "pki" / "crl.pem").unlink(missing_ok=True)
        assert await running.present(removed) == "not-authorized"
        running.expect(fault, "removed")


async def test_a_failed_handshake_of_direct_tls_is_logged(running: Server, tmp_path: Path) -> None:
    old = issue(running.gateway, tmp_path / "old", 60)
    context = trusted_ca_context(running.gateway.ca, old, ("xmpp-client",))
    with suppress(ssl.SSLError, ConnectionError, Closed):
        port = running.process.host_port("xmpps")[1]
        async with await Client.connect_tls(port, context) as client:
            await client.element()
    running.expect("certificate expired", "")


async def test_a_device_that_does_not_trust_the_gateway_is_logged(
    running: Server, tmp_path: Path
) -> None:
    """The device sends the TLS alert itself, because asyncio does not."""
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


# Many failures.


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
