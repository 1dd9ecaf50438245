"""TLS versions and server certificate of the receiver."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import ssl

import pytest

from sync.common.errors import FleetError
from sync.receiver.pki import Authority
from sync.receiver.server import repeat_in_background
from sync.receiver.tls import ReloadingCertificate, ensure_own_certificate
from tests.helpers.fleet import HOST, Centre
from tests.helpers.raw_put import close


async def test_old_tls_versions_are_refused(centre: Centre) -> None:
    context = ssl.create_default_context(cafile=str(centre.folder.pki / "ca.pem"))
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        await asyncio.open_connection(*centre.client.address, ssl=context)


async def test_renegotiation_is_refused(centre: Centre) -> None:
    """Otherwise a TLS 1.2 client could request many handshakes on one connection."""
    folder = centre.folder
    context = ReloadingCertificate(ensure_own_certificate(folder), folder.pki / "ca.pem").context
    assert context.options & ssl.OP_NO_RENEGOTIATION


async def test_replaced_certificate_is_used_without_restart(
    centre: Centre, caplog: pytest.LogCaptureFixture
) -> None:
    _, port = centre.client.address
    context = ssl.create_default_context(cafile=str(centre.folder.pki / "ca.pem"))
    authority = Authority(centre.folder.pki)
    assert authority.ensure(("localhost",), dt.datetime.now(dt.UTC))
    _, writer = await asyncio.open_connection(HOST, port, ssl=context, server_hostname="localhost")
    await close(writer)
    authority.server.write_text("spoiled")
    _, writer = await asyncio.open_connection(HOST, port, ssl=context, server_hostname="localhost")
    await close(writer)
    assert [record for record in caplog.records if record.levelno == logging.ERROR]


async def test_certificate_is_renewed_while_running(caplog: pytest.LogCaptureFixture) -> None:
    renewed, calls = asyncio.Event(), list[int]()
    loop = asyncio.get_running_loop()

    def renew() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise FleetError("another command is at work")
        if len(calls) == 4:
            loop.call_soon_threadsafe(renewed.set)

    async with asyncio.timeout(10), repeat_in_background(renew, 0.01, "certificate"):
        assert len(calls) == 1, "the first call comes before the start"
        await renewed.wait()
    assert [record.getMessage() for record in caplog.records] == ["certificate"]


async def test_failed_first_renewal_is_an_error() -> None:
    def renew() -> None:
        raise FleetError("spoiled")

    with pytest.raises(FleetError):
        await repeat_in_background(renew, 1.0, "certificate").__aenter__()
