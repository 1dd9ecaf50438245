"""The receiver behind a reverse proxy that terminates TLS."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import aiohttp
import pytest
from multidict import CIMultiDict

from sync.common.fleet_folder import FleetFolder
from sync.receiver.limits import ReceiverLimits
from sync.receiver.pki import Authority
from sync.receiver.proxy import ReverseProxy
from sync.receiver.server import ListenAddress, running_receiver
from sync.segment import identity_path
from sync.uplink.proxies import is_this_machine
from tests.helpers.fleet import (
    GATEWAY,
    HOST,
    OTHER,
    Client,
    client,
    identity,
    make_fleet,
    segment,
    write_pair,
)
from tests.helpers.processes import start
from tests.helpers.proxies import HEADER, tls_proxy

PROXY = ReverseProxy(certificate_header=HEADER)


class ProxiedReceiver(NamedTuple):
    """A receiver behind a proxy: the addresses of both, and the fleet."""

    folder: FleetFolder
    proxy: tuple[str, int]
    receiver: tuple[str, int]
    tokens: dict[str, str]

    @contextlib.asynccontextmanager
    async def client(self, pair: Path | None = None) -> AsyncIterator[Client]:
        ca = self.folder.pki / "ca.pem"
        async with client(self.proxy, self.tokens, ca, pair) as connected:
            yield connected


@pytest.fixture
async def proxied(tmp_path: Path) -> AsyncIterator[ProxiedReceiver]:
    tokens = make_fleet(tmp_path / "fleet")
    folder = FleetFolder(tmp_path / "fleet")
    async with (
        running_receiver(folder, ListenAddress(HOST, 0), PROXY, ReceiverLimits()) as receiver,
        tls_proxy(folder.pki, receiver) as proxy,
    ):
        yield ProxiedReceiver(folder, proxy, receiver, tokens)


async def test_proxied_token_or_certificate_is_used(
    proxied: ProxiedReceiver, tmp_path: Path
) -> None:
    async with proxied.client() as connected:
        assert (await connected.put(segment())).status == 201
        assert (await connected.put(segment(), Authorization="")).status == 401
    async with proxied.client(write_pair(proxied.folder, tmp_path / "pair.pem")) as connected:
        assert (await connected.head(Authorization=None)).status == 200
        assert (await connected.head(identity(gateway=OTHER), Authorization=None)).status == 403


async def test_proxy_connection_stays_open_after_401(proxied: ProxiedReceiver) -> None:
    """It carries other gateways' requests too."""
    reader, writer = await asyncio.open_connection(*proxied.receiver)
    for _ in range(3):
        writer.write(b"GET /v1/gateways/a/epochs/b HTTP/1.1\r\nHost: centre\r\n\r\n")
        async with asyncio.timeout(10):
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readuntil(b"}")
        assert b" 401 " in head
    writer.transport.abort()


async def test_second_certificate_header_is_ignored(
    proxied: ProxiedReceiver, tmp_path: Path
) -> None:
    stolen = quote(write_pair(proxied.folder, tmp_path / "pair.pem").read_text())
    async with proxied.client() as connected:
        answer = await connected.head(Authorization=None, X_Client_Certificate=stolen)
        assert answer.status == 401


async def test_proxied_certificate_is_verified(proxied: ProxiedReceiver, tmp_path: Path) -> None:
    make_fleet(tmp_path / "foreign")
    foreign = ProxiedReceiver(FleetFolder(tmp_path / "foreign"), *proxied[1:])
    Authority(proxied.folder.pki).ensure((GATEWAY,), dt.datetime.now(dt.UTC))  # for a server
    wrong = [
        write_pair(foreign.folder, tmp_path / "foreign.pem").read_text(),
        write_pair(proxied.folder, tmp_path / "ended.pem", issued_ms=10**12).read_text(),
        (proxied.folder.pki / "server.pem").read_text(),
        (proxied.folder.pki / "ca.pem").read_text(),
        "-----BEGIN CERTIFICATE-----\nx\n",
        "nonsense",
        "",
    ]
    good = write_pair(proxied.folder, tmp_path / "good.pem").read_text()
    url = "http://{}:{}/v1/segments/{}".format(*proxied.receiver, identity_path(identity()))
    async with aiohttp.ClientSession() as session:
        statuses = []
        for text in (*wrong, good):
            async with session.head(url, headers={HEADER: quote(text)}) as answer:
                statuses.append(answer.status)
        for pair in ((good, ""), ("", good), (good, good)):
            headers = [(HEADER, quote(text)) for text in pair]
            async with session.head(url, headers=CIMultiDict(headers)) as answer:
                assert answer.status == 401, "the proxy adds only one of two"
    assert statuses == [401] * len(wrong) + [404]


async def test_log_names_the_client_of_the_proxy(
    proxied: ProxiedReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fieldpost.fleet")
    url = "http://{}:{}/".format(*proxied.receiver)
    values = ["198.51.100.7, 192.0.2.1", "2001:db8::1", "nonsense", ""]
    async with aiohttp.ClientSession() as session:
        for forwarded_for in values:
            async with session.get(url, headers={"X-Forwarded-For": forwarded_for}):
                pass
    peers = [record.__dict__["facts"]["peer"] for record in caplog.records]
    assert peers == ["192.0.2.1", "2001:db8::1", HOST, HOST]


async def test_untrusted_peer_is_refused_behind_proxy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_fleet(tmp_path / "fleet")
    folder = FleetFolder(tmp_path / "fleet")
    proxy = ReverseProxy((ipaddress.ip_network("192.0.2.0/24"),))
    async with (
        running_receiver(folder, ListenAddress(HOST, 0), proxy, ReceiverLimits()) as address,
        aiohttp.ClientSession() as session,
    ):
        with pytest.raises(aiohttp.ClientError):
            await session.get("http://{}:{}/".format(*address))
    assert [record.__dict__["facts"]["text"] for record in caplog.records] == [
        "the peer is not a trusted proxy"
    ] * len(caplog.records)
    assert caplog.records


async def test_certificate_header_is_ignored_by_default(tmp_path: Path) -> None:
    tokens = make_fleet(tmp_path / "fleet")
    folder = FleetFolder(tmp_path / "fleet")
    async with running_receiver(
        folder, ListenAddress(HOST, 0), ReverseProxy(), ReceiverLimits()
    ) as address:
        proxied = ProxiedReceiver(folder, address, address, tokens)
        good = quote(write_pair(proxied.folder, tmp_path / "good.pem").read_text())
        url = "http://{}:{}/v1/segments/{}".format(*address, identity_path(identity()))
        async with (
            aiohttp.ClientSession() as session,
            session.head(url, headers={HEADER: good}) as answer,
        ):
            assert answer.status == 401


async def test_command_prints_http_behind_proxy(tmp_path: Path) -> None:
    tokens = make_fleet(tmp_path / "fleet")
    words = ("fieldpost-fleet", "serve", "--dir", tmp_path / "fleet", "--listen", f"{HOST}:0")
    with start(*words, "--behind-proxy", "--client-certificate-header", HEADER) as process:
        pki = tmp_path / "fleet" / "pki"
        async with (
            tls_proxy(pki, process.host_port("http")) as address,
            client(address, tokens, pki / "ca.pem") as connected,
        ):
            assert (await connected.put(segment())).status == 201
        assert process.terminate() == 0


def test_is_this_machine() -> None:
    hosts = ["127.0.0.1", "127.9.9.9", "::1", "localhost", "192.0.2.1", "::", "gw.example"]
    assert [is_this_machine(host) for host in hosts] == [True] * 4 + [False] * 3
    assert ReverseProxy().is_trusted("::1%lo")
